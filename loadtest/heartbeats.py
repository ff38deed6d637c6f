"""What heartbeats cost: ingest at a constant rate, by itself and while thousands of runs beat.

`python -m loadtest.heartbeats` starts a server, makes the runs, and takes turns: ingest alone,
ingest beside the beats, and so on, then the beats alone. It prints the latencies of both, from when
each was due, and the workers' CPU time. The CPU time of a beat is that of the beats alone: it is
steady where the machine is not.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import uvloop

from loadtest import generators, machine
from loadtest.beating import INTERVAL_SECONDS, Beats, beat
from loadtest.histogram import Histogram
from loadtest.run import make_plan
from loadtest.target import of_server
from loadtest.throwaway import throwaway_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtest.target import Target

WARM_UP_SECONDS = INTERVAL_SECONDS + 1
"""Every run has beaten once, and is known to the server."""
IDLE_SECONDS = 5.0


class Turns:
    """Both kinds of load against one server, and what was seen, turn by turn."""

    def __init__(self, where: Target, run_ids: Sequence[int], rate: float, seconds: float) -> None:
        self._where = where
        self._run_ids = run_ids
        self._rate = rate
        self._seconds = seconds
        self.alone, self.beside, self.beats = Histogram(), Histogram(), Histogram()
        self.errors: dict[str, int] = {}
        self.idle_cores = 0.0
        self.cpu: dict[str, float] = {"alone": 0.0, "beside": 0.0, "beats": 0.0}
        self.counts: dict[str, int] = {"alone": 0, "beside": 0, "beats": 0}

    def idle(self, seconds: float) -> None:
        """What the workers use while nobody asks them anything."""
        started = self._cpu_seconds()
        time.sleep(seconds)
        self.idle_cores = (self._cpu_seconds() - started) / seconds

    def beats_alone(self, seconds: float, *, is_counted: bool = True) -> None:
        """Nothing else."""
        started: list[float] = []
        beats = self._beat(seconds, lambda: started.append(self._cpu_seconds()))
        self._note(beats.errors)
        if is_counted:
            # The schedule's time, and not that of the connections that are opened before.
            self.cpu["beats"] += self._cpu_seconds() - started[0] - self.idle_cores * seconds
            self.counts["beats"] += len(beats.latency)

    def ingest(self, *, beside_beats: bool) -> None:
        """One turn of ingest."""
        name = "beside" if beside_beats else "alone"
        started = self._cpu_seconds()
        with ThreadPoolExecutor() as pool:
            sending = pool.submit(self._send)
            if beside_beats:
                beats = self._beat(self._seconds + 1)
                self.beats.merge(beats.latency)
                self._note(beats.errors)
            recording = sending.result()
        self.cpu[name] += self._cpu_seconds() - started
        total = recording.total
        self.counts[name] += len(total)
        (self.beside if beside_beats else self.alone).merge(total)
        self._note(recording.errors)

    def figures(self) -> dict[str, Any]:
        """All that is told."""
        per = {
            name: round(1e6 * self.cpu[name] / self.counts[name], 1) if self.counts[name] else None
            for name in self.cpu
        }
        return {
            "runs": len(self._run_ids),
            "beats_a_second": len(self._run_ids) / INTERVAL_SECONDS,
            "ingest_requests_a_second": self._rate,
            "ingest_alone_ms": _percentiles(self.alone),
            "ingest_beside_beats_ms": _percentiles(self.beside),
            "beats_beside_ingest_ms": _percentiles(self.beats),
            "worker_us_per_ingest_request_alone": per["alone"],
            "worker_us_per_ingest_request_beside_beats_included": per["beside"],
            "worker_us_per_beat_alone_beyond_idle": per["beats"],
            "worker_idle_cores": round(self.idle_cores, 3),
            "errors": self.errors,
            "machine": machine.facts(),
        }

    def _beat(self, seconds: float, connected: Callable[[], None] = lambda: None) -> Beats:
        where = self._where
        return uvloop.run(beat(where.url, where.key, self._run_ids, seconds, connected=connected))

    def _send(self) -> Any:  # noqa: ANN401 - a Recording
        plan = make_plan(self._where, "steady", rate=self._rate, seconds=self._seconds)
        return generators.send(plan, "sockets", is_quiet=True)

    def _note(self, errors: Any) -> None:  # noqa: ANN401 - a Counter
        for error, count in errors.items():
            if count:
                self.errors[error] = self.errors.get(error, 0) + count

    def _cpu_seconds(self) -> float:
        assert self._where.server is not None
        return sum(machine.cpu_seconds(pid) for pid in self._where.server.worker_pids())


def measure(
    *, runs: int, rate: float, seconds: float, turns: int, workers: int, settings: dict[str, str]
) -> dict[str, Any]:
    """The figures of one server."""
    with throwaway_server(workers=workers, **settings) as server:
        where = of_server(server)
        started = time.perf_counter()
        run_ids = where.make_runs(runs, "heartbeats")
        made = runs / (time.perf_counter() - started)
        found = Turns(where, run_ids, rate, seconds)
        found.beats_alone(WARM_UP_SECONDS, is_counted=False)
        for turn in range(turns):
            order = (False, True) if turn % 2 == 0 else (True, False)
            for beside_beats in order:
                found.ingest(beside_beats=beside_beats)
        found.idle(IDLE_SECONDS)
        found.beats_alone(seconds)
        return found.figures() | {"runs_made_a_second_one_by_one": round(made)}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.heartbeats", description=__doc__)
    parser.add_argument("--runs", type=int, default=5_000, help="how many beat, every 4 s each")
    parser.add_argument("--rate", type=float, default=2_000, help="ingest requests a second")
    parser.add_argument("--seconds", type=float, default=20, help="of one turn")
    parser.add_argument("--turns", type=int, default=3, help="pairs of turns")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server"
    )
    arguments = parser.parse_args()
    found = measure(
        runs=arguments.runs,
        rate=arguments.rate,
        seconds=arguments.seconds,
        turns=arguments.turns,
        workers=arguments.workers,
        settings=dict(one.split("=", 1) for one in arguments.set),
    )
    print(json.dumps(found, indent=2))


def _percentiles(latency: Histogram) -> dict[str, float]:
    return {f"p{percent:g}": round(latency.percentile(percent), 2) for percent in (50, 95, 99)}


if __name__ == "__main__":
    main()
