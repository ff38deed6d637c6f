"""Lines of metrics to columns: `{"time": ms, "step": number, "data": {name: value, ...}}`.

The hot path of the whole service. A line takes it when it has these three fields and no other, its
time and step are plain numbers in range, its keys are good, and its values are numbers: then its
cost is a tuple of keys, a look-up in the shape cache, and one `array` of its values. All other
lines are looked at value by value. The two give the same rows for the same line (a property test
holds them together).
"""

from __future__ import annotations

from array import array
from math import copysign, inf, nan
from typing import TYPE_CHECKING, Any

from ingest.decode_fields import (
    kind_of,
    problem_of_name,
    row_object,
    row_step,
    row_time,
)
from ingest.decode_rows import RowDecoder
from ingest.decode_shapes import PIECE_BYTES_MAX
from ingest.refusals import Reason, Refused, shown
from schema.limits import FRAME_BYTES_MAX, FRAME_ROWS_MAX, STEP_ABS_MAX, TIME_MS_MAX, TIME_MS_MIN
from schema.names import SHAPE_NAMES_MAX
from schema.rows import MetricsRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ingest.decode_frames import Frames
    from ingest.decode_rows import Tally
    from ingest.decode_shapes import ShapeCache
    from schema.names import NameShape

_BYTES_SURELY_LEFT = FRAME_BYTES_MAX - PIECE_BYTES_MAX - 2**18
"""Below it a frame has room for any piece; only above it is a piece's size looked at."""

_FIELDS = frozenset({"time", "step", "data"})
_NUMBERS = frozenset({int, float})
_NON_FINITE = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_EXPECTED = 'must be a number, null, "NaN", "Infinity" or "-Infinity"'
_LINE_BYTES = 64
"""More than a line's time, step, count and indices take."""


class MetricsDecoder(RowDecoder[MetricsRows]):
    """Rows of one request's metrics."""

    def __init__(self, frames: Frames[MetricsRows], shapes: ShapeCache, tally: Tally) -> None:
        super().__init__(frames, tally)
        self._shapes = shapes

    def add(self, lines: Iterable[tuple[int, Any]]) -> None:
        """Add lines; see `RowDecoder`."""
        are_numbers = _NUMBERS.issuperset
        find, new_shape = self._shapes.find, self._shapes.new_shape
        usual_until_ms = min(self._tally.future_from_ms, TIME_MS_MAX)
        rows = self._frames.rows
        for line, value in lines:
            try:
                data, time_ms, step = value["data"], value["time"], value["step"]
                names, items = tuple(data), [*data.values()]
                shape = find(names)
                if (
                    len(value) == 3
                    and type(time_ms) is int
                    and TIME_MS_MIN <= time_ms <= usual_until_ms
                    and type(step) in _NUMBERS
                    and -STEP_ABS_MAX <= step <= STEP_ABS_MAX
                    # Booleans above all, which an array takes for 0 and 1. A search of the body
                    # for "true" and "false" takes twice as long as this look at each value.
                    and are_numbers(map(type, items))
                    and (shape or (shape := new_shape(names)))
                ):
                    if (
                        rows.row_count + shape.count > FRAME_ROWS_MAX
                        or rows.byte_count > _BYTES_SURELY_LEFT
                    ):
                        rows = self._frames.room_for(shape.count, _size_of(shape))
                    rows.add_line(time_ms, step, shape, items)
                    continue
            except (KeyError, TypeError, AttributeError):
                # A field is missing, or something is not of the usual type: nothing was added.
                pass
            self._add_checked(line, value)
            rows = self._frames.rows

    def _add_checked(self, line: int, value: object) -> None:
        """Add what is good of a line; refuse the rest by name, or the line for its time or step."""
        tally = self._tally
        try:
            row = row_object(value)
            time_ms, step = row_time(row), row_step(row)
            data = _data_of(row, tally)
            tally.note_fields(row, _FIELDS)
        except Refused as refused:
            tally.refusals.add_refused(line, refused)
            return
        names: list[str] = []
        values = array("d")
        for name, item in data.items():
            if type(item) is float:
                number = item
            elif type(item) is int:
                number = _float_of(item)
            elif item is None:
                continue
            elif type(item) is str and item in _NON_FINITE:
                number = _NON_FINITE[item]
            else:
                self._refuse_value(line, name, item)
                continue
            problem = problem_of_name(name)
            if problem is not None:
                self._refuse(line, name, f"the name {problem}", Reason.NAME)
                continue
            names.append(name)
            values.append(number)
        start = 0
        for piece in _pieces(names):
            shape = self._shapes.shape(piece)
            end = start + shape.count
            rows = self._frames.room_for(shape.count, _size_of(shape))
            rows.add_line(time_ms, step, shape, values[start:end])
            start = end
        tally.note_time(time_ms, len(names))

    def _refuse(self, line: int, name: str, error: str, reason: Reason) -> None:
        self._tally.refusals.add(line, f"data.{shown(name)}", error, reason)

    def _refuse_value(self, line: int, name: str, item: object) -> None:
        refusals = self._tally.refusals
        if refusals.is_full:
            # A line of 600,000 such values took 3 s to find words for that nobody sees.
            refusals.add(line, "", "", Reason.VALUE)
        else:
            error = f"{_EXPECTED}, not {_shown_value(item)}"
            self._refuse(line, name, error, Reason.VALUE)


def _data_of(row: dict[str, Any], tally: Tally) -> dict[str, Any]:
    data = row.get("data")
    if type(data) is dict:
        return data
    if data is None and "message" in row:
        tally.misplaced = "/ingest/logs"
    if type(data) is str and "logName" in row:
        tally.misplaced = "/ingest/data"
    found = f"not {kind_of(data)}" if "data" in row else "but is missing"
    raise Refused("data", f"must be an object of metric names and numbers, {found}", Reason.FIELD)


def _pieces(names: list[str]) -> Iterator[tuple[str, ...]]:
    """The names in pieces that each fit a shape and a frame; one piece for any usual line."""
    if not names:
        return
    if len(names) <= SHAPE_NAMES_MAX and sum(map(len, names)) * 8 <= PIECE_BYTES_MAX:
        yield tuple(names)
        return
    piece: list[str] = []
    size = 0
    for name in names:
        length = 2 * len(name.encode())  # the name, and a group that is nearly as long
        if piece and (len(piece) == SHAPE_NAMES_MAX or size + length > PIECE_BYTES_MAX):
            yield tuple(piece)
            piece.clear()
            size = 0
        piece.append(name)
        size += length
    yield tuple(piece)


def _size_of(shape: NameShape) -> int:
    """An upper bound of what a line of this shape adds to a frame."""
    return _LINE_BYTES + len(shape.names) + 8 * shape.count


def _float_of(number: int) -> float:
    """The nearest float64; what is beyond its range is infinite, as 1e999 is."""
    try:
        return float(number)
    except OverflowError:
        return copysign(inf, number)


def _shown_value(item: object) -> str:
    return f"the string {shown(item)!r}" if type(item) is str else kind_of(item)
