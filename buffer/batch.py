"""A batch: an LSN range of one table's frames, and the names under which its blocks are sent.

=============  ===============================================================================
name           made of
=============  ===============================================================================
token          ``shard:first-last:table:digest:generation``; the digest covers the payload CRCs
               of the block's frames, the block's number, the row range, and the rows that are
               left out of it
block number   shard tag in the upper 32 bits, the table's counter below; the column ``batch``
query id       ``charon-shard-table-counter-generation``: known again after a restart
=============  ===============================================================================

Same rows, same token; other rows, another token. A server that sees a token twice drops the second
block without a word, so a token must never be used for rows other than its first ones.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from schema.ids import BlockNumber

if TYPE_CHECKING:
    from collections.abc import Sequence

    from buffer.checkpoint import Pending
    from buffer.frames import Frames

COUNTER_MAX = 2**32 - 1
"""Blocks of one table in one shard. At one a second, 136 years."""


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Rows [first, end) of a batch, counted over its frames in LSN order."""

    first: int
    end: int

    @property
    def count(self) -> int:
        """How many rows."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class BlockNames:
    """What one block is sent under."""

    token: str
    query_id: str
    number: BlockNumber


GENERATION_STEP_MAX = 1_024


def block_number(tag: int, counter: int) -> BlockNumber:
    """The value of the column ``batch``: tag (32 bits) above, counter (32 bits) below."""
    assert 0 <= tag < 2**32, f"a shard's tag is 32 bits, not {tag}"
    assert 0 < counter <= COUNTER_MAX, f"block counter {counter} is out of range"
    return BlockNumber(tag << 32 | counter)


def names_of(
    shard: str,
    table: str,
    pending: Pending,
    frames: Frames,
    span: RowSpan,
    left_out: Sequence[int],
) -> BlockNames:
    """The names of one block of a batch, a pure function of what it holds.

    Args:
        shard: the shard's id, hex.
        table: the table's name.
        pending: the batch's bounds, and its place in a bisection.
        frames: all frames of the batch.
        span: the rows sent; the whole batch unless it is being bisected.
        left_out: ascending row indices within the span that are not sent.
    """
    digest = hashlib.blake2b(digest_size=8)
    digest.update(frames.proofs)
    # A checkpoint slot that rotted may have said that this batch's token was noted without a part:
    # what is sent in its stead has another number (`Checkpoint._mend`), so it has another token.
    if pending.is_numbered:
        digest.update(pending.number.to_bytes(8, "little"))
    if span != RowSpan(0, pending.rows):
        digest.update(f"rows {span.first}-{span.end}".encode())
    if left_out:
        digest.update(f"without {','.join(map(str, left_out))}".encode())
    generation = pending.generation
    return BlockNames(
        token=f"{shard}:{pending.first}-{pending.last}:{table}:{digest.hexdigest()}:{generation}",
        query_id=query_id_of(shard, table, pending),
        number=pending.number,
    )


def query_id_of(shard: str, table: str, pending: Pending) -> str:
    """The id under which this block's inserts run; the same at every try of a generation."""
    counter = pending.number & COUNTER_MAX
    return f"charon-{shard}-{table}-{counter}-{pending.generation}"


def raised(pending: Pending, chance: float) -> Pending:
    """The same batch under a later generation: for rows that are proved to be absent.

    Args:
        pending: the batch.
        chance: in [0, 1), draws one of the next 1,024. Where the checkpoint's slot with the last
            one has rotted, it must not be given again: its token may be noted without a part.
    """
    return replace(pending, generation=pending.generation + 1 + int(chance * GENERATION_STEP_MAX))
