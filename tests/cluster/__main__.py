"""``python -m tests.cluster``: the cluster of `deploy/`, natively, through its events for minutes.

Each round is a rolling restart, a crash of Postgres, a replica that comes and goes, a kill -9, and
one that is lost while ClickHouse is away; a line tells of each. It ends with the audit, and with 1
when a promise was not kept.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster import events
from tests.cluster.clients import Clients
from tests.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> int:
    """Runs what the command line asks for."""
    wanted = _arguments()
    with (
        tempfile.TemporaryDirectory(prefix="charon-cluster-") as directory,
        Cluster.running(
            Path(directory), replicas=2, workers=wanted.workers, drain_delay_seconds=5
        ) as cluster,
        Clients(
            cluster.nginx.url,
            cluster.key,
            count=wanted.clients,
            pause_seconds=wanted.clients / wanted.rate,
        ) as clients,
    ):
        print(
            f"nginx on {cluster.nginx.url}, 2 replicas with {wanted.workers} worker(s) each, "
            f"{wanted.clients} clients, {wanted.rate:.0f} requests/s at most",
            flush=True,
        )
        clients.answered(2 * events.SOME)
        end = time.monotonic() + 60 * wanted.minutes
        for number in itertools.count(1):
            _round(number, cluster, clients)
            if time.monotonic() > end:
                break
        clients.__exit__()
        return _summary(cluster, clients)


def _round(number: int, cluster: Cluster, clients: Clients) -> None:
    first, second = cluster.replicas
    happenings: list[tuple[str, Callable[[], object]]] = [
        ("rolling restart", lambda: events.roll(cluster, clients)),
        ("crash of Postgres", lambda: events.restart_postgres(cluster, clients)),
        ("third replica comes and goes", lambda: events.scale(cluster, clients)),
        (f"kill -9 of {first}", lambda: events.kill_one(cluster, clients, first)),
        (
            "replica lost, ClickHouse away",
            lambda: events.lose_one(
                cluster, clients, first, heir=second, successor=f"charon-{number + 2}"
            ),
        ),
    ]
    for what, happen in happenings:
        before, begun = len(clients.record.acknowledged), time.monotonic()
        retried, failed = len(clients.record.retried), len(clients.record.failed)
        happen()
        seconds = time.monotonic() - begun
        record = clients.record
        print(
            f"round {number}  {what:<30} {seconds:5.1f} s, "
            f"{len(record.acknowledged) - before:6d} acknowledged "
            f"({(len(record.acknowledged) - before) / seconds:5.0f}/s), "
            f"{len(record.retried) - retried} tried again, {len(record.failed) - failed} failed",
            flush=True,
        )


def _summary(cluster: Cluster, clients: Clients) -> int:
    """Prints what came of it; 0 when every promise was kept."""
    record = clients.record
    cluster.drained()
    cluster.nginx.stop()
    passages = cluster.nginx.passages()
    passed_on = sum(passage.tries - 1 for passage in passages)
    seconds = sorted(passage.seconds for passage in passages)
    rows = clients.audit(cluster.ask, sent_twice=passed_on + len(record.retried))
    slowest = ", ".join(
        f"P{share:g} {1_000 * seconds[min(int(len(seconds) * share / 100), len(seconds) - 1)]:.0f}"
        for share in (50, 95, 99, 100)
    )
    print(
        f"{len(record.acknowledged)} requests acknowledged; {len(record.retried)} tries repeated "
        f"by a client, {passed_on} by nginx; {len(record.failed)} failed\n"
        f"{rows} rows acknowledged, each stored once; milliseconds at nginx: {slowest}"
    )
    for run, number, why in record.failed[:5]:
        print(f"failed: run {run}, request {number}: {why}")
    return 1 if record.failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3, help="at least (default: 3)")
    parser.add_argument("--clients", type=int, default=32, help="at once (default: 32)")
    parser.add_argument("--rate", type=float, default=200, help="requests/s (default: 200)")
    parser.add_argument("--workers", type=int, default=1, help="of a replica (default: 1)")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
