"""Console lines to columns.

A line is `{"time": ms, "message": text, "lineNumber": n, "logType": text}`, and a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingest.decode_fields import row_name, row_object, row_text, row_time, row_uint64
from ingest.decode_rows import RowDecoder
from ingest.refusals import Refused
from schema.rows import LogsRows

if TYPE_CHECKING:
    from collections.abc import Iterable


_FIELDS = frozenset({"time", "message", "lineNumber", "logType"})
_ROW_BYTES = 128


class LogsDecoder(RowDecoder[LogsRows]):
    """Rows of one request's console lines."""

    def add(self, lines: Iterable[tuple[int, Any]]) -> None:
        """Add lines; see `RowDecoder`. A row has one refusal at most: its first bad field."""
        tally = self._tally
        for line, value in lines:
            try:
                row = row_object(value)
                time_ms = row_time(row)
                if "message" not in row and type(row.get("data")) is dict:
                    tally.misplaced = "/ingest/metrics"
                message = row_text(row, "message")
                line_number = row_uint64(row, "lineNumber")
                log_type = row_name(row, "logType")
                tally.note_fields(row, _FIELDS)
            except Refused as refused:
                tally.refusals.add_refused(line, refused)
                continue
            size = _ROW_BYTES + 4 * (len(message) + len(log_type))
            self._frames.room_for(1, size).add(time_ms, log_type, line_number, message)
            tally.note_time(time_ms, 1)
