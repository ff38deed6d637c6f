"""Which segments may go: those that every table is past, but for what the repeat window needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from buffer.lsn import Lsn
    from buffer.options import BufferOptions
    from buffer.segment import SegmentView

KEPT_SHARE = 8
"""At most this part of the log's cap is kept: a small log must not be full of what is delivered."""


def delivered_count(views: Sequence[SegmentView], delivered: Lsn) -> int:
    """How many segments, from the oldest on, end at or below ``delivered``.

    Never the newest: its name says which LSNs have been given.
    """
    return sum(successor.first_lsn <= delivered for successor in views[1:])


def kept_count(
    views: Sequence[SegmentView], delivered: int, now_ns: int, options: BufferOptions
) -> int:
    """How many of the first ``delivered`` segments, from their end on, the repeat window needs."""
    since_ns = now_ns - int(options.repeat_seconds * 1e9)
    room = min(options.repeat_log_bytes_max, options.log_bytes_max // KEPT_SHARE)
    count = 0
    for view, successor in zip(
        reversed(views[:delivered]), reversed(views[1 : delivered + 1]), strict=True
    ):
        room -= view.good_bytes
        # Its frames were received before its successor was made.
        is_young = successor.header is None or successor.header.created_at_ns > since_ns
        if room < 0 or not is_young:
            break
        count += 1
    return count
