"""Metric names of one line, encoded once for all lines that have the same keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schema.varint import text_content, varint

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPE_NAMES_MAX = 8_192
"""Names in one shape; the caller splits a wider line, so that no shape fills a frame by itself."""

_LONG = 0x80
_LENGTHS = tuple(varint(number) for number in range(_LONG))


@dataclass(frozen=True, slots=True, eq=False)
class NameShape:
    """The keys of one line as the column ``logName`` holds them.

    Compared and hashed by identity: a line with known keys costs one dictionary look-up.

    Attributes:
        names: Native Strings, joined; ``count`` of them. Groups follow from them.
    """

    names: bytes
    count: int


def name_shape(names: Sequence[str]) -> NameShape:
    """Encode the keys of one line, in their order. No name holds a lone surrogate."""
    raws = [name.encode() for name in names]
    return NameShape(
        names=b"".join([varint(len(raw)) + raw for raw in raws]),
        count=len(raws),
    )


def group_piece(name: bytes) -> bytes:
    """The group of a metric as a Native String: of its name, all before the last slash, or nothing.

    Args:
        name: a Native String.
    """
    if name[0] < _LONG:  # its length is one byte, which may look like a slash
        slash = name.rfind(b"/", 1)
        return b"\0" if slash < 1 else _LENGTHS[slash - 1] + name[1:slash]
    group = text_content(name).rpartition(b"/")[0]
    return varint(len(group)) + group
