"""A real `python -m ingest.worker` with a real catalogue file, as the supervisor would start it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from catalog import Catalog
from ingest.layout import Layout
from ingest.settings import load_settings, reveal

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "http://127.0.0.1:1"
PASSWORD = "clickhouse-swordfish"


@dataclass
class WorkerProcess:
    """One worker, ready; everything it says on standard output and in its log is kept."""

    process: asyncio.subprocess.Process
    port: int
    log_path: Path
    words: list[str] = field(default_factory=list)
    client: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    async def request(self, method: str, path: str, **more) -> tuple[int, dict, str]:
        async with self.client.request(method, self.url + path, **more) as response:
            return response.status, dict(response.headers), await response.text()

    async def post(self, key: str, body: bytes, path: str = "/ingest/metrics", run: int = 7):
        headers = {
            "Authorization": f"Bearer {key}",
            "X-Run-Id": str(run),
            "X-Project-Name": "demo",
        }
        return await self.request("POST", path, data=body, headers=headers)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def stop(self, seconds: float = 20) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def listen(self) -> None:
        while line := await self.process.stdout.readline():
            self.words.append(line.decode().rstrip())


async def make_key(root: Path) -> str:
    """A catalogue with one key; gives the key."""
    catalog = await Catalog.open(Layout(root).catalog_url)
    try:
        await catalog.upgrade()
        return (await catalog.organisations.first_start()).secret
    finally:
        await catalog.close()


@contextlib.asynccontextmanager
async def worker(root: Path, *, slot: int = 0, clickhouse_url: str = NOWHERE, **settings):
    """Start one and wait until it is ready; it is killed at the end if it has not ended."""
    options = {"port": 0, "disk_free_bytes_min": 0, "log_level": "debug", **settings}
    config = {
        "settings": reveal(load_settings(data_dir=root, **options)),
        "slot": slot,
        "clickhouse_url": clickhouse_url,
        "clickhouse_user": "charon",
        "clickhouse_password": PASSWORD,
        "data_dir": str(root),
    }
    log_path = root / f"worker-{slot}.log"
    with log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ingest.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    try:
        process.stdin.write(json.dumps(config).encode() + b"\n")
        await process.stdin.drain()
        async with asyncio.timeout(30):
            while not (line := (await process.stdout.readline()).decode()).startswith("ready "):
                assert line, log_path.read_text()
        running = WorkerProcess(process, json.loads(line.removeprefix("ready "))["port"], log_path)
        listening = asyncio.create_task(running.listen())
        async with aiohttp.ClientSession() as running.client:
            yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process.stdin.close()
    await listening
