"""What happens to a cluster under load. Each event ends with all of it serving again."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadtest.oracle import RequestNumber, body_of
from tests.chaos.house import get
from tests.chaos.load import eventually
from tests.cluster.clients import SHAPE
from tests.cluster.cluster import KEY_FAILURES_MAX, becomes

if TYPE_CHECKING:
    from loadtest.throwaway import Server
    from tests.cluster.clients import Clients
    from tests.cluster.cluster import Cluster

SOME = 40
"""Answers that show that service goes on."""
PROBE_RUN = 1_000_000
"""Of requests past the balancer, which no audit looks at."""


def kill_one(cluster: Cluster, clients: Clients, name: str) -> None:
    """kill -9 of a replica and all its processes; then it starts on its own directory."""
    server = cluster.replicas[name]
    server.kill_tree()
    clients.answered(SOME)
    server.start()
    _gets_requests(server)


def restart_postgres(cluster: Cluster, clients: Clients) -> None:
    """Postgres away, with crash, under load: known keys are served on from memory."""
    clients.answered(SOME)
    cluster.postgres.stop(crash=True)
    try:
        clients.answered(SOME)
        for server in cluster.replicas.values():
            eventually(
                lambda server=server: (
                    b'"catalogue":{"status":"down"}' in get(server.url, "/health/ready")[1]
                ),
                30,
                "readiness that names the catalogue",
            )
            status, body = get(server.url, "/health/ready")
            assert status == 200, body
            assert b"postgresql://" not in body
            assert get(server.url, "/health")[0] == 200
        clients.answered(SOME)
    finally:
        cluster.postgres.start()
    for server in cluster.replicas.values():
        eventually(server.is_ok, 30, "readiness that is ok again")
    clients.answered(SOME)


def lose_one(cluster: Cluster, clients: Clients, name: str, *, heir: str, successor: str) -> None:
    """ClickHouse is away; a replica dies with rows in its log, and never starts again.

    Its shards go to another replica, a new one takes its place, and ClickHouse comes back.
    """
    cluster.engine.stop()
    clients.answered(SOME)
    for server in cluster.replicas.values():
        _says(server, b'"clickhouse":{"status":"down"}')
    cluster.lose(name, heir)
    clients.answered(SOME)
    cluster.add(successor, is_ready=False)
    cluster.route(*cluster.replicas)
    clients.answered(SOME)
    cluster.engine.start()
    for server in cluster.replicas.values():
        eventually(server.is_ok, 30, "readiness that is ok again")
    clients.answered(SOME)


def guess_keys(cluster: Cluster, address: str) -> list[int]:
    """Statuses of requests with keys that are none, sent from an address through nginx."""
    statuses = []
    for number in range(6 * KEY_FAILURES_MAX):
        connection = http.client.HTTPConnection(
            "127.0.0.1", cluster.nginx.port, timeout=10, source_address=(address, 0)
        )
        try:
            statuses.append(_post(connection, f"mlps_{number:024}", number)[0])
        finally:
            connection.close()
    return statuses


@dataclass(frozen=True)
class Stop:
    """What a replica did between SIGTERM and its end, seen without the balancer."""

    ready_lost_seconds: float
    """From SIGTERM to readiness 503."""
    served_until_seconds: float
    """The last answer of 200 to somebody who connected anew."""
    are_connections_closed: bool
    """Whether each of those answers said `Connection: close`."""
    ended_seconds: float


def roll(cluster: Cluster, clients: Clients) -> list[Stop]:
    """A rolling restart: one replica after the other, each back before the next goes."""
    stops = []
    for server in list(cluster.replicas.values()):
        stops.append(_stop(server, cluster.key))
        clients.answered(SOME)
        server.start()
        becomes(server, 200)
        _gets_requests(server)
    return stops


def scale(cluster: Cluster, clients: Clients) -> None:
    """A third replica comes, serves, and goes for good with its log delivered."""
    names = list(cluster.replicas)
    server = cluster.add("charon-more")
    cluster.route(*names, "charon-more")
    _gets_requests(server)
    clients.answered(SOME)
    cluster.route(*names)
    cluster.remove("charon-more")
    clients.answered(SOME)


def _stop(server: Server, key: str) -> Stop:
    """SIGTERM, and look at it from outside, as a probe and as a client of its own, to its end."""
    process = server.process
    assert process is not None
    begun = time.monotonic()
    process.terminate()
    ended: list[float] = []
    waiting = threading.Thread(target=lambda: (process.wait(60), ended.append(time.monotonic())))
    waiting.start()
    lost = served = None
    are_closed = True
    for number in itertools.count():
        try:
            if lost is None and get(server.url, "/health/ready")[0] == 503:
                lost = time.monotonic()
            status, closes = _post_anew(server.port, key, number)
        except (OSError, http.client.HTTPException):
            break  # it takes no more connections
        assert status == 200, f"{status} after SIGTERM"
        if lost is not None:
            served = time.monotonic()
            are_closed &= closes
        time.sleep(0.02)
    waiting.join()
    assert process.returncode == 0
    assert lost is not None, "readiness never turned"
    assert served is not None, "nothing was served on after readiness had turned"
    return Stop(lost - begun, served - begun, are_closed, ended[0] - begun)


def _post_anew(port: int, key: str, number: int) -> tuple[int, bool]:
    """Status of a request on a connection of its own, and whether the answer closes that.

    Not by urllib, which asks for the closing itself.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        return _post(connection, key, number)
    finally:
        connection.close()


def _post(connection: http.client.HTTPConnection, key: str, number: int) -> tuple[int, bool]:
    connection.request(
        "POST",
        "/ingest/metrics",
        body=body_of(PROBE_RUN, RequestNumber(number), SHAPE),
        headers={
            "Authorization": f"Bearer {key}",
            "X-Project-Name": "probe",
            "X-Run-Id": str(PROBE_RUN),
        },
    )
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.will_close


def _says(server: Server, what: bytes) -> None:
    """Readiness comes to say this of a dependency, is 200 all the same, and shows no address."""
    eventually(
        lambda: what in get(server.url, "/health/ready")[1], 30, f"readiness that says {what!r}"
    )
    status, body = get(server.url, "/health/ready")
    assert status == 200, body
    for told in (b"://", b"Traceback", b"127.0.0.1"):
        assert told not in body, body
    assert get(server.url, "/health")[0] == 200


def _gets_requests(server: Server) -> None:
    """The balancer sends it some, so it knows that the replica is there."""
    before = _accepted(server)
    eventually(lambda: _accepted(server) > before, 30, "requests at a replica that is there")


def _accepted(server: Server) -> float:
    _, body = get(server.url, "/metrics")
    return sum(
        float(line.rpartition(b" ")[2])
        for line in body.splitlines()
        if line.startswith(b"charon_rows_accepted_total")
    )
