"""The process: its start, its lock, its end, and what survives."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import time

import aiohttp
import psutil
import pytest

from ingest.embedded import NICE
from ingest.embedded_config import MERGE_FACTOR, MERGE_NICE, may_set_nice


@pytest.fixture
def start(starter):
    running = []

    def start(path, **config):
        process = starter.start_engine(path, **config)
        running.append(process)
        return process

    yield start
    for process in running:
        with contextlib.suppress(Exception):
            process.kill()


async def ask(session, engine, sql, data=b""):
    headers = {"X-ClickHouse-User": engine.user, "X-ClickHouse-Key": engine.password}
    async with session.post(
        engine.url, params={"query": sql}, data=data, headers=headers
    ) as answer:
        text = await answer.text()
        assert answer.status == 200, text
        return text


TABLE = (
    "CREATE TABLE IF NOT EXISTS kept (a UInt64) ENGINE = MergeTree ORDER BY a "
    "SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"
)


async def test_a_second_process_is_refused_by_path_and_pid(starter, start, tmp_path):
    first = start(tmp_path / "clickhouse")
    second = starter.spawn_engine(tmp_path / "clickhouse", stderr=subprocess.PIPE)
    _, errors = await asyncio.to_thread(second.communicate, timeout=20)
    assert second.returncode == 1
    assert str(tmp_path / "clickhouse").encode() in errors
    assert str(first.pid).encode() in errors
    assert b"Traceback" not in errors
    async with aiohttp.ClientSession() as session:
        assert await ask(session, first, "SELECT 1") == "1\n"


async def test_the_lock_goes_with_a_killed_process(start, tmp_path):
    start(tmp_path / "clickhouse").kill()
    assert start(tmp_path / "clickhouse").stop() == 0


async def test_sigterm_lets_inserts_finish_and_ends_reads(start, tmp_path):
    engine = start(tmp_path / "clickhouse")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await ask(session, engine, TABLE)
        reader = asyncio.create_task(ask(session, engine, "SELECT max(number) FROM system.numbers"))
        data = b"".join(b"%d\n" % n for n in range(50_000))
        inserts = [
            asyncio.create_task(
                ask(session, engine, "INSERT INTO kept FORMAT CSV", io.BytesIO(data))
            )
            for _ in range(8)
        ]
        while "INSERT INTO kept" not in await ask(
            session, engine, "SELECT query FROM system.processes"
        ):
            assert not all(task.done() for task in inserts)
        begun = time.monotonic()
        status = await asyncio.to_thread(engine.stop)
        seconds = time.monotonic() - begun
        outcomes = await asyncio.gather(*inserts, return_exceptions=True)
        with contextlib.suppress(AssertionError, aiohttp.ClientError):
            await reader
    assert status == 0
    assert seconds < 8
    acknowledged = sum(outcome == "" for outcome in outcomes)
    assert acknowledged >= 1
    again = start(tmp_path / "clickhouse")
    async with aiohttp.ClientSession() as session:
        stored = int(await ask(session, again, "SELECT count() FROM kept"))
    assert stored >= acknowledged * 50_000
    assert stored % 50_000 == 0


async def test_what_was_acknowledged_survives_kill_9(start, tmp_path):
    for number in range(3):
        engine = start(tmp_path / "clickhouse")
        async with aiohttp.ClientSession() as session:
            await ask(session, engine, TABLE)
            for n in range(10):
                await ask(session, engine, "INSERT INTO kept FORMAT CSV", b"%d\n" % n)
            count = int(await ask(session, engine, "SELECT count() FROM kept"))
        assert count == (number + 1) * 10
        engine.kill()


async def test_the_end_of_standard_input_ends_it(start, tmp_path):
    engine = start(tmp_path / "clickhouse")
    engine.process.stdin.close()
    assert await asyncio.to_thread(engine.process.wait, 20) == 0


async def test_it_does_not_outlive_its_parent(tmp_path, starter):
    script = (
        "import sys, time\n"
        f"sys.path.insert(0, {str(starter.ROOT / 'tests')!r})\n"
        "from pathlib import Path\n"
        "from engine_process import start_engine\n"
        f"engine = start_engine(Path({str(tmp_path / 'clickhouse')!r}))\n"
        "print(engine.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    pid = int(await asyncio.to_thread(parent.stdout.readline))
    child = psutil.Process(pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    await asyncio.to_thread(psutil.wait_procs, [child], 20)
    assert not child.is_running()


async def test_a_taken_port_is_an_error_and_no_traceback(starter, start, tmp_path):
    first = start(tmp_path / "one")
    second = starter.spawn_engine(tmp_path / "two", port=first.port, stderr=subprocess.PIPE)
    _, errors = await asyncio.to_thread(second.communicate, timeout=20)
    assert second.returncode == 1
    assert str(first.port).encode() in errors
    assert b"Traceback" not in errors


async def test_times_do_not_hang_on_the_machines_zone(starter, tmp_path, monkeypatch):
    """F12: a naive time is the server's, and the server's zone is UTC whatever TZ says."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    engine = starter.start_engine(tmp_path / "clickhouse")
    try:
        async with aiohttp.ClientSession() as session:
            sql = "SELECT timezone(), toString(fromUnixTimestamp64Milli(1764423221123))"
            assert await ask(session, engine, sql) == "UTC\t2025-11-29 13:33:41.123\n"
    finally:
        engine.stop()


async def test_a_database_of_another_name_is_made_and_is_the_default(start, tmp_path):
    engine = start(tmp_path / "clickhouse", database="elsewhere")
    async with aiohttp.ClientSession() as session:
        sql = "SELECT currentDatabase(), engine FROM system.databases WHERE name = 'elsewhere'"
        assert await ask(session, engine, sql) == "elsewhere\tAtomic\n"


async def test_it_is_small_after_a_start(start, tmp_path):
    engine = start(tmp_path / "clickhouse")
    process = psutil.Process(engine.pid)
    memory = process.memory_info()
    # How much of the library's file is mapped in is the kernel's choice: 250 to 360 MB seen.
    assert memory.rss - memory.shared < 200 * 2**20
    assert memory.rss < 700 * 2**20
    assert process.num_threads() < 60


async def test_it_gives_way_to_the_workers_and_merges_to_inserts(start, tmp_path):
    engine = start(tmp_path / "clickhouse")
    wanted = min(19, os.nice(0) + NICE)
    assert psutil.Process(engine.pid).nice() == wanted
    async with aiohttp.ClientSession() as session:
        sql = (
            "SELECT value FROM system.server_settings "
            "WHERE name = 'os_threads_nice_value_merge_mutate'"
        )
        wanted = MERGE_NICE if may_set_nice() else 0
        assert await ask(session, engine, sql) == f"{wanted}\n"


IN_A_USER_NAMESPACE = ("unshare", "--user", "--map-root-user")


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*IN_A_USER_NAMESPACE, "true"], capture_output=True, check=False).returncode,
    reason="this machine makes no user namespaces",
)
async def test_it_merges_where_its_right_to_be_nice_is_not_heeded(start, tmp_path):
    engine = start(tmp_path / "clickhouse", under=IN_A_USER_NAMESPACE)
    async with aiohttp.ClientSession() as session:
        await ask(session, engine, TABLE)
        for number in range(3):
            await ask(session, engine, f"INSERT INTO kept VALUES ({number})")
        await ask(session, engine, "OPTIMIZE TABLE kept FINAL")
        assert await ask(session, engine, "SELECT count() FROM kept") == "3\n"


async def test_it_merges_many_parts_at_once_unless_a_table_says_otherwise(start, tmp_path):
    engine = start(tmp_path / "clickhouse")
    async with aiohttp.ClientSession() as session:
        sql = "SELECT value FROM system.merge_tree_settings WHERE name = 'merge_selector_base'"
        assert await ask(session, engine, sql) == f"{MERGE_FACTOR}\n"
        await ask(session, engine, f"{TABLE}, merge_selector_base = 5")
        await ask(session, engine, "ALTER TABLE kept MODIFY SETTING merge_selector_base = 8")


async def test_no_secret_is_in_arguments_or_environment(start, tmp_path):
    engine = start(tmp_path / "clickhouse")
    process = psutil.Process(engine.pid)
    shown = " ".join(process.cmdline()) + " ".join(process.environ().values())
    assert engine.password not in shown
