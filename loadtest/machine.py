"""What figures were taken on, and what the kernel says of a process."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from ingest import interpreter

_TICKS = os.sysconf("SC_CLK_TCK")
_PACKAGES = ("charon", "uvloop", "aiohttp", "httptools", "orjson", "chdb-core", "locust")


def facts() -> dict[str, Any]:
    """The machine and the versions, for the head of a report."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": interpreter.describe(),
        "load_average": round(os.getloadavg()[0], 2),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mib(pid: int, what: str = "VmRSS") -> float:
    """Resident memory of a process; `what` may be VmHWM, the most it ever was."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cores() -> tuple[int, list[int]]:
    """A core for what is measured, and those for the rest; the same one where it is alone."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[1:] or usable


def pin(pid: int, to: list[int]) -> None:
    """Keep every thread of a process on some cores; those that it starts later too."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), to)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
