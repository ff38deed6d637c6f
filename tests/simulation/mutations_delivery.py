"""Defects of delivery: checkpoint, tokens, doubts, what is set aside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import buffer.batch
import buffer.log
import buffer.opening
import buffer.reader
import buffer.segment
import buffer.sender
from buffer.checkpoint import Checkpoint
from buffer.fs import write_all
from buffer.lsn import Lsn
from buffer.sender import Sender
from tests.simulation.clickhouse import ModelSink

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def checkpoint_before_the_answer() -> AbstractContextManager[Any]:
    """A batch is delivered before it is inserted."""
    insert = Sender._insert

    async def early(self: Sender, pending: Any, *args: Any) -> None:
        if pending.path is None:
            delivered = max(self._after_batch, Lsn(pending.last + 1))
            await self._store(replace(self.state, delivered=delivered, pending=None))
        await insert(self, pending, *args)

    return patch.object(Sender, "_insert", early)


def bounds_after_the_first_try() -> AbstractContextManager[Any]:
    """A batch's bounds are in memory alone when it is first sent."""
    store = Checkpoint.store

    async def lazy(self: Checkpoint, kind: Any, state: Any) -> None:
        if state.pending is not None and state.pending.generation == 0:
            self._stored[kind] = state
        else:
            await store(self, kind, state)

    return patch.object(Checkpoint, "store", lazy)


def checkpoint_without_a_sync() -> AbstractContextManager[Any]:
    """A table's state is written and not synced."""

    def write(self: Checkpoint, slot: bytes, sequence: int) -> None:
        write_all(self._fs, self._fd, [slot], sequence % 2 * 4_096)

    return patch.object(Checkpoint, "_write", write)


def one_slot_for_all() -> AbstractContextManager[Any]:
    """The checkpoint overwrites the only state there is."""

    def write(self: Checkpoint, slot: bytes, sequence: int) -> None:
        write_all(self._fs, self._fd, [slot, bytes(4_096)], 0)
        self._fs.fdatasync(self._fd)

    return patch.object(Checkpoint, "_write", write)


def token_without_digest() -> AbstractContextManager[Any]:
    """A token names bounds, and not what is in them."""
    names_of = buffer.batch.names_of

    def bare(*args: Any) -> Any:
        names = names_of(*args)
        shard, bounds, table, _, generation = names.token.split(":")
        return replace(names, token=f"{shard}:{bounds}:{table}:{generation}")

    return patch.object(buffer.sender, "names_of", bare)


def drop_the_generation() -> AbstractContextManager[Any]:
    """A block that is not there is sent again under the same token."""
    return patch.object(buffer.sender, "raised", lambda pending, chance: pending)


def believe_a_later_success() -> AbstractContextManager[Any]:
    """After an unknown outcome nobody asks whether the block is there: the next 200 settles it."""

    async def trusting(self: Sender, pending: Any, live: Any, doubt: Any) -> None:
        self._doubt = None

    return patch.object(Sender, "_settle", trusting)


def skip_has_batch() -> AbstractContextManager[Any]:
    """After an unknown outcome a block is taken for absent."""

    async def absent(self: ModelSink, layout: Any, number: Any) -> bool:
        return False

    return patch.object(ModelSink, "has_batch", absent)


def assume_stored() -> AbstractContextManager[Any]:
    """After an unknown outcome a block is taken for stored."""

    async def there(self: ModelSink, layout: Any, number: Any) -> bool:
        return True

    return patch.object(ModelSink, "has_batch", there)


def do_not_settle() -> AbstractContextManager[Any]:
    """A query whose answer did not come may still run when the block is looked for."""

    async def settle(self: ModelSink, query_id: str) -> None:
        return

    return patch.object(ModelSink, "settle", settle)


def change_bounds() -> AbstractContextManager[Any]:
    """A start makes a new batch of what was pending."""

    async def resume(self: Sender) -> None:
        self._live, self._frames, self._doubt = None, None, None
        if self.state.pending is not None:
            await self._store(replace(self.state, pending=None))

    return patch.object(Sender, "resume", resume)


def reuse_a_block_number() -> AbstractContextManager[Any]:
    """Two batches have one number in the column ``batch``."""

    async def fix(self: Sender, pending: Any) -> None:
        number = self.state.next_number
        await self._store(replace(self.state, next_number=number, pending=pending))

    return patch.object(Sender, "_fix", fix)


def lose_rows_that_are_refused() -> AbstractContextManager[Any]:
    """Rows that the table refuses are left out, and not set aside."""

    async def put(self: Sender, *args: Any) -> None:
        return

    return patch.object(Sender, "_put", put)


def no_doubt_at_a_start() -> AbstractContextManager[Any]:
    """A batch that is pending at a start is sent as if it had never been tried."""
    resume = Sender.resume

    async def sure(self: Sender) -> None:
        deliver = self._deliver

        async def without_doubt() -> None:
            self._doubt = None
            await deliver()

        with patch.object(self, "_deliver", without_doubt):
            await resume(self)

    return patch.object(Sender, "resume", sure)
