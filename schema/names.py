"""Metric names of one line, encoded once for all lines that have the same keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schema.varint import text, varint

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPE_NAMES_MAX = 8_192
"""Names in one shape; the caller splits a wider line, so that no shape fills a frame by itself."""


@dataclass(frozen=True, slots=True, eq=False)
class NameShape:
    """The keys of one line as the columns ``logName`` and ``logGroup`` hold them.

    Compared and hashed by identity: a line with known keys costs one dictionary look-up.

    Attributes:
        names: Native Strings, joined; ``count`` of them.
        groups: likewise, one a name.
    """

    names: bytes
    groups: bytes
    count: int


def group_of(name: str) -> str:
    """The group of a metric: everything before the last slash, or nothing."""
    return name.rpartition("/")[0]


def name_shape(names: Sequence[str]) -> NameShape:
    """Encode the keys of one line, in their order. No name holds a lone surrogate."""
    raws = [name.encode() for name in names]
    heads = [raw.rpartition(b"/")[0] for raw in raws]
    return NameShape(
        names=b"".join([varint(len(raw)) + raw for raw in raws]),
        groups=b"".join([varint(len(head)) + head for head in heads]),
        count=len(raws),
    )


def one_name(name: str) -> tuple[bytes, bytes]:
    """``logName`` and ``logGroup`` of a row that has one name, as Native Strings."""
    return text(name), text(group_of(name))
