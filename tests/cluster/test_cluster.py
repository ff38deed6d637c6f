"""Goal: what deploy/ describes loses nothing and fails nobody who retries as the SDK does.

Method: nginx with the shipped configuration, two replicas, one Postgres, one `charon clickhouse`;
clients go on through a rolling restart, a crash of Postgres, a third replica that comes and goes, a
replica lost while ClickHouse is away, and a kill; at the end every acknowledged row is compared
with what is stored. `make cluster` does the same for minutes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.cluster import events
from tests.cluster.clients import Clients
from tests.cluster.cluster import KEY_FAILURES_MAX, Cluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

DRAIN_SECONDS = 1.5


@pytest.mark.timeout(300)
def test_a_cluster_under_load_stores_what_it_acknowledged_once_whatever_is_restarted(
    tmp_path: Path,
) -> None:
    with (
        Cluster.running(
            tmp_path, replicas=2, workers=1, drain_delay_seconds=DRAIN_SECONDS
        ) as cluster,
        Clients(cluster.nginx.url, cluster.key, count=8, pause_seconds=0.05) as clients,
    ):
        record = clients.record
        clients.answered(2 * events.SOME)

        # F17: SIGTERM of each of two replicas under load, and no client has to try again.
        for stop in events.roll(cluster, clients):
            assert stop.ready_lost_seconds < 1.0, stop
            assert stop.served_until_seconds >= DRAIN_SECONDS - 0.5, stop
            assert stop.are_connections_closed, stop
        assert not record.retried, record.retried
        assert not record.failed, record.failed

        # F39: the databases' troubles are told, and are no reason to be taken out of service.
        events.restart_postgres(cluster, clients)
        assert not record.retried, record.retried

        # From here on some tries may be repeated: nginx, told of other replicas, closes idle
        # connections, and a request may be on its way on one of them; a kill cuts its own.
        events.scale(cluster, clients)
        events.lose_one(cluster, clients, "charon-2", heir="charon-1", successor="charon-3")
        events.kill_one(cluster, clients, "charon-1")

        # F41: each of the two counts guessed keys for itself, by the client's address and not by
        # that of nginx.
        guesses = Counter(events.guess_keys(cluster, "127.0.0.2"))
        assert guesses.keys() == {401, 429}, guesses
        assert 2 * KEY_FAILURES_MAX <= guesses[401] <= 2 * KEY_FAILURES_MAX + 4, guesses
        assert events.guess_keys(cluster, "127.0.0.3")[0] == 401

        clients.__exit__()
        cluster.drained()
        cluster.nginx.stop()  # what it has noted is written
        passages = cluster.nginx.passages()
        assert not record.failed, record.failed
        assert len(passages) >= len(record.acknowledged)
        twice = sum(passage.tries - 1 for passage in passages) + len(record.retried)
        assert clients.audit(cluster.ask, sent_twice=twice) >= 12 * events.SOME
