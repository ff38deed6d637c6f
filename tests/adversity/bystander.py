"""A client that minds its own business during an attack, and what it may notice of it."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import orjson

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from loadtest.throwaway import Server

TIME_MS = 1_764_423_221_123
MEMORY_MIB_MAX = 400.0


def headers(server: Server, run: int = 7, **more: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {server.key}",
        "X-Run-Id": str(run),
        "X-Project-Name": "adversity",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }


def head(server: Server, more: bytes = b"", path: bytes = b"/ingest/metrics") -> bytes:
    """A request's head, all but the empty line at its end."""
    lines = [b"POST %b HTTP/1.1" % path, b"Host: a"]
    lines += [f"{name}: {value}".encode() for name, value in headers(server).items()]
    return b"\r\n".join(lines) + b"\r\n" + more


@dataclass
class Bystander:
    waits: list[float] = field(default_factory=list)
    failures: list[object] = field(default_factory=list)

    @property
    def p95(self) -> float:
        return sorted(self.waits)[int(len(self.waits) * 0.95)]

    async def run(self, server: Server) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as client:
            while True:
                began = time.monotonic()
                line = {"time": TIME_MS, "step": time.monotonic(), "data": {"bystander": 1.0}}
                try:
                    async with client.post(
                        server.url + "/ingest/metrics",
                        data=orjson.dumps(line),
                        headers=headers(server, 999),
                    ) as answer:
                        body = await answer.json()
                        if (answer.status, body.get("accepted")) != (200, 1):
                            self.failures.append((answer.status, body))
                except (aiohttp.ClientError, TimeoutError) as error:
                    self.failures.append(error)
                self.waits.append(time.monotonic() - began)
                await asyncio.sleep(0.02)


@asynccontextmanager
async def undisturbed(
    server: Server, *, p95_seconds: float = 1.0, seconds: float = 4.0
) -> AsyncIterator[Bystander]:
    """A normal client meanwhile sees no failure and waits little; memory stays bounded.

    The bounds leave room for a machine that others use too: on a quiet one the 95th percentile is
    under 0.1 s. Where one request could hold the worker up, waits were 3 to 22 s.
    """
    (worker,) = server.worker_pids()
    Path(f"/proc/{worker}/clear_refs").write_text("5")  # the peak begins anew
    bystander = Bystander()
    task = asyncio.create_task(bystander.run(server))
    await asyncio.sleep(0.2)
    try:
        yield bystander
        await asyncio.sleep(0.2)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert server.worker_pids() == [worker]
    assert not bystander.failures, bystander.failures[:3]
    assert bystander.p95 < p95_seconds
    assert max(bystander.waits) < seconds
    assert peak_mib(worker) < MEMORY_MIB_MAX


def peak_mib(pid: int) -> float:
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        if row.startswith("VmHWM:"):
            return int(row.split()[1]) / 1024
    raise AssertionError(f"no VmHWM of {pid}")
