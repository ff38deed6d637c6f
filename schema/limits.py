"""Hard bounds of a frame, shared by those who make frames and those who store them.

Source: the project's design: a frame holds one request's rows for one table, at most
65,536 of them and 4 MiB.
"""

from __future__ import annotations

FRAME_ROWS_MAX = 65_536
FRAME_BYTES_MAX = 4 * 2**20
"""Payload bytes of one frame. A larger single row (a log line, a value) has a frame of its own."""

LINE_BYTES_MAX = 8 * 2**20
"""One line of a request; a longer one is refused by itself."""

ROW_FRAME_BYTES_MAX = LINE_BYTES_MAX + 2**20
"""What a frame of one oversized row may reach: a whole line and what its other columns take."""

STEP_ABS_MAX = 2.0**53
"""Largest |step|: beyond it a float64 does not hold every integer."""

TIME_MS_MIN = 10**11
"""Row times below this look like seconds and are refused (10**11 ms is March 1973)."""

TIME_MS_MAX = 10_413_791_999_999
"""2299-12-31 23:59:59.999 UTC, the last millisecond that DateTime64(3) holds."""
