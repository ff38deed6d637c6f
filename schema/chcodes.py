"""ClickHouse's exception codes: what each means for an insert, and where that is known from.

=============  ==================================================================================
class          what the flusher does
=============  ==================================================================================
``TRANSIENT``  tries again for ever, with growing waits
``OPERATOR``   waits, loudly, re-reads the live table, loses nothing: someone must mend something
``ROWS``       some rows are at fault: the batch is bisected until they are alone
``OURS``       the server cannot read our block: a bug; the table stops and says so
=============  ==================================================================================

A code that is not listed is the operator's: it waits loudly, and nothing is lost by waiting.

An error of a view is the operator's even where a row's value provokes it (6, 395): the source table
has the rows already, so a bisection under new tokens would store them twice, while the same token
fills the target once the view is mended.

Names are those of ClickHouse ``src/Common/ErrorCodes.cpp``; a test asks the engine for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ErrorClass(Enum):
    """Who must do something about a failed insert; see the module's table."""

    TRANSIENT = "transient"
    OPERATOR = "operator"
    ROWS = "rows"
    OURS = "ours"


@dataclass(frozen=True, slots=True)
class ServerCode:
    """One exception code.

    Attributes:
        source: the measurement, field report or server file that the class comes from.
    """

    code: int
    name: str
    error_class: ErrorClass
    source: str


_T, _O, _R, _U = ErrorClass.TRANSIENT, ErrorClass.OPERATOR, ErrorClass.ROWS, ErrorClass.OURS

_MEASURED = "measured on chDB 26.9"
_NATIVE = "src/Formats/NativeReader.cpp: the block is cut off or not of the format"
_KEEPER = "ClickHouse#36343, #37820, #71326, #4901: replicated table without its Keeper"
_QUORUM = "src/Storages/MergeTree/ReplicatedMergeTreeSink.cpp"
_LOAD = "src/Interpreters/ProcessList.cpp: the server is busy"
_NET = "src/IO/ReadBufferFromPocoSocket.cpp: between the server and another one"
_DISK = "src/IO/WriteBufferFromFileDescriptor.cpp: ENOSPC and EIO of the server's disk"
_AUTH = "src/Access/AccessControl.cpp: the configured user or its grants"
_VIEW = "an expression of a view, default or constraint on the table, not our block"
_TABLE = "the live table is not the one that was read"

SERVER_CODES: tuple[ServerCode, ...] = (
    ServerCode(3, "UNEXPECTED_END_OF_FILE", _U, _NATIVE),
    ServerCode(27, "CANNOT_PARSE_INPUT_ASSERTION_FAILED", _U, _NATIVE),
    ServerCode(32, "ATTEMPT_TO_READ_AFTER_EOF", _U, _NATIVE),
    ServerCode(33, "CANNOT_READ_ALL_DATA", _U, f"{_MEASURED}; {_NATIVE}"),
    ServerCode(117, "INCORRECT_DATA", _U, f"{_MEASURED}: a column that the table has not, too"),
    ServerCode(128, "TOO_LARGE_ARRAY_SIZE", _U, f"{_MEASURED}: too many columns in a block's head"),
    ServerCode(62, "SYNTAX_ERROR", _U, f"{_MEASURED}: the statement is ours"),
    ServerCode(73, "UNKNOWN_FORMAT", _O, "a server built without Native, or a proxy in between"),
    ServerCode(
        6, "CANNOT_PARSE_TEXT", _O, f"{_MEASURED}: a column of another type now, or {_VIEW}"
    ),
    ServerCode(41, "CANNOT_PARSE_DATETIME", _O, _VIEW),
    ServerCode(72, "CANNOT_PARSE_NUMBER", _O, _VIEW),
    ServerCode(376, "CANNOT_PARSE_UUID", _O, f"{_MEASURED}: a column of another type now"),
    ServerCode(43, "ILLEGAL_TYPE_OF_ARGUMENT", _O, _VIEW),
    ServerCode(46, "UNKNOWN_FUNCTION", _O, _VIEW),
    ServerCode(47, "UNKNOWN_IDENTIFIER", _O, _VIEW),
    ServerCode(395, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO", _O, f"{_MEASURED}: {_VIEW}"),
    ServerCode(153, "ILLEGAL_DIVISION", _O, _VIEW),
    ServerCode(10, "NOT_FOUND_COLUMN_IN_BLOCK", _O, _TABLE),
    ServerCode(16, "NO_SUCH_COLUMN_IN_TABLE", _O, f"{_MEASURED}: {_TABLE}"),
    ServerCode(20, "NUMBER_OF_COLUMNS_DOESNT_MATCH", _O, _TABLE),
    ServerCode(36, "BAD_ARGUMENTS", _O, "a setting or argument that the server refuses"),
    ServerCode(44, "ILLEGAL_COLUMN", _O, f"{_MEASURED}: a MATERIALIZED or ALIAS column; {_TABLE}"),
    ServerCode(48, "NOT_IMPLEMENTED", _O, "a table engine that takes no inserts"),
    ServerCode(50, "UNKNOWN_TYPE", _O, _TABLE),
    ServerCode(53, "TYPE_MISMATCH", _O, _TABLE),
    ServerCode(60, "UNKNOWN_TABLE", _O, f"{_MEASURED}: dropped, or not yet migrated"),
    ServerCode(81, "UNKNOWN_DATABASE", _O, f"{_MEASURED}: dropped, or not yet migrated"),
    ServerCode(115, "UNKNOWN_SETTING", _O, f"{_MEASURED}: a server too old for a setting we send"),
    ServerCode(164, "READONLY", _O, f"{_MEASURED}: the user's profile says readonly"),
    ServerCode(218, "TABLE_IS_DROPPED", _O, "dropped while the insert ran"),
    ServerCode(192, "UNKNOWN_USER", _O, _AUTH),
    ServerCode(193, "WRONG_PASSWORD", _O, _AUTH),
    ServerCode(194, "REQUIRED_PASSWORD", _O, _AUTH),
    ServerCode(195, "IP_ADDRESS_NOT_ALLOWED", _O, _AUTH),
    ServerCode(291, "DATABASE_ACCESS_DENIED", _O, _AUTH),
    ServerCode(
        452, "SETTING_CONSTRAINT_VIOLATION", _O, "the user may not send one of our settings"
    ),
    ServerCode(497, "ACCESS_DENIED", _O, _AUTH),
    ServerCode(516, "AUTHENTICATION_FAILED", _O, _AUTH),
    ServerCode(359, "TABLE_SIZE_EXCEEDS_MAX_DROP_SIZE_LIMIT", _O, "a migration that drops"),
    ServerCode(69, "ARGUMENT_OUT_OF_BOUND", _R, "a value outside of what the column takes"),
    ServerCode(70, "CANNOT_CONVERT_TYPE", _R, "a value that the live type refuses"),
    ServerCode(131, "TOO_LARGE_STRING_SIZE", _R, f"{_MEASURED}: a string longer than FixedString"),
    ServerCode(321, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", _R, "a value outside of the live type"),
    ServerCode(
        349, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", _R, f"{_MEASURED}: a null where none is taken"
    ),
    ServerCode(407, "DECIMAL_OVERFLOW", _R, f"{_MEASURED}: a time outside of DateTime64(9)"),
    ServerCode(691, "UNKNOWN_ELEMENT_OF_ENUM", _R, f"{_MEASURED}: a value that an Enum lacks"),
    ServerCode(469, "VIOLATED_CONSTRAINT", _R, f"{_MEASURED}: a CHECK of the table"),
    ServerCode(74, "CANNOT_READ_FROM_FILE_DESCRIPTOR", _T, _DISK),
    ServerCode(75, "CANNOT_WRITE_TO_FILE_DESCRIPTOR", _T, _DISK),
    ServerCode(76, "CANNOT_OPEN_FILE", _T, "out of descriptors, or the disk is away"),
    ServerCode(204, "CANNOT_FSYNC", _T, _DISK),
    ServerCode(243, "NOT_ENOUGH_SPACE", _T, "the server's disk is full"),
    ServerCode(424, "CANNOT_LINK", _T, _DISK),
    ServerCode(499, "S3_ERROR", _T, "the table's object storage"),
    ServerCode(158, "TOO_MANY_ROWS", _O, "a limit of the user's profile on what one query takes"),
    ServerCode(307, "TOO_MANY_BYTES", _O, "a limit of the user's profile on what one query takes"),
    ServerCode(159, "TIMEOUT_EXCEEDED", _T, f"{_MEASURED}: max_execution_time"),
    ServerCode(160, "TOO_SLOW", _T, _LOAD),
    ServerCode(173, "CANNOT_ALLOCATE_MEMORY", _T, _LOAD),
    ServerCode(198, "DNS_ERROR", _T, _NET),
    ServerCode(201, "QUOTA_EXCEEDED", _T, "src/Access/EnabledQuota.cpp: clears with its interval"),
    ServerCode(202, "TOO_MANY_SIMULTANEOUS_QUERIES", _T, _LOAD),
    ServerCode(203, "NO_FREE_CONNECTION", _T, _NET),
    ServerCode(209, "SOCKET_TIMEOUT", _T, _NET),
    ServerCode(210, "NETWORK_ERROR", _T, _NET),
    ServerCode(236, "ABORTED", _T, "the server is shutting down"),
    ServerCode(241, "MEMORY_LIMIT_EXCEEDED", _T, _LOAD),
    ServerCode(252, "TOO_MANY_PARTS", _T, f"{_MEASURED}; ClickHouse#71443, #13360, #3174"),
    ServerCode(279, "ALL_CONNECTION_TRIES_FAILED", _T, _NET),
    ServerCode(373, "SESSION_IS_LOCKED", _T, "another query of the same session runs"),
    ServerCode(394, "QUERY_WAS_CANCELLED", _T, f"{_MEASURED}: KILL QUERY"),
    ServerCode(439, "CANNOT_SCHEDULE_TASK", _T, _LOAD),
    ServerCode(473, "DEADLOCK_AVOIDED", _T, "src/Common/RWLock.cpp: a lock not had in time"),
    ServerCode(692, "TOO_MANY_MUTATIONS", _T, _LOAD),
    ServerCode(735, "QUERY_WAS_CANCELLED_BY_CLIENT", _T, "the connection went away"),
    ServerCode(745, "SERVER_OVERLOADED", _T, _LOAD),
    ServerCode(216, "QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING", _T, f"{_LOAD}: our former try runs"),
    ServerCode(225, "NO_ZOOKEEPER", _T, _KEEPER),
    ServerCode(242, "TABLE_IS_READ_ONLY", _T, _KEEPER),
    ServerCode(244, "UNEXPECTED_ZOOKEEPER_ERROR", _T, _KEEPER),
    ServerCode(999, "KEEPER_EXCEPTION", _T, _KEEPER),
    ServerCode(285, "TOO_FEW_LIVE_REPLICAS", _T, _QUORUM),
    ServerCode(286, "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE", _T, _QUORUM),
    ServerCode(319, "UNKNOWN_STATUS_OF_INSERT", _T, f"{_KEEPER}; the same token settles it"),
    ServerCode(1000, "POCO_EXCEPTION", _T, "the server's network and file library"),
    ServerCode(1001, "STD_EXCEPTION", _T, "the server's file system calls among others"),
    ServerCode(1002, "UNKNOWN_EXCEPTION", _T, "something thrown that the server has no name for"),
)
"""Every code with a class of its own."""

_BY_CODE: Mapping[int, ServerCode] = MappingProxyType({row.code: row for row in SERVER_CODES})
if len(_BY_CODE) != len(SERVER_CODES):
    raise ImportError("a ClickHouse code is listed twice")

NAMES: Mapping[int, str] = MappingProxyType({row.code: row.name for row in SERVER_CODES})
"""The server's name of each listed code."""

_TRANSIENT_STATUSES = frozenset({408, 425, 429})


def classify(code: int | None, http_status: int | None) -> ErrorClass:
    """The class of a failed insert.

    Args:
        code: the server's exception code (header ``X-ClickHouse-Exception-Code``), if there is one.
        http_status: the answer's status; None when there was no answer.
    """
    if code:
        row = _BY_CODE.get(code)
        return row.error_class if row else ErrorClass.OPERATOR
    if http_status is None or http_status >= 500 or http_status in _TRANSIENT_STATUSES:
        return ErrorClass.TRANSIENT
    return ErrorClass.OPERATOR  # a proxy's 403, 404 or 413, a redirect: not ClickHouse's own words
