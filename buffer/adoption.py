"""Shards that nobody holds are drained by a worker that lives, and removed.

A worker that died is started again within moments and takes its shard back. A shard whose lock has
been free for ten seconds has lost its worker: fewer workers are configured now, or one does not
come up. Nothing is appended to an adopted shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from buffer.delivery import Delivery
from buffer.errors import BufferFailure, ShardTaken
from buffer.opening import open_shard
from buffer.resend import Resender
from buffer.shard import RESEND_NAME, Shard, list_free

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from buffer.opening import OpenShard, Storage
    from buffer.statistics import TableStatistics, TaskStatistics
    from buffer.surroundings import Surroundings

_log = structlog.get_logger()

FREE_SECONDS = 10.0
LOOK_SECONDS = 2.0
ADOPTED_MAX = 2
"""At a time: each holds a batch a table in memory."""


class Adoption:
    """Looks for orphans and drains them; `run` is a task of the owner's."""

    def __init__(self, own: OpenShard, storage: Storage, around: Surroundings) -> None:
        self._own = own
        self._storage = storage
        self._around = around
        self._free_since: dict[Path, float] = {}
        self._draining: dict[Path, tuple[OpenShard, Delivery]] = {}
        self._given_up: set[Path] = set()

    async def run(self) -> None:
        """Looks every two seconds, until cancelled.

        Cancellation: what is being drained goes on; `close` ends it.
        """
        while True:
            await self._remove_drained()
            await self._look()
            await self._storage.clock.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        """Stops draining; the shards are left for whoever looks next."""
        for path in list(self._draining):
            shard, delivery = self._draining.pop(path)
            delivery.terminate()
            await delivery.wait()
            await shard.close()

    def terminate(self) -> None:
        """Ends the tasks without waiting."""
        for _, delivery in self._draining.values():
            delivery.terminate()

    def statistics(self) -> Mapping[str, Mapping[str, TableStatistics]]:
        """The tables of each shard that is being drained, by the shard's id."""
        return {shard.name: delivery.statistics() for shard, delivery in self._draining.values()}

    def tasks(self) -> tuple[TaskStatistics, ...]:
        """The tasks of all of them."""
        return tuple(task for _, delivery in self._draining.values() for task in delivery.tasks())

    async def _look(self) -> None:
        storage = self._storage
        try:
            free = await self._own.threads.side.run(list_free, storage.fs, storage.root)
        except OSError:  # a shard was removed between the listing and the look at its lock
            return
        now = storage.clock.monotonic()
        self._free_since = {path: self._free_since.get(path, now) for path in free}
        for path, since in self._free_since.items():
            is_due = now - since >= FREE_SECONDS and path not in self._given_up
            if is_due and len(self._draining) < ADOPTED_MAX:
                await self._adopt(path)

    async def _adopt(self, path: Path) -> None:
        try:
            lock = await self._own.threads.side.run(Shard.claim, self._storage.fs, path)
            shard = await open_shard(self._storage, lock)
        except ShardTaken:
            return
        except OSError as error:  # the disk, now: tried again after the same while
            self._free_since[path] = self._storage.clock.monotonic()
            _log.warning("shard_not_opened", directory=str(path), reason=str(error))
            return
        except BufferFailure as error:
            self._given_up.add(path)
            self._storage.metrics.count("shards_unreadable")
            _log.error("shard_unreadable", directory=str(path), reason=str(error))
            return
        _log.info("shard_adopted", shard=shard.name)
        self._storage.metrics.count("shards_adopted")
        parts = shard.parts()
        # Before anything is released: once it is drained, its log is gone.
        try:
            await Resender(parts, self._around, self._storage.fs, path / RESEND_NAME).work_off()
        except BaseException:
            await shard.close()  # else nobody would ever find it free
            raise
        delivery = Delivery(parts, self._around, keeps_repeats=lambda: False)
        self._draining[path] = shard, delivery
        delivery.start()
        delivery.finish()

    async def _remove_drained(self) -> None:
        for path, (shard, delivery) in list(self._draining.items()):
            if delivery.is_running:
                continue
            del self._draining[path]
            delivery.terminate()
            await delivery.wait()
            if not delivery.is_drained:  # a table has stopped; the next start tries again
                self._given_up.add(path)
                await shard.close()
                continue
            try:
                await shard.remove(self._own)
            except OSError as error:
                _log.warning("shard_not_removed", shard=shard.name, reason=str(error))
            else:
                _log.info("shard_drained", shard=shard.name)
