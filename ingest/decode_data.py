"""Structured data to columns.

A line is `{"time": ms, "step": n, "logName": text, "dataType": text, "data": text}`, and a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingest.decode_fields import row_name, row_object, row_step, row_text, row_time
from ingest.decode_rows import RowDecoder
from ingest.refusals import Refused
from schema.rows import DataRows

if TYPE_CHECKING:
    from collections.abc import Iterable


_FIELDS = frozenset({"time", "step", "logName", "dataType", "data"})
_ROW_BYTES = 128


class DataDecoder(RowDecoder[DataRows]):
    """Rows of one request's structured data."""

    def add(self, lines: Iterable[tuple[int, Any]]) -> None:
        """Add lines; see `RowDecoder`. A row has one refusal at most: its first bad field."""
        tally = self._tally
        for line, value in lines:
            try:
                row = row_object(value)
                time_ms, step = row_time(row), row_step(row)
                if type(row.get("data")) is dict and "dataType" not in row:
                    tally.misplaced = "/ingest/metrics"
                data = row_text(row, "data")
                data_type = row_name(row, "dataType")
                log_name = row_name(row, "logName")
                tally.note_fields(row, _FIELDS)
            except Refused as refused:
                tally.refusals.add_refused(line, refused)
                continue
            size = _ROW_BYTES + 8 * len(log_name) + 4 * len(data_type) + _utf8_bytes_max(data)
            self._frames.room_for(1, size).add(time_ms, step, log_name, data_type, data)
            tally.note_time(time_ms, 1)


def _utf8_bytes_max(text: str) -> int:
    """An upper bound of a text's UTF-8 size, without encoding it."""
    return len(text) if text.isascii() else 4 * len(text)
