"""A request's body to columns: lines cut, parsed, checked and encoded, without HTTP.

Feed slices as they come; a caller with a large body yields to its event loop between slices. Memory
is what the accepted rows take as columns (no more than about twice their JSON), one unfinished
line, and one parsed slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ingest.decode_data import DataDecoder
from ingest.decode_frames import Frames
from ingest.decode_hints import hint_of
from ingest.decode_hopeless import without_hopeless
from ingest.decode_json import parse_block, parse_lines
from ingest.decode_lines import START_BYTES, LineCutter, LongLine
from ingest.decode_logs import LogsDecoder
from ingest.decode_metrics import MetricsDecoder
from ingest.decode_quick import quick_metrics
from ingest.decode_rows import DAY_MS, Tally
from ingest.decode_shapes import ShapeCache
from ingest.refusals import WHOLE_LINE, LineError, Reason
from ingest.refused_ring import LINE_BYTES_KEPT
from schema.limits import LINE_BYTES_MAX
from schema.rows import DataRows, LogsRows, MetricsRows
from schema.streams import StreamKind

if TYPE_CHECKING:
    from ingest.decode_lines import Block
    from ingest.decode_rows import RowDecoder
    from schema.columns import Chunks
    from schema.ids import RunId, TenantId

__all__ = ["Decoded", "Decoder", "LineError", "ShapeCache", "decode_whole"]


class Decoded(NamedTuple):
    """What a body came to.

    Attributes:
        chunks: the accepted rows, one entry a frame; empty when nothing was accepted.
        accepted: rows in `chunks`.
        rejected: refusals: values, names, or whole lines.
        errors: the first 20 refusals, in the order of their lines.
        unknown_fields: fields that were ignored, over all lines that were not refused.
        future_rows: accepted rows whose time is more than a day ahead.
        hint: what seems wrong, when nothing was accepted.
        refused_lines: how the line of each of `errors` starts, as it came.
    """

    chunks: tuple[Chunks, ...]
    accepted: int
    rejected: int
    errors: tuple[LineError, ...]
    unknown_fields: int
    future_rows: int
    hint: str | None
    refused_lines: tuple[bytes, ...] = ()


class Decoder:
    """Decodes one request's body.

    Args:
        now_ms: the wall clock, to tell which rows are more than a day ahead.
        shapes: the worker's one cache.
        strict: any refusal means that nothing is stored: no chunks, nothing accepted.

    Raises:
        ValueError: a kind that does not come in lines.
    """

    def __init__(
        self,
        kind: StreamKind,
        tenant: TenantId,
        project: str,
        run_id: RunId,
        *,
        now_ms: int,
        shapes: ShapeCache,
        strict: bool = False,
    ) -> None:
        self._tally = Tally(future_from_ms=now_ms + DAY_MS)
        self._strict = strict
        self._lines = LineCutter()
        self._start = b""
        self._refused_lines: list[bytes] = []
        self._has_ended = False
        self._rows: RowDecoder[Any]
        if kind is StreamKind.METRICS:
            metrics = Frames(lambda: MetricsRows(tenant, project, run_id))
            self._rows = MetricsDecoder(metrics, shapes, self._tally)
        elif kind is StreamKind.LOGS:
            logs = Frames(lambda: LogsRows(tenant, project, run_id))
            self._rows = LogsDecoder(logs, self._tally)
        elif kind is StreamKind.DATA:
            data = Frames(lambda: DataRows(tenant, project, run_id))
            self._rows = DataDecoder(data, self._tally)
        else:
            raise ValueError(f"{kind.name} do not come in lines")

    def feed(self, slice_: bytes, *, is_last: bool = False) -> None:
        """Decode what this slice completes.

        Args:
            slice_: the next bytes of the body, cut anywhere. 256 KiB take about 2 ms of usual
                lines, and 30 ms of the costliest.
            is_last: nothing follows: saves a call for a last line without a newline.
        """
        self._has_ended = is_last
        for block in self._lines.cut(slice_, is_last=is_last):
            if not self._start:
                self._start = _start_of(block)
            if isinstance(block, LongLine):
                message = f"longer than {LINE_BYTES_MAX:,} bytes; send it in several lines"
                self._tally.refusals.add(block.line, WHOLE_LINE, message, Reason.TOO_LONG)
            else:
                self._decode(block)
            self._keep_refused(block)

    def finish(self) -> Decoded:
        """The outcome; the decoder is used up."""
        if not self._has_ended:
            self.feed(b"", is_last=True)
        refusals = self._tally.refusals
        is_stored = not (self._strict and refusals.count)
        accepted = self._rows.row_count if is_stored else 0
        return Decoded(
            chunks=self._rows.finish() if is_stored else (),
            accepted=accepted,
            rejected=refusals.count,
            errors=tuple(refusals.errors),
            unknown_fields=self._tally.unknown_fields,
            future_rows=self._tally.future_rows if is_stored else 0,
            refused_lines=tuple(self._refused_lines),
            hint=None if self._rows.row_count else hint_of(self._start, self._tally),
        )

    def _keep_refused(self, block: Block | LongLine) -> None:
        """Keep how the lines start of which this block brought refusals that are told."""
        for error in self._tally.refusals.errors[len(self._refused_lines) :]:
            if isinstance(block, LongLine):
                line = block.start
            else:
                line = block.lines[error.line - block.first_line]
            self._refused_lines.append(line[:LINE_BYTES_KEPT])

    def _decode(self, block: Block) -> None:
        refusals = self._tally.refusals
        for part in without_hopeless(block, refusals):
            values = parse_block(part)
            if values is not None:
                self._rows.add(enumerate(values, part.first_line))
            else:
                self._rows.add(parse_lines(part, refusals))


def decode_whole(
    body: bytes,
    kind: StreamKind,
    tenant: TenantId,
    project: str,
    run_id: RunId,
    *,
    now_ms: int,
    shapes: ShapeCache,
    strict: bool = False,
) -> Decoded:
    """Decode a body that is all there: an ordinary one of metrics quickly, else by a `Decoder`."""
    if kind is StreamKind.METRICS:
        chunks = quick_metrics(body, tenant, project, run_id, now_ms=now_ms, shapes=shapes)
        if chunks is not None:
            return Decoded((chunks,), chunks.row_count, 0, (), 0, 0, None)
    decoder = Decoder(kind, tenant, project, run_id, now_ms=now_ms, shapes=shapes, strict=strict)
    decoder.feed(body, is_last=True)
    return decoder.finish()


def _start_of(block: Block | LongLine) -> bytes:
    """How the first line that is not blank begins."""
    if isinstance(block, LongLine):
        return block.start.strip()
    return next(filter(None, map(bytes.strip, block.lines)), b"")[:START_BYTES]
