"""The pipe between a running SELECT, in a thread, and its response, on the event loop."""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import suppress
from typing import Final

PIPE_BYTES: Final = 2**20
STEP_BYTES: Final = 2**18


class RowsPipe:
    """Owns both ends; each is closed once, by `end_writing` and by `close`.

    Not `loop.connect_read_pipe`: uvloop closes the descriptor and then the file object around it,
    and in between another thread may have been given the same number. Seen here: a SELECT's file
    gone under concurrent clients, and it could as well have been a table's.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reading, False)
        with suppress(OSError):  # past the user's allowance of pipe pages: 64 KiB do as well
            fcntl.fcntl(self._writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    @property
    def name(self) -> str:
        """The path for INTO OUTFILE."""
        return f"/proc/self/fd/{self._writing}"

    async def read(self) -> bytes:
        """The next bytes, or none when the statement has ended and all is read."""
        while True:
            try:
                return os.read(self._reading, STEP_BYTES)
            except BlockingIOError:
                await self._readable()

    def end_writing(self) -> None:
        """After the statement: what is in the pipe can still be read, then comes its end."""
        os.close(self._writing)

    def close(self) -> None:
        """Ends reading; nobody may be in `read`. A statement that still writes fails."""
        os.close(self._reading)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        is_there = loop.create_future()

        def wake() -> None:
            if not is_there.done():
                is_there.set_result(None)

        loop.add_reader(self._reading, wake)
        try:
            await is_there
        finally:
            loop.remove_reader(self._reading)
