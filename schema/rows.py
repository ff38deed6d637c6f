"""Builders: rows in, a frame's chunks out. They run on the request path: no object is made a row.

A builder belongs to one request, stream, tenant, project and run. The caller looks at ``row_count``
and ``byte_count`` and starts another builder before FRAME_ROWS_MAX or FRAME_BYTES_MAX is passed.
Values come checked: integers in the column's range, text without lone surrogates. A value that does
not fit raises (`OverflowError`, `TypeError`, `ValueError`) and leaves the builder as it was.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from schema.bodies import GROUPS_BODY, Labels, Names, OptionalTexts, runs_body, shapes_body
from schema.columns import Chunks, Encoding, pack_payload
from schema.names import NameShape, name_shape
from schema.streams import StreamKind
from schema.varint import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from schema.ids import RunId, TenantId

__all__ = ["DataRows", "FilesRows", "LogsRows", "MetricsRows", "NameShape", "name_shape"]

_HEAD_BYTES = 128
"""More than the payload's head and the heads of all its columns take."""
_ROW_BYTES = 64
"""More than the fixed-width columns, indices and lengths of a row of logs, data or files take."""
_UINT64_END = 2**64
_UINT32_END = 2**32


class _Rows:
    """What every builder has: whose rows they are, and how many.

    Attributes:
        row_count: rows added.
        byte_count: an upper bound of the payload's size, in bytes. Both are for reading only.
    """

    __slots__ = ("_project", "_run_id", "_tenant", "byte_count", "row_count")

    KIND: StreamKind

    def __init__(self, tenant: TenantId, project: str, run_id: RunId) -> None:
        self._tenant = tenant
        self._project = project
        self._run_id = run_id
        self.row_count = 0
        self.byte_count = _HEAD_BYTES

    def _chunks(
        self,
        counts: Sequence[int] | None,
        bodies: Sequence[tuple[Encoding, Sequence[bytes]]],
    ) -> Chunks:
        payload = pack_payload(counts, bodies)
        return Chunks(self.KIND, self._tenant, self._project, self._run_id, self.row_count, payload)


class MetricsRows(_Rows):
    """Metrics: a line is one time, one step and a value for each of its names."""

    __slots__ = ("_counts", "_indices", "_places", "_steps", "_times", "_values")

    KIND = StreamKind.METRICS

    def __init__(self, tenant: TenantId, project: str, run_id: RunId) -> None:
        super().__init__(tenant, project, run_id)
        self._times = array("q")
        self._steps = array("d")
        self._values = array("d")
        self._counts = array("I")
        self._indices = array("I")
        self._places: dict[NameShape, int] = {}

    def add_line(
        self, time_ms: int, step: float, shape: NameShape, values: Iterable[float]
    ) -> None:
        """Add a line: so many rows as the shape has names.

        Args:
            time_ms: milliseconds since 1970, as sent.
            step: finite; -0.0 is stored as 0.
            shape: at least one name; made by `name_shape`, the same object for the same keys.
            values: as many as the shape has names, in its order; any float, NaN and infinities too.

        Raises:
            ValueError: another number of values than names.
        """
        added = array("d", values)
        count = shape.count
        if len(added) != count or not count:
            raise ValueError(f"{len(added)} values for {count} names")
        step = step + 0.0  # -0.0 becomes 0.0: one step, one identity
        self._times.append(time_ms)
        self._steps.append(step)
        places = self._places
        place = places.get(shape)
        if place is None:
            place = places[shape] = len(places)
            self.byte_count += len(shape.names) + 8
        self._indices.append(place)
        self._counts.append(count)
        self._values += added
        self.row_count += count
        self.byte_count += 28 + 8 * count

    def finish(self) -> Chunks:
        """The frame's chunks."""
        has_counts = self.row_count != len(self._counts)
        shapes = list(self._places)
        bodies = (
            GROUPS_BODY,
            shapes_body([shape.names for shape in shapes], self._indices),
            runs_body(self._times, has_counts=has_counts),
            runs_body(self._steps, has_counts=has_counts),
            (Encoding.PLAIN, [self._values.tobytes()]),
        )
        return self._chunks(self._counts if has_counts else None, bodies)


class LogsRows(_Rows):
    """Console lines."""

    __slots__ = ("_line_numbers", "_messages", "_times", "_types")

    KIND = StreamKind.LOGS

    def __init__(self, tenant: TenantId, project: str, run_id: RunId) -> None:
        super().__init__(tenant, project, run_id)
        self._types = Labels()
        self._times = array("q")
        self._line_numbers = array("Q")
        self._messages: list[bytes] = []

    def add(self, time_ms: int, log_type: str, line_number: int, message: str) -> None:
        """Add a row; 0 <= line_number < 2**64."""
        label, piece = text(log_type), text(message)
        if not 0 <= line_number < _UINT64_END:
            raise OverflowError(f"line number {line_number} is outside of 64 bits")
        self._times.append(time_ms)
        self._line_numbers.append(line_number)
        self._types.add(label)
        self._messages.append(piece)
        self.row_count += 1
        self.byte_count += _ROW_BYTES + len(label) + len(piece)

    def finish(self) -> Chunks:
        """The frame's chunks."""
        bodies = (
            self._types.body(),
            (Encoding.PLAIN, [self._times.tobytes()]),
            (Encoding.PLAIN, [self._line_numbers.tobytes()]),
            (Encoding.PLAIN, self._messages),
        )
        return self._chunks(None, bodies)


class DataRows(_Rows):
    """Structured data: histograms, tables, string series, as their JSON text."""

    __slots__ = ("_data", "_names", "_steps", "_times", "_types")

    KIND = StreamKind.DATA

    def __init__(self, tenant: TenantId, project: str, run_id: RunId) -> None:
        super().__init__(tenant, project, run_id)
        self._names = Names()
        self._types = Labels()
        self._times = array("q")
        self._steps = array("d")
        self._data: list[bytes] = []

    def add(self, time_ms: int, step: float, log_name: str, data_type: str, data: str) -> None:
        """Add a row; the step is finite, and -0.0 is stored as 0."""
        name = text(log_name)
        label, piece = text(data_type), text(data)
        step = step + 0.0
        self._times.append(time_ms)
        self._steps.append(step)
        self._names.add(name)
        self._types.add(label)
        self._data.append(piece)
        self.row_count += 1
        self.byte_count += _ROW_BYTES + len(name) + len(label) + len(piece)

    def finish(self) -> Chunks:
        """The frame's chunks."""
        bodies = (
            *self._names.bodies(),
            self._types.body(),
            (Encoding.PLAIN, [self._times.tobytes()]),
            (Encoding.PLAIN, [self._steps.tobytes()]),
            (Encoding.PLAIN, self._data),
        )
        return self._chunks(None, bodies)


class FilesRows(_Rows):
    """Records of files; the bytes of a file go elsewhere."""

    __slots__ = (
        *("_annotations", "_captions", "_file_names", "_file_types", "_names"),
        *("_sample_indices", "_sizes", "_steps", "_times"),
    )

    KIND = StreamKind.FILES

    def __init__(self, tenant: TenantId, project: str, run_id: RunId) -> None:
        super().__init__(tenant, project, run_id)
        self._times = array("q")
        self._steps = array("d")
        self._names = Names()
        self._file_names: list[bytes] = []
        self._file_types = Labels()
        self._sizes = array("Q")
        self._captions = OptionalTexts()
        self._sample_indices = array("I")
        self._annotations = OptionalTexts()

    def add(  # noqa: PLR0917 - the columns of the table, in their order
        self,
        time_ms: int,
        step: float,
        log_name: str,
        file_name: str,
        file_type: str,
        file_size: int,
        caption: str | None,
        sample_index: int,
        annotations: str | None,
    ) -> None:
        """Add a row; 0 <= file_size < 2**64 bytes, 0 <= sample_index < 2**32."""
        name = text(log_name)
        file_piece, label = text(file_name), text(file_type)
        caption_piece = None if caption is None else text(caption)
        annotations_piece = None if annotations is None else text(annotations)
        if not (0 <= file_size < _UINT64_END and 0 <= sample_index < _UINT32_END):
            raise OverflowError(f"size {file_size} or index {sample_index} is out of range")
        step = step + 0.0
        self._times.append(time_ms)
        self._steps.append(step)
        self._names.add(name)
        self._file_names.append(file_piece)
        self._file_types.add(label)
        self._sizes.append(file_size)
        self._captions.add(caption_piece)
        self._sample_indices.append(sample_index)
        self._annotations.add(annotations_piece)
        self.row_count += 1
        self.byte_count += _ROW_BYTES + sum(
            map(
                len,
                (name, file_piece, label, caption_piece or b"", annotations_piece or b""),
            )
        )

    def finish(self) -> Chunks:
        """The frame's chunks."""
        bodies = (
            (Encoding.PLAIN, [self._times.tobytes()]),
            (Encoding.PLAIN, [self._steps.tobytes()]),
            *self._names.bodies(),
            (Encoding.PLAIN, self._file_names),
            self._file_types.body(),
            (Encoding.PLAIN, [self._sizes.tobytes()]),
            self._captions.body(),
            (Encoding.PLAIN, [self._sample_indices.tobytes()]),
            self._annotations.body(),
        )
        return self._chunks(None, bodies)
