"""CPU and memory of a throw-away server's processes, and its log on disk, once a second."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from loadtest import machine

if TYPE_CHECKING:
    from types import TracebackType

    from loadtest.throwaway import Server

SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Sums over the workers; CPU since their start."""

    second: float
    worker_cpu_seconds: float
    engine_cpu_seconds: float
    worker_mib: float
    log_mib: float


class Sampling:
    """Samples while it is entered; nothing where the server is not ours.

    Attributes:
        samples: in order; the first at the start, the last at the end.
    """

    def __init__(self, server: Server | None) -> None:
        self.samples: list[Sample] = []
        self._server = server
        self._stop = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._began = time.monotonic()
        if self._server is not None:
            self._take(self._server)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the last one."""
        self._stop.set()
        if self._server is not None:
            self._thread.join()
            self._take(self._server)

    def _run(self) -> None:
        assert self._server is not None
        while not self._stop.wait(SECONDS):
            self._take(self._server)

    def _take(self, server: Server) -> None:
        # A worker may end at any time, and be started again.
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            workers = server.worker_pids()
            log = sum(path.stat().st_size for path in server.data_dir.rglob("*.seg"))
            self.samples.append(
                Sample(
                    second=time.monotonic() - self._began,
                    worker_cpu_seconds=sum(map(machine.cpu_seconds, workers)),
                    engine_cpu_seconds=machine.cpu_seconds(server.engine_pid()),
                    worker_mib=sum(map(machine.memory_mib, workers)),
                    log_mib=log / 2**20,
                )
            )
