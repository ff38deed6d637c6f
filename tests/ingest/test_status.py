"""Workers' status files: what they say together, and what stays of a dead one."""

from __future__ import annotations

import os
import subprocess
import sys

import orjson
import pytest

from ingest.health import Health
from ingest.metrics import WorkerMetrics
from ingest.status import StatusBoard
from tests.fakes.buffer import MemoryBuffer
from tests.ingest.serving import answered


class Worker:
    def __init__(self, directory, slot: int, workers: int) -> None:
        self.metrics = WorkerMetrics()
        self.buffer = MemoryBuffer()
        self.health = Health(
            statistics=self.buffer.statistics,
            probe_clickhouse=answered,
            probe_catalogue=answered,
            metrics=self.metrics,
        )
        self.board = StatusBoard(
            directory, slot=slot, workers=workers, metrics=self.metrics, health=self.health
        )
        self.board.take_over()


@pytest.fixture
def pair(tmp_path):
    return Worker(tmp_path, 0, 2), Worker(tmp_path, 1, 2)


def rewrite(directory, slot: int, **changes) -> None:
    path = directory / f"worker-{slot}.json"
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | changes))


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


async def test_whichever_worker_answers_speaks_for_all(pair):
    one, two = pair
    one.metrics.count("repeats", 2)
    two.metrics.count("repeats", 3)
    two.metrics.gauge("held_requests", 5)
    two.metrics.observe("request_seconds", 0.5)
    for worker in pair:
        await worker.health.probe()
        await worker.board.write()
    for worker in pair:
        whole = await worker.board.metrics()
        assert whole.counters["repeats", ()] == 5
        assert whole.gauges["held_requests", (("worker", "1"),)] == 5
        assert sum(whole.histograms["request_seconds", ()][:-1]) == 1
        assert (await worker.board.ready())[0] == 200


async def test_a_restarted_worker_goes_on_from_its_slots_counters(tmp_path, pair):
    one, two = pair
    two.metrics.count("repeats", 3)
    two.metrics.observe("request_seconds", 0.5)
    two.metrics.gauge("held_requests", 5)
    await two.board.write()
    again = Worker(tmp_path, 1, 2)
    again.metrics.count("repeats")
    await again.board.write()
    whole = await one.board.metrics()
    assert whole.counters["repeats", ()] == 4
    assert sum(whole.histograms["request_seconds", ()][:-1]) == 1
    assert ("held_requests", (("worker", "1"),)) not in whole.gauges


async def test_a_dead_workers_counters_are_kept_and_its_gauges_are_not(tmp_path, pair):
    one, two = pair
    two.metrics.count("repeats", 3)
    two.metrics.gauge("held_requests", 5)
    await two.board.write()
    rewrite(tmp_path, 1, pid=dead_pid())
    whole = await one.board.metrics()
    assert whole.counters["repeats", ()] == 3
    assert whole.gauges == {}
    await one.health.probe()
    status, body = await one.board.ready()
    assert (status, body["status"]) == (200, "degraded")
    assert body["checks"]["workers"]["starting"] == 1


async def test_a_worker_that_lives_and_writes_nothing_ends_readiness(tmp_path, pair):
    one, two = pair
    await two.board.write()
    rewrite(tmp_path, 1, written_at_ms=1_000)
    await one.health.probe()
    status, body = await one.board.ready()
    assert status == 503
    assert body["checks"]["workers"]["stuck"] == 1


async def test_one_worker_that_cannot_store_ends_the_servers_readiness(pair):
    one, two = pair
    two.health.is_draining = True
    await two.board.write()
    await one.health.probe()
    assert (await one.board.ready())[0] == 503


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format":99}', b'{"format":1,"slot":1}'])
async def test_a_file_that_is_not_ours_is_passed_over(tmp_path, pair, text):
    one, _ = pair
    (tmp_path / "worker-1.json").write_bytes(text)
    (tmp_path / "worker-7.json").write_bytes(text)
    assert (await one.board.ready())[0] == 200
    Worker(tmp_path, 1, 2)


async def test_a_directory_that_cannot_be_written_changes_nothing_else(tmp_path):
    directory = tmp_path / "status"
    worker = Worker(directory, 0, 1)
    directory.rmdir()
    with pytest.raises(OSError, match="No such file"):
        await worker.board.write()
    assert (await worker.board.ready())[0] == 200
    assert os.listdir(tmp_path) == []
