"""The four streams: one declaration each, from which all that touches a table follows.

DDL, the Native encoder, the insert statement and the layout of a frame's payload are all derived
from these declarations. Names and columns are those of the public Pluto tables; keys and the column
``batch`` are ours, so that exact repeats collapse and an insert of unknown outcome can be looked
up.

How a row gets its values:

=========  ====================================================================================
origin     where the value comes from when a block is built
=========  ====================================================================================
``FRAME``  constant in a frame (tenant, project, run): taken from the frame itself, stored once
``BLOCK``  constant in a block (``batch``): given when the block is built
``CHUNK``  a column chunk of the frame's payload, in the order of declaration
``ZERO``   a column that the table has and no writer fills; the type's zero is written, because
           a default chosen by the server is not the same on every server
=========  ====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class StreamKind(IntEnum):
    """The number in a frame that says which table it belongs to. Part of the log's format."""

    METRICS = 1
    LOGS = 2
    DATA = 3
    FILES = 4


class Origin(Enum):
    """Where a column's values come from when a block is built; see the module's table."""

    FRAME = "frame"
    BLOCK = "block"
    CHUNK = "chunk"
    ZERO = "zero"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: name and ClickHouse type as in the DDL, where its values come from, its codec."""

    name: str
    type: str
    origin: Origin = Origin.CHUNK
    codec: str | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of rows and the table it ends in.

    ``primary_key`` is a prefix of ``sorting_key``; entries may be expressions. The sorting key is a
    row's identity: ReplacingMergeTree collapses rows that agree in all of it.
    """

    kind: StreamKind
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    sorting_key: tuple[str, ...]

    @property
    def chunk_columns(self) -> tuple[Column, ...]:
        """The columns that a frame's payload holds, in the payload's order."""
        return tuple(column for column in self.columns if column.origin is Origin.CHUNK)


TIME_CODEC = "Delta, T64, ZSTD(1)"
"""Times 33 ± 3 ms apart: 0.25 bytes a row, 5 ns to read; DoubleDelta 0.34 and 10. 5 to 500 ms
apart: 0.60 against 1.31. Exactly even ones: 0.06 against 0.012."""
STEP_CODEC = "DoubleDelta, ZSTD(1)"
TEXT_CODEC = "ZSTD(1)"
"""Of values too: Gorilla before it takes 5 % less of noise and twice as much of smooth curves."""
RUN_CODEC = "Delta, ZSTD(1)"
"""0.008 bytes a row; ZSTD(1) alone 0.27."""
BATCH_CODEC = "Delta, ZSTD(1)"
"""0.016 bytes a row after merges of four shards; ZSTD alone 0.030, DoubleDelta 0.021, T64 0.24."""

_TENANT = Column("tenantId", "LowCardinality(String)", Origin.FRAME)
_PROJECT = Column("projectName", "LowCardinality(String)", Origin.FRAME, TEXT_CODEC)
_RUN = Column("runId", "UInt64", Origin.FRAME, RUN_CODEC)
_GROUP = Column("logGroup", "LowCardinality(String)", codec=TEXT_CODEC)
_NAME = Column("logName", "LowCardinality(String)", codec=TEXT_CODEC)
_TIME = Column("time", "DateTime64(3, 'UTC')", codec=TIME_CODEC)
_STEP = Column("step", "Float64", codec=STEP_CODEC)
_BATCH = Column("batch", "UInt64", Origin.BLOCK, BATCH_CODEC)

_SERIES = ("tenantId", "projectName", "runId", "logGroup", "logName", "step")

METRICS = Stream(
    kind=StreamKind.METRICS,
    table="mlop_metrics",
    columns=(
        *(_TENANT, _PROJECT, _RUN, _GROUP, _NAME, _TIME, _STEP),
        Column("value", "Float64", codec=TEXT_CODEC),
        _BATCH,
    ),
    primary_key=_SERIES,
    sorting_key=(*_SERIES, "time", "reinterpretAsUInt64(value)"),
)

LOGS = Stream(
    kind=StreamKind.LOGS,
    table="mlop_logs",
    columns=(
        *(_TENANT, _PROJECT, _RUN),
        Column("logType", "LowCardinality(String)"),
        _TIME,
        Column("lineNumber", "UInt64", codec=STEP_CODEC),
        Column("message", "String", codec=TEXT_CODEC),
        Column("step", "Float64", Origin.ZERO, STEP_CODEC),
        _BATCH,
    ),
    primary_key=("tenantId", "projectName", "runId", "logType", "time", "lineNumber"),
    sorting_key=(
        *("tenantId", "projectName", "runId", "logType", "time", "lineNumber"),
        "sipHash64(message)",
    ),
)

DATA = Stream(
    kind=StreamKind.DATA,
    table="mlop_data",
    columns=(
        *(_TENANT, _PROJECT, _RUN, _GROUP, _NAME),
        Column("dataType", "LowCardinality(String)"),
        *(_TIME, _STEP),
        Column("data", "String", codec=TEXT_CODEC),
        _BATCH,
    ),
    primary_key=_SERIES,
    sorting_key=(*_SERIES, "time", "dataType", "sipHash64(data)"),
)

FILES = Stream(
    kind=StreamKind.FILES,
    table="mlop_files",
    columns=(
        *(_TENANT, _PROJECT, _RUN, _TIME, _STEP, _GROUP, _NAME),
        Column("fileName", "String", codec=TEXT_CODEC),
        Column("fileType", "LowCardinality(String)"),
        Column("fileSize", "UInt64", codec=TEXT_CODEC),
        Column("caption", "Nullable(String)", codec=TEXT_CODEC),
        Column("sampleIndex", "UInt32", codec=TEXT_CODEC),
        Column("annotations", "Nullable(String)", codec=TEXT_CODEC),
        _BATCH,
    ),
    primary_key=_SERIES,
    sorting_key=(*_SERIES, "time", "sampleIndex", "fileName"),
)

STREAMS: Mapping[StreamKind, Stream] = MappingProxyType(
    {stream.kind: stream for stream in (METRICS, LOGS, DATA, FILES)}
)
"""Every stream by its kind, in the order of the kinds' numbers."""
