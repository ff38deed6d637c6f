"""CPU and memory of a throw-away server's processes, and its log on disk, once a second."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadtest import machine
from loadtest.beside import Beside

if TYPE_CHECKING:
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


class Sampling(Beside):
    """Samples while it is entered; nothing where the server is not ours.

    Attributes:
        samples: in order; the first at the start, the last at the end.
    """

    def __init__(self, server: Server | None) -> None:
        super().__init__("sampling")
        self.samples: list[Sample] = []
        self._server = server
        self._began = time.monotonic()

    def _begin(self) -> None:
        self._began = time.monotonic()
        self._take()

    def _work(self) -> None:
        while self._server is not None and not self._stop.wait(SECONDS):
            self._take()

    def _end(self) -> None:
        self._take()

    def _take(self) -> None:
        if (server := self._server) is None:
            return
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
