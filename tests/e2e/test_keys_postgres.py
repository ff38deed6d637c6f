"""Keys of two servers that share one Postgres, which is stopped, started and silent under load.

No ClickHouse runs: what is accepted waits in the log, and that is all that these tests need.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.scopes import SDK_SCOPES
from loadtest.throwaway import Server
from tests.e2e.conftest import eventually
from tests.postgres import PostgresServer, free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from catalog import NewKey
    from catalog.keys import Keys

pytestmark = pytest.mark.slow

LINE = b'{"time":1764423221123,"step":1,"data":{"a":1}}\n'
PASSWORD = "s3cret-of-postgres"
UNKNOWN = f"mlps_{'u' * 24}"


@dataclass
class Replicas:
    """Two servers; `heard` is told of changes by Postgres alone, `deaf` finds them by looking."""

    postgres: PostgresServer
    url: str
    heard: Server
    deaf: Server

    def keys(self, work: Callable[[Keys, str], Awaitable[Any]]) -> Any:
        """What `work` does with the keys of the catalogue, and the id of its organisation."""

        async def run() -> Any:
            catalog = await Catalog.open(self.url)
            try:
                (organisation,) = await catalog.organisations.list()
                return await work(catalog.keys, organisation.id)
            finally:
                await catalog.close()

        return asyncio.run(run())

    def new_key(self, *scopes: str) -> NewKey:
        return self.keys(
            lambda keys, owner: keys.create("test", owner, scopes=scopes or SDK_SCOPES)
        )

    @property
    def both(self) -> tuple[Server, Server]:
        return self.heard, self.deaf


def post(
    server: Server, key: str, path: str = "/ingest/metrics", **headers: str
) -> tuple[int, dict[str, Any], Any]:
    request = urllib.request.Request(
        server.url + path,
        data=LINE,
        headers={
            "Authorization": f"Bearer {key}",
            "X-Run-Id": "7",
            "X-Project-Name": "p",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers


def get(server: Server, path: str) -> tuple[int, bytes]:
    with urllib.request.urlopen(server.url + path, timeout=20) as answer:
        return answer.status, answer.read()


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    directory: Path = tmp_path_factory.mktemp("replicas")
    nowhere = f"127.0.0.1:{free_port()}"
    with PostgresServer.running() as postgres, postgres.database() as plain:
        url = plain.replace("//charon@", f"//charon:{PASSWORD}@")
        shared = {
            "database_url": url,
            "clickhouse_url": f"http://{nowhere}",
            "trusted_proxies": "127.0.0.1",
        }
        heard = Server(
            directory / "heard", {**shared, "auth_refresh_seconds": "60", "log_level": "debug"}
        )
        unheard = f"postgresql://charon:{PASSWORD}@{nowhere}/none"
        deaf = Server(directory / "deaf", {**shared, "database_direct_url": unheard})
        try:
            heard.start(is_ready=False)
            deaf.key = heard.key
            deaf.start(is_ready=False)
            yield Replicas(postgres, plain, heard, deaf)
        finally:
            for server in (heard, deaf):
                if server.process is not None and server.process.poll() is None:
                    server.kill_tree()


def until_refused(servers: tuple[Server, ...], key: str, seconds: float) -> set[tuple[int, str]]:
    """What each says once it refuses the key, which it has to within that time."""
    found = set()
    end = time.monotonic() + seconds
    for server in servers:
        while (answer := post(server, key))[0] == 200:
            assert time.monotonic() < end, server.data_dir.name
            time.sleep(0.02)
        found.add((answer[0], answer[1]["code"]))
    return found


def test_a_revocation_is_heard_by_one_and_seen_by_the_other_within_two_seconds(replicas):
    new = replicas.new_key()
    assert [post(server, new.secret)[0] for server in replicas.both] == [200, 200]
    replicas.keys(lambda keys, _: keys.revoke(new.record.id))
    # The one that hears looks by itself only once a minute.
    found = until_refused(replicas.both, new.secret, 4)  # twice as long, for a busy machine
    assert found == {(401, "TOKEN_REVOKED")}


def test_a_rotated_key_works_beside_its_successor_and_ends_when_it_is_told_to(replicas):
    old = replicas.new_key("ingest")
    assert post(replicas.deaf, old.secret)[0] == 200
    new = replicas.heard.command("keys", "rotate", old.record.id, "--overlap", "1h")
    assert (new["scopes"], new["rotated_from"]) == (["ingest"], old.record.id)
    assert new["replaces"]["expires_at"] is not None
    for server in replicas.both:
        assert [post(server, key)[0] for key in (old.secret, new["key"])] == [200, 200]
    replicas.keys(lambda keys, _: keys.expire(old.record.id, 1))
    assert until_refused(replicas.both, old.secret, 4) == {(401, "TOKEN_EXPIRED")}
    assert [post(server, new["key"])[0] for server in replicas.both] == [200, 200]


def test_a_key_does_what_its_scopes_say_and_no_more(replicas):
    reader = replicas.new_key("read").secret
    status, body, _ = post(replicas.heard, reader)
    assert (status, body["code"]) == (403, "INSUFFICIENT_PERMISSIONS")
    assert "'ingest'" in body["message"]
    status, body, _ = post(replicas.heard, reader, "/api/runs/create")
    assert (status, body["code"]) == (403, "INSUFFICIENT_PERMISSIONS")
    assert post(replicas.heard, reader, "/api/slug")[1]["organization"]["slug"] == "default"


def test_an_address_behind_the_proxy_is_limited_alone(replicas):
    server = replicas.deaf

    def from_client(address: str) -> tuple[int, dict[str, Any], Any]:
        wrong = f"mlps_{secrets.token_hex(12)}"
        return post(server, wrong, X_Forwarded_For=f"198.51.100.1, {address}")

    assert post(server, server.key)[0] == 200
    counts = Counter(from_client("203.0.113.9")[0] for _ in range(75))
    assert counts.keys() == {401, 429}
    assert 60 <= counts[401] <= 70  # as time went by a few more were allowed
    status, body, headers = from_client("203.0.113.9")
    assert (status, body["code"], headers["Retry-After"]) == (429, "RATE_LIMIT_EXCEEDED", "1")
    assert from_client("203.0.113.10")[0] == 401
    assert post(server, server.key, X_Forwarded_For="203.0.113.9")[0] == 200
    refused = get(server, "/metrics")[1].decode()
    for reason in ("invalid", "limited"):
        assert f'charon_auth_refused_total{{reason="{reason}"}}' in refused


def test_f39_postgres_stopped_under_load_fails_no_request_of_a_known_key(replicas):
    """Stopped as by a crash, away for some seconds, and started."""
    assert [post(server, server.key)[0] for server in replicas.both] == [200, 200]
    with load(replicas) as outcomes:
        replicas.postgres.stop(crash=True)
        deadline = time.monotonic() + 4
        for server in replicas.both:
            status, body, headers = post(server, UNKNOWN)
            assert (status, body["code"]) == (503, "DATABASE_UNAVAILABLE")
            assert headers["Retry-After"]
            assert PASSWORD not in json.dumps(body)
            assert get(server, "/health") == (200, b"OK")
            status, text = get(server, "/health/ready")
            checks = json.loads(text)["checks"]
            assert (status, checks["buffer"]) == (200, {"status": "up"})
            assert checks["clickhouse"] == {"status": "down"}
            eventually(
                lambda server=server: (
                    json.loads(get(server, "/health/ready")[1])["checks"]["catalogue"]
                    == {"status": "down"}
                ),
                10,
                "the catalogue to be down",
            )
        while time.monotonic() < deadline:
            time.sleep(0.1)
        replicas.postgres.start()
        for server in replicas.both:
            eventually(lambda server=server: post(server, UNKNOWN)[0] == 401, 20, "an answer")
    assert outcomes.keys() == {200}
    assert outcomes[200] > 200
    new = replicas.new_key()
    assert [post(server, new.secret)[0] for server in replicas.both] == [200, 200]
    replicas.keys(lambda keys, _: keys.revoke(new.record.id))
    assert until_refused(replicas.both, new.secret, 10) == {(401, "TOKEN_REVOKED")}


def test_last_use_is_kept_and_f42_no_secret_is_in_any_log(replicas):
    """Last in the file: it stops both servers, and reads what they logged in all tests."""
    for server in replicas.both:
        # It may be run by itself: a use of its own, and a refusal.
        assert post(server, server.key)[0] == 200
        assert post(server, UNKNOWN)[0] != 200
        assert server.stop() == 0
        text = server.log_path.read_text()
        for secret in (PASSWORD, server.key, UNKNOWN, "Traceback"):
            assert secret not in text
    shown = replicas.heard.command("keys", "show", replicas.heard.key)
    assert shown["last_used_at"] is not None
    assert shown["last_used_at"] >= shown["created_at"]


@contextmanager
def load(replicas: Replicas) -> Iterator[Counter[int]]:
    """A client for each server that posts with a known key; counts statuses, 0 for no answer."""
    outcomes: Counter[int] = Counter()
    stop = threading.Event()

    def work(server: Server) -> None:
        while not stop.is_set():
            try:
                outcomes[post(server, server.key)[0]] += 1
            except OSError:
                outcomes[0] += 1
            stop.wait(0.02)

    threads = [threading.Thread(target=work, args=(server,)) for server in replicas.both]
    for thread in threads:
        thread.start()
    try:
        yield outcomes
    finally:
        stop.set()
        for thread in threads:
            thread.join()
