"""Bodies for the decoder's tests, and what they come to as plain rows."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from ingest.decode import Decoded, Decoder, ShapeCache
from schema.ids import RunId, TenantId
from schema.reading import rows_of
from schema.streams import StreamKind

if TYPE_CHECKING:
    from collections.abc import Iterable

NOW_MS = 1_764_423_221_123


def decode(
    body: bytes | str,
    kind: StreamKind = StreamKind.METRICS,
    *,
    slice_bytes: int = 2**20,
    shapes: ShapeCache | None = None,
    strict: bool = False,
) -> Decoded:
    """What a body comes to, fed in slices of the given size."""
    raw = body.encode() if isinstance(body, str) else body
    decoder = Decoder(
        kind,
        TenantId("acme"),
        "fit",
        RunId(7),
        now_ms=NOW_MS,
        shapes=ShapeCache() if shapes is None else shapes,
        strict=strict,
    )
    for start in range(0, len(raw), slice_bytes):
        decoder.feed(raw[start : start + slice_bytes])
    return decoder.finish()


def rows(decoded: Decoded) -> list[dict[str, Any]]:
    """Every accepted row, in order, over all frames."""
    found = [row for chunks in decoded.chunks for row in rows_of(chunks)]
    assert len(found) == decoded.accepted
    return found


def points(decoded: Decoded) -> list[tuple[str, int, float, float]]:
    """Name, time, step and value of every accepted metric."""
    return [(row["logName"], row["time"], row["step"], row["value"]) for row in rows(decoded)]


def bits(value: float) -> bytes:
    """A float by its bits: NaN is like itself, -0.0 is not 0.0."""
    return struct.pack("<d", value)


def line(data: object, *, time: object = NOW_MS, step: object = 3, **more: object) -> str:
    """A line of metrics as Python's own writer spells it."""
    return json.dumps({"time": time, "step": step, "data": data, **more})


def lines(documents: Iterable[object]) -> str:
    """Lines as Python's own writer spells them."""
    return "\n".join(json.dumps(document) for document in documents)


def errors(decoded: Decoded) -> list[tuple[int, str]]:
    """Line and field of every refusal that is spelled out."""
    return [(error.line, error.field) for error in decoded.errors]
