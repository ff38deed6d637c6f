"""The whole body of an ordinary metrics request to columns, without what only odd ones need.

`Decoder` takes bodies in any slices, of any stream, with refusals by line; making its parts costs
25 us, which is most of the time of a request of ten points. Here a body is taken at once, and it
must be ordinary through and through: a good line of metrics each, nothing refused, nothing unknown,
no time ahead. Anything else gives None, and the body goes to `Decoder`. For the bodies that it does
take, it comes to the same payload, byte for byte (a property test).

Values are checked and packed for all lines together, since per line that costs three calls more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.decode_json import parse_whole
from ingest.decode_rows import DAY_MS
from schema.limits import STEP_ABS_MAX, TIME_MS_MAX, TIME_MS_MIN
from schema.lines import chunks_of_lines

if TYPE_CHECKING:
    from ingest.decode_shapes import ShapeCache
    from schema.columns import Chunks
    from schema.ids import RunId, TenantId
    from schema.names import NameShape

QUICK_BYTES_MAX = 256 * 2**10
"""So that the rows of any body fit one frame, whatever its names: 43,000 rows, a MiB of names."""

_NUMBERS = frozenset({int, float})


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
    find = shapes.find
    are_numbers = _NUMBERS.issuperset
    times: list[int] = []
    steps: list[float] = []
    line_shapes: list[NameShape] = []
    points: list[float] = []
    try:
        for value in values:
            data, time_ms, step = value["data"], value["time"], value["step"]
            names, items = (*data,), data.values()
            shape = find(names) or shapes.new_shape(names)
            if (
                shape is None
                or len(value) != 3
                or type(time_ms) is not int
                or not TIME_MS_MIN <= time_ms <= until_ms
                or type(step) not in _NUMBERS
                or not -STEP_ABS_MAX <= step <= STEP_ABS_MAX
            ):
                return None
            times.append(time_ms)
            steps.append(step)
            line_shapes.append(shape)
            points += items
    except (KeyError, TypeError, AttributeError):
        return None  # a field is missing, or something is not of the usual type
    # Booleans above all, which an array takes for 0 and 1.
    if not are_numbers(map(type, points)):
        return None
    return chunks_of_lines(tenant, project, run_id, times, steps, line_shapes, points)
