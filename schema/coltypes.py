"""The ClickHouse types that our tables use: how each lies in a Native block.

A type writes its *prefix*, then its *data*; of a column without rows a block has neither.

======================  ==========================================================================
type                    data
======================  ==========================================================================
``UInt8`` to ``UInt64`` little-endian, one after the other; ``Int64``, ``Float64``, ``Bool`` alike
``DateTime64(3, …)``    Int64: milliseconds since 1970 in UTC, whatever the time zone of the type
``String``              varint length, bytes
``Nullable(T)``         a byte a row (1: null), then T with its zero in place of nulls
``LowCardinality(T)``   prefix u64 1; u64 flags | width of an index, u64 keys, the keys, u64 rows,
                        an index a row; of a Nullable T, key 0 stands for null
======================  ==========================================================================

Source: ClickHouse ``src/DataTypes/Serializations/Serialization*.cpp``; golden bytes in the tests.
"""

from __future__ import annotations

import re
import struct
from array import array
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

from schema.errors import UnknownType
from schema.varint import split_texts, text, text_content

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODES: Final = {
    "UInt8": "B",
    "UInt16": "H",
    "UInt32": "I",
    "UInt64": "Q",
    "Int8": "b",
    "Int16": "h",
    "Int32": "i",
    "Int64": "q",
    "Float32": "f",
    "Float64": "d",
    "Bool": "?",
}
_DATETIME64: Final = re.compile(r"DateTime64\((\d)(?:, '[^']*')?\)")
_WRAPPED: Final = re.compile(r"(Nullable|LowCardinality)\((.*)\)")

LOW_CARDINALITY_PREFIX: Final = (1).to_bytes(8, "little")
"""Version of the keys' serialisation: shared dictionaries with additional keys."""
LOW_CARDINALITY_FLAGS: Final = 1 << 9 | 1 << 10
"""The block brings keys of its own, and they are all there are."""

_LOW_CARDINALITY_HEAD = struct.Struct("<QQQ")
_U64 = struct.Struct("<Q")
_INDEX_CODES: Final = "BHIQ"


class ColumnType(Protocol):
    """One type: a column's values to prefix and data, and back. At least one row."""

    def encode(self, values: Sequence[object]) -> bytes:
        """Prefix and data of all values."""

    def decode(self, data: bytes, offset: int, rows: int) -> tuple[list[object], int]:
        """So many values and the offset behind them.

        Raises:
            ValueError: the data end before the values do, or are not of the form.
        """

    @property
    def zero(self) -> object:
        """What stands in place of a null."""


@cache
def column_type(type_name: str) -> ColumnType:
    """The codec of a type by its name in ClickHouse.

    Raises:
        UnknownType: a type that this package does not write or read.
    """
    code = fixed_code(type_name)
    if code:
        return FixedType(code)
    if type_name == "String":
        return StringType()
    wrapped = _WRAPPED.fullmatch(type_name)
    if wrapped and wrapped[1] == "Nullable" and not _WRAPPED.fullmatch(wrapped[2]):
        return NullableType(column_type(wrapped[2]))
    if wrapped and wrapped[1] == "LowCardinality" and wrapped[2] in ("String", "Nullable(String)"):
        return LowCardinalityType(is_nullable=wrapped[2] != "String")
    raise UnknownType(f"type {type_name} is not written or read here")


@cache
def fixed_code(type_name: str) -> str | None:
    """The struct code of one value; None where values differ in length."""
    return "q" if _DATETIME64.fullmatch(type_name) else _CODES.get(type_name)


@cache
def fixed_width(type_name: str) -> int | None:
    """Bytes of one value; None where values differ in length."""
    code = fixed_code(type_name)
    return struct.calcsize(f"<{code}") if code else None


@cache
def is_nullable(type_name: str) -> bool:
    """Whether a null map stands before the values."""
    return type_name.startswith("Nullable(")


def datetime64_precision(type_name: str) -> int | None:
    """Decimal digits of a second in a DateTime64; None for any other type."""
    match = _DATETIME64.fullmatch(type_name)
    return int(match[1]) if match else None


def index_typecode(key_count: int) -> tuple[int, str]:
    """Number and array typecode of the narrowest index for so many keys of a LowCardinality."""
    if key_count <= 1 << 8:
        return 0, "B"
    if key_count <= 1 << 16:
        return 1, "H"
    return 2, "I"


@dataclass(frozen=True, slots=True)
class FixedType:
    """Numbers, booleans and times: a struct code."""

    code: str

    def encode(self, values: Sequence[object]) -> bytes:
        """Little-endian values, one after the other."""
        return struct.pack(f"<{len(values)}{self.code}", *values)

    def decode(self, data: bytes, offset: int, rows: int) -> tuple[list[object], int]:
        """So many values; ValueError when they are not there."""
        end = offset + rows * struct.calcsize(f"<{self.code}")
        if end > len(data):
            raise ValueError(f"{rows} values at {offset} pass the end at {len(data)}")
        return list(struct.unpack(f"<{rows}{self.code}", data[offset:end])), end

    @property
    def zero(self) -> object:
        """What stands in place of a null."""
        return 0


@dataclass(frozen=True, slots=True)
class StringType:
    """Text; what is no UTF-8 is not for this package."""

    def encode(self, values: Sequence[object]) -> bytes:
        """Length and bytes of each."""
        return b"".join([text(str(value)) for value in values])

    def decode(self, data: bytes, offset: int, rows: int) -> tuple[list[object], int]:
        """So many strings; ValueError when they are not there or no UTF-8."""
        pieces, end = split_texts(data, rows, offset)
        return [text_content(piece).decode() for piece in pieces], end

    @property
    def zero(self) -> object:
        """What stands in place of a null."""
        return ""


@dataclass(frozen=True, slots=True)
class NullableType:
    """A null map, then the values with a zero in place of each null."""

    inner: ColumnType

    def encode(self, values: Sequence[object]) -> bytes:
        """The null map, then the inner type's data."""
        zero = self.inner.zero
        filled = [zero if value is None else value for value in values]
        return bytes([value is None for value in values]) + self.inner.encode(filled)

    def decode(self, data: bytes, offset: int, rows: int) -> tuple[list[object], int]:
        """So many values or None; ValueError when they are not there."""
        nulls = data[offset : offset + rows]
        if len(nulls) != rows:
            raise ValueError(f"a null map of {rows} rows at {offset} passes the end")
        values, end = self.inner.decode(data, offset + rows, rows)
        return [None if null else value for null, value in zip(nulls, values, strict=True)], end

    @property
    def zero(self) -> object:
        """What stands in place of a null."""
        return None


@dataclass(frozen=True, slots=True)
class LowCardinalityType:
    """Distinct strings, and an index a row."""

    is_nullable: bool

    def encode(self, values: Sequence[object]) -> bytes:
        """Prefix, keys and indices."""
        keys: dict[object, int] = {None: 0} if self.is_nullable else {}
        indices = [keys.setdefault(value, len(keys)) for value in values]
        number, typecode = index_typecode(len(keys))
        return b"".join(
            [
                LOW_CARDINALITY_PREFIX,
                _U64.pack(LOW_CARDINALITY_FLAGS | number),
                _U64.pack(len(keys)),
                *(text("" if key is None else str(key)) for key in keys),
                _U64.pack(len(indices)),
                array(typecode, indices).tobytes(),
            ]
        )

    def decode(self, data: bytes, offset: int, rows: int) -> tuple[list[object], int]:
        """So many strings (or None); ValueError when they are not there or of another form."""
        if len(data) - offset < _LOW_CARDINALITY_HEAD.size:
            raise ValueError(f"the head of a LowCardinality at {offset} passes the end")
        version, flags, key_count = _LOW_CARDINALITY_HEAD.unpack_from(data, offset)
        if version != 1 or flags & ~0xFF != LOW_CARDINALITY_FLAGS or flags & 0xFF > 3:
            raise ValueError(f"LowCardinality of version {version} and flags {flags:#x}")
        pieces, offset = split_texts(data, key_count, offset + _LOW_CARDINALITY_HEAD.size)
        keys: list[object] = [text_content(piece).decode() for piece in pieces]
        if self.is_nullable and keys:
            keys[0] = None
        index = FixedType(_INDEX_CODES[flags & 0xFF])
        counts, offset = FixedType("Q").decode(data, offset, 1)
        if counts[0] != rows:
            raise ValueError(f"LowCardinality of {counts[0]} rows in a block of {rows}")
        indices, end = index.decode(data, offset, rows)
        values = [keys[place] for place in indices if isinstance(place, int) and place < len(keys)]
        if len(values) != rows:
            raise ValueError(f"an index at {offset} has no key of {len(keys)}")
        return values, end

    @property
    def zero(self) -> object:
        """What stands in place of a null."""
        return ""
