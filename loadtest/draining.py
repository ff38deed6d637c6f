"""How fast a backlog goes to ClickHouse, and the bytes that a point takes in the log and there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from loadtest import generators, machine, target
from loadtest.run import make_plan
from loadtest.throwaway import throwaway_server

if TYPE_CHECKING:
    from loadtest.target import Target

WAIT_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.05


def drain(*, rate: float, seconds: float) -> dict[str, Any]:
    """Take the table away, acknowledge rows, give it back, and time the delivery of the backlog.

    The worker's own side is its CPU time: the engine shares the machine, and is often what waits.
    Wall time begins with the first rows that come: before that the worker waits its turn to look.
    """
    with throwaway_server() as server:
        where = target.of_server(server)
        (worker,) = server.worker_pids()
        plan = make_plan(where, "steady", rate=rate, seconds=seconds)
        where.sql_command("RENAME TABLE mlop_metrics TO mlop_metrics_away")
        recording = generators.send(plan, "sockets", is_quiet=True)
        rows = sum(entry[0] for entry in recording.acknowledged.values()) * plan.shape.lines
        rows *= plan.shape.names
        log = sum(path.stat().st_size for path in server.data_dir.rglob("*.seg"))
        before = machine.cpu_seconds(worker)
        where.sql_command("RENAME TABLE mlop_metrics_away TO mlop_metrics")
        query = f"SELECT count() FROM mlop_metrics WHERE projectName = '{plan.project}'"
        first, began = _wait(where, query, 1)
        _, ended = _wait(where, query, rows)
        took = ended - began
        cpu = machine.cpu_seconds(worker) - before
        return {
            "rows": rows,
            "failures": dict(recording.errors),
            "log_bytes_per_point": round(log / rows, 2),
            "seconds": round(took, 2),
            "rows_per_second": round((rows - first) / max(took, LOOK_SECONDS)),
            "rows_per_worker_cpu_second": round(rows / cpu),
            "worker_peak_mib": round(machine.memory_mib(worker, "VmHWM"), 1),
            "clickhouse_bytes_per_point": stored_bytes(where),
        }


def _wait(where: Target, query: str, rows: int) -> tuple[int, float]:
    """Wait until there are so many rows; how many there are then, and when that was."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while (count := int(where.sql(query)[0][0])) < rows:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the backlog was not delivered: {count:,} of {rows:,} rows came")
        time.sleep(LOOK_SECONDS)
    return count, time.monotonic()


def stored_bytes(where: Target) -> dict[str, float]:
    """Bytes a point of ``mlop_metrics`` once merged: in all, and by column."""
    where.sql_command("OPTIMIZE TABLE mlop_metrics FINAL")
    source = "WHERE database = currentDatabase() AND table = 'mlop_metrics' AND active"
    total, rows = where.sql(f"SELECT sum(bytes_on_disk), sum(rows) FROM system.parts {source}")[0]
    columns = where.sql(
        "SELECT column, sum(column_data_compressed_bytes) FROM system.parts_columns "
        f"{source} GROUP BY column ORDER BY 2 DESC"
    )
    count = max(1, int(rows))
    return {
        "all": round(int(total) / count, 3),
        **{str(name): round(int(size) / count, 3) for name, size in columns},
    }
