"""Finding the rows of a batch that the table refuses, in few inserts and with a place on disk.

The batch is worked through from its first row on. Rows below ``next_row`` are settled: inserted or
quarantined. The next try is ``[next_row, try_end)``:

* taken: all of it is settled; go on behind it;
* refused: a bad row is in it, so halve it (or cut it where the server says the bad row is);
* refused and one row long: that row is alone; quarantine it and try all that is left at once.

A bad row among 200,000 costs at most 20 inserts, and 3 where the server names the row. Every try
is a block with a number of its own, stored in the checkpoint before it is sent, like a batch's
bounds.

Rejected: the two halves as a tree walk. It sends each refused range's other half by itself, and
takes 36 inserts for one bad row of 200,000.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from buffer.batch import RowSpan
from buffer.checkpoint import Bisection

if TYPE_CHECKING:
    from buffer.checkpoint import Pending

INSERTS_MAX = 64
"""Tries of one bisection; after them it is the operator's."""

BAD_FRAMES_MAX = 8
"""More requests than this do not go wrong at once by themselves: the table is what is wrong."""

SHARE_ROWS_MIN = 17
"""From so many rows on, half of a batch bad means the table. Of fewer, half is soon reached: a bad
row that comes alone is all of its batch, and would hold up for ever what comes behind it."""


def span_of(pending: Pending) -> RowSpan:
    """The rows of the next try."""
    path = pending.path
    if path is None:
        return RowSpan(0, pending.rows)
    return RowSpan(path.next_row, path.try_end)


def is_last(pending: Pending) -> bool:
    """Whether nothing of the batch is left behind the next try."""
    return span_of(pending).end >= pending.rows


def is_exhausted(pending: Pending) -> bool:
    """Whether all tries are used up: what is left is sent whole, and waits for the operator."""
    return pending.path is not None and pending.path.inserts >= INSERTS_MAX


def counted(path: Bisection, rows: int) -> Bisection:
    """The place with one more insert, stored before it is sent; the last is all the rest."""
    if path.inserts + 1 < INSERTS_MAX:
        return replace(path, inserts=path.inserts + 1)
    return replace(path, inserts=INSERTS_MAX, try_end=rows, bad_end=0)


def begun(pending: Pending) -> Bisection:
    """The place of a batch that was refused whole."""
    return Bisection(
        next_row=0, try_end=pending.rows, bad_end=0, inserts=1, bad_rows=0, bad_frames=0
    )


def after_taken(path: Bisection, rows: int) -> Bisection | None:
    """The place after the range tried is stored; None when the batch is settled."""
    if path.try_end >= rows:
        return None
    if path.bad_end > path.try_end:  # the bad row is known to be in what is left of a refused range
        return replace(path, next_row=path.try_end, try_end=_half(path.try_end, path.bad_end))
    return replace(path, next_row=path.try_end, try_end=rows, bad_end=0)


def after_refused(path: Bisection, bad_row: int | None) -> Bisection | None:
    """The place after the range tried was refused; None when it is one row, and that row is bad.

    Args:
        path: the place of the try.
        bad_row: index in the batch of the row that the server named; a hint, believed only as to
            where to cut: the row is tried alone before it is quarantined.
    """
    if path.try_end - path.next_row <= 1:
        return None
    bad_end = path.try_end
    try_end = _half(path.next_row, bad_end)
    if bad_row is not None and path.next_row <= bad_row < bad_end:
        bad_end = bad_row + 1
        try_end = max(bad_row, path.next_row + 1)
    return replace(path, try_end=try_end, bad_end=bad_end)


def after_quarantine(path: Bisection, rows: int, *, is_new_frame: bool) -> Bisection | None:
    """The place after the row tried alone is set aside; None when the batch is settled."""
    next_row = path.try_end
    if next_row >= rows:
        return None
    return replace(
        path,
        next_row=next_row,
        try_end=rows,
        bad_end=0,
        bad_rows=path.bad_rows + 1,
        bad_frames=path.bad_frames + is_new_frame,
    )


def looks_like_the_table(path: Bisection, rows: int, *, is_new_frame: bool, in_a_row: int) -> bool:
    """Whether one more bad row makes too many: it stays, and the operator is asked.

    Args:
        path: the place of the try, one row long.
        rows: of the batch.
        is_new_frame: the row is of another frame than the last one set aside.
        in_a_row: frames set aside since the table last took a row, in this batch and in those
            before: small batches, each bad, are the table as well.
    """
    if max(path.bad_frames, in_a_row) + is_new_frame > BAD_FRAMES_MAX:
        return True
    return rows >= SHARE_ROWS_MIN and 2 * (path.bad_rows + 1) >= rows


def _half(first: int, end: int) -> int:
    """End of the first half, at least one row long."""
    return first + max((end - first) // 2, 1)
