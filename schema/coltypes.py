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
                        an index a row
======================  ==========================================================================

Source: ClickHouse ``src/DataTypes/Serializations/Serialization*.cpp``; golden bytes in the tests.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_WIDTHS: Final = {
    "UInt8": 1,
    "UInt16": 2,
    "UInt32": 4,
    "UInt64": 8,
    "Int64": 8,
    "Float64": 8,
    "Bool": 1,
}
_DATETIME64: Final = re.compile(r"DateTime64\((\d)(?:, '[^']*')?\)")

LOW_CARDINALITY_PREFIX: Final = (1).to_bytes(8, "little")
"""Version of the keys' serialisation: shared dictionaries with additional keys."""
LOW_CARDINALITY_FLAGS: Final = 1 << 9 | 1 << 10
"""The block brings keys of its own, and they are all there are."""


@cache
def fixed_width(type_name: str) -> int | None:
    """Bytes of one value; None where values differ in length."""
    width = _WIDTHS.get(type_name)
    if width is None and _DATETIME64.fullmatch(type_name):
        return 8
    return width


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
