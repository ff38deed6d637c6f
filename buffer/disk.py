"""Blocking work off the event loop: one dedicated thread, first come first served."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Disk(Protocol):
    """Runs blocking calls one after the other, in the order in which they were given."""

    def submit(self, fn: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Begins ``fn(*args)``; the future has its outcome.

        Cancellation: cancelling the future may drop a call that has not begun: await it shielded.
        """
        ...

    async def run(self, fn: Callable[..., T], *args: object) -> T:
        """Runs ``fn(*args)`` and returns its result.

        Cancellation: a thread does not stop; the call is waited for, its result dropped, and only
        then is the cancellation passed on.
        """
        ...

    def close(self) -> None:
        """Lets the calls already given finish, without waiting for them; takes no more."""
        ...


async def outcome_of(work: asyncio.Future[T]) -> T:
    """Waits for work on a thread, cancelled or not, and then returns its result or raises.

    Cancellation: noted, the outcome awaited all the same; raised once the outcome is there, unless
    the work failed, whose error says more.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            if work.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: BLE001 - it is in the future, from which result() raises it below
            break
    result = work.result()
    if cancelled is not None:
        raise cancelled
    return result


class ThreadDisk:
    """One thread of its own."""

    def __init__(self, name: str = "disk") -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def submit(self, fn: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Begins ``fn(*args)`` on the thread."""
        return asyncio.get_running_loop().run_in_executor(self._executor, fn, *args)

    async def run(self, fn: Callable[..., T], *args: object) -> T:
        """Runs ``fn(*args)`` on the thread."""
        return await outcome_of(self.submit(fn, *args))

    def close(self) -> None:
        """Lets the calls already given finish, without waiting for them; takes no more."""
        self._executor.shutdown(wait=False)


class InlineDisk:
    """Runs each call where it is given, at once: for tests, and for commands that read a log."""

    def submit(self, fn: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Runs ``fn(*args)`` now."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(fn(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits
            future.set_exception(error)
        return future

    async def run(self, fn: Callable[..., T], *args: object) -> T:
        """Runs ``fn(*args)`` now."""
        return fn(*args)

    def close(self) -> None:
        """Has nothing to let go."""
