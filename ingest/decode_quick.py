"""The whole body of an ordinary metrics request to columns, without what only odd ones need.

`Decoder` takes bodies in any slices, of any stream, with refusals by line; making its parts costs
25 us, which is most of the time of a request of ten points. Here a body is taken at once, and it
must be ordinary through and through: a good line of metrics each, nothing refused, nothing unknown,
no time ahead. Anything else gives None, and the body goes to `Decoder`. For the bodies that it does
take, it comes to the same payload, byte for byte (a property test).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from ingest.decode_json import parse_whole
from ingest.decode_rows import DAY_MS
from schema.limits import STEP_ABS_MAX, TIME_MS_MAX, TIME_MS_MIN
from schema.lines import chunks_of_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.decode_shapes import ShapeCache
    from schema.columns import Chunks
    from schema.ids import RunId, TenantId
    from schema.names import NameShape

QUICK_BYTES_MAX = 256 * 2**10
"""So that the rows of any body fit one frame, whatever its names: 43,000 rows, a MiB of names."""

_Lines: TypeAlias = "tuple[Sequence[int], Sequence[float], Sequence[NameShape], Sequence[float]]"

_NUMBERS = frozenset({int, float})
_are_numbers = _NUMBERS.issuperset
_INTEGERS, _THREE = {int}, {3}


def quick_metrics(
    body: bytes,
    tenant: TenantId,
    project: str,
    run_id: RunId,
    *,
    now_ms: int,
    shapes: ShapeCache,
) -> Chunks | None:
    """The rows of a body; None where `Decoder` has to look at it.

    Args:
        body: all of it, at most `QUICK_BYTES_MAX`.
        tenant: whose rows they are.
        project: see `tenant`.
        run_id: see `tenant`.
        now_ms: as for `Decoder`.
        shapes: as for `Decoder`.
    """
    if len(body) > QUICK_BYTES_MAX:
        return None
    values = parse_whole(body)
    if not values:
        return None
    until_ms = min(now_ms + DAY_MS, TIME_MS_MAX)
    try:
        if len(values) == 1:
            lines = _line(values[0], until_ms, shapes)
        else:
            lines = _lines(values, until_ms, shapes)
    except (KeyError, TypeError, AttributeError):
        return None  # a field is missing, or something is not of the usual type
    return None if lines is None else chunks_of_lines(tenant, project, run_id, *lines)


def _line(value: Any, until_ms: int, shapes: ShapeCache) -> _Lines | None:  # noqa: ANN401 - JSON
    """The line of a body that has one."""
    data, time_ms, step = value["data"], value["time"], value["step"]
    names, points = (*data,), [*data.values()]
    if (
        len(value) != 3
        or type(time_ms) is not int
        or not TIME_MS_MIN <= time_ms <= until_ms
        or type(step) not in _NUMBERS
        or not -STEP_ABS_MAX <= step <= STEP_ABS_MAX
        # Booleans above all, which an array takes for 0 and 1.
        or not _are_numbers(map(type, points))
    ):
        return None
    shape = shapes.find(names) or shapes.new_shape(names)
    return None if shape is None else ((time_ms,), (step,), (shape,), points)


def _lines(values: Sequence[Any], until_ms: int, shapes: ShapeCache) -> _Lines | None:
    """All lines of a body, a column at a time: half of what it takes line by line."""
    datas = [value["data"] for value in values]
    times = [value["time"] for value in values]
    steps = [value["step"] for value in values]
    points = list(chain.from_iterable(map(dict.values, datas)))
    if (
        set(map(len, values)) != _THREE
        or set(map(type, times)) != _INTEGERS
        or not TIME_MS_MIN <= min(times) <= max(times) <= until_ms
        or not set(map(type, steps)) <= _NUMBERS
        or not -STEP_ABS_MAX <= min(steps) <= max(steps) <= STEP_ABS_MAX
        or not set(map(type, points)) <= _NUMBERS
    ):
        return None
    known = list(filter(None, map(shapes.find, map(tuple, datas))))
    if len(known) == len(datas):
        return times, steps, known, points
    found = []
    for names in map(tuple, datas):
        shape = shapes.find(names) or shapes.new_shape(names)
        if shape is None:
            return None
        found.append(shape)
    return times, steps, found, points
