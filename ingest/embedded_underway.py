"""What was handed to the engine and has not ended, including what still waits for a thread.

`system.processes` knows a statement only once it runs. A client that asks there whether its insert
is still on its way must not be told "no" while that insert waits for its turn here: it would send
the block again, and both would land.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ingest.embedded_connection import literal

if TYPE_CHECKING:
    from ingest.embedded_connection import Job, Outcome
    from ingest.embedded_engine import Engine
    from ingest.embedded_statement import Statement

_LOOK_SECONDS: Final = 0.01
_KILL_TRIES: Final = 50
_KILL_SECONDS: Final = 0.1


class Underway:
    """Jobs by their tasks; owned by the event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: dict[asyncio.Task[Outcome], Job] = {}

    def add(self, task: asyncio.Task[Outcome], job: Job) -> None:
        """Until the task ends."""
        self._jobs[task] = job
        task.add_done_callback(self._jobs.pop)
        # Where the request is gone, nobody takes its exception.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def all_ended(self) -> None:
        """Waits for everything that is under way now."""
        if self._jobs:
            await asyncio.wait(list(self._jobs))

    async def visible(self, statement: Statement) -> None:
        """Waits until what the statement names by its id is in `system.processes`, or has ended."""
        for task, job in self._named_in(statement):
            while not task.done() and not await self._engine.sees(job.query_id):
                await asyncio.wait({task}, timeout=_LOOK_SECONDS)

    def void(self, statement: Statement) -> None:
        """What a KILL names by its id and what has not begun never will."""
        for _, job in self._named_in(statement):
            job.is_void.set()

    async def end(self, task: asyncio.Task[Outcome], job: Job) -> None:
        """Kills a SELECT that nobody reads: before it begins, or as soon as the engine sees it."""
        job.is_void.set()
        for _ in range(_KILL_TRIES):
            if task.done():
                return
            await self._engine.kill(job.query_id)
            await asyncio.wait({task}, timeout=_KILL_SECONDS)

    def _named_in(self, statement: Statement) -> list[tuple[asyncio.Task[Outcome], Job]]:
        texts = {token.text for token in statement.tokens}
        return [pair for pair in self._jobs.items() if literal(pair[1].query_id) in texts]
