"""A child process's side of the pipes to its supervisor.

Standard input is a pipe from the supervisor. Its first line is the configuration as JSON, so that
no secret is in an argument list or an environment, where every user of the machine can read it.
Nothing follows, and end of file means that the supervisor is gone.

Standard output is a pipe to the supervisor, which reads lines:

=============== ==================================================================
`ready {json}`  once, when the process serves
`beat`          once a second, from the event loop itself: proof that it still turns
=============== ==================================================================

The log goes to standard error.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

BEAT_SECONDS = 1.0
ORPHAN_SECONDS_MAX = 10.0
"""An orphan that has not shut down by then ends at once: its port and locks are waited for."""

_PR_SET_PDEATHSIG = 1


class Lifeline:
    """What ties a child to its supervisor. One a process, made by `take` before anything else.

    Attributes:
        config: what the supervisor sent.
    """

    def __init__(self, config: dict[str, Any], output: int) -> None:
        self.config = config
        self._output = output

    @classmethod
    def take(cls) -> Lifeline:
        """Read the configuration and arrange for a signal when the supervisor dies. Blocks.

        Standard output becomes standard error afterwards, so that a library's print cannot be
        taken for a word to the supervisor.

        Raises:
            SystemExit: standard input holds no configuration: started by hand, or an orphan.
        """
        # SIGTERM, not SIGKILL: an orphan still flushes. A parent gone before this ends the pipe.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        line = bytearray()
        while not line.endswith(b"\n"):
            piece = os.read(0, 65_536)
            if not piece:
                raise SystemExit(
                    "this process is started by `charon serve`, which sends its settings"
                )
            line += piece
        output = os.dup(1)
        os.dup2(2, 1)
        # A supervisor that does not read must not hold up the event loop.
        os.set_blocking(output, False)
        return cls(json.loads(line), output)

    def ready(self, **details: Any) -> None:  # noqa: ANN401 - JSON values
        """Tell the supervisor that this process serves, and what it chose (a port)."""
        self._say(f"ready {json.dumps(details)}\n")

    async def beat(self) -> None:
        """Beat until cancelled: a task of its own on the loop that is to be watched."""
        while True:
            self._say("beat\n")
            await asyncio.sleep(BEAT_SECONDS)

    def when_orphaned(self, shut_down: Callable[[], object]) -> None:
        """Call `shut_down` on the running loop when the supervisor is gone; end hard 10 s later."""
        loop = asyncio.get_running_loop()

        def ended() -> None:
            if os.read(0, 4_096):
                return
            loop.remove_reader(0)
            watchdog = threading.Timer(ORPHAN_SECONDS_MAX, os._exit, (1,))
            watchdog.daemon = True
            watchdog.start()
            shut_down()

        loop.add_reader(0, ended)

    def _say(self, text: str) -> None:
        try:
            os.write(self._output, text.encode())
        except BlockingIOError:
            pass  # the pipe is full: a beat more or less tells nothing new
        except BrokenPipeError:
            pass  # the supervisor is gone; the end of standard input says so too
