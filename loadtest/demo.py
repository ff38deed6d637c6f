"""`make demo`: a small training run through the real SDK, read back from ClickHouse and checked.

A throw-away server is started; a logistic regression is fitted by gradient descent, in plain
NumPy; each step's loss, accuracy and gradient norm go through `pluto-ml`. Then every value is read
back from ClickHouse and compared, bit for bit, with what the training loop computed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from loadtest.chart import chart
from loadtest.throwaway import Server, throwaway_server

STEPS = 300
SAMPLES, FEATURES = 400, 4
LEARNING_RATE = 0.1
DELIVERY_SECONDS_MAX = 30.0
SDK_SECONDS_MAX = 180.0

Curve = list[dict[str, float]]


def train() -> Curve:
    """Fit a logistic regression by gradient descent; the metrics of each step."""
    import numpy as np  # noqa: PLC0415 - may be missing, which `main` says

    random = np.random.default_rng(7)
    inputs = random.normal(size=(SAMPLES, FEATURES))
    labels = (inputs @ np.array([1.5, -2.0, 0.5, 1.0]) + random.normal(size=SAMPLES) > 0) * 1.0
    weights = np.zeros(FEATURES)
    curve: Curve = []
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-inputs @ weights))
        gradient = inputs.T @ (chance - labels) / SAMPLES
        likelihood = labels * np.log(chance) + (1 - labels) * np.log(1 - chance)
        curve.append(
            {
                "train/loss": float(-likelihood.mean()),
                "train/accuracy": float(((chance > 0.5) == labels).mean()),
                "train/gradient_norm": float(np.linalg.norm(gradient)),
            }
        )
        weights -= LEARNING_RATE * gradient
    return curve


def log_with_the_sdk() -> None:
    """The training process: what a user's script does. Prints the run's number and its values."""
    import pluto  # noqa: PLC0415 - only this process needs it

    run = pluto.init(
        project="demo",
        name="logistic-regression",
        config={"learning_rate": LEARNING_RATE, "samples": SAMPLES},
        settings={"sync_process_batch_size": 1_000},
    )
    curve = train()
    for step, metrics in enumerate(curve):
        run.log(metrics, step=step)
    run.finish()
    print(json.dumps({"run_id": int(run.id), "curve": curve}), flush=True)


def main() -> None:
    """Run it all; exit status 0 only when every value came back."""
    if sys.argv[1:] == ["train"]:
        log_with_the_sdk()
        return
    console = Console()
    if missing := [name for name in ("numpy", "pluto") if importlib.util.find_spec(name) is None]:
        console.print(f"{' and '.join(missing)} not installed: pip install numpy pluto-ml")
        sys.exit(2)
    console.print("[bold]1.[/] a throw-away server, everything embedded")
    with throwaway_server() as server, tempfile.TemporaryDirectory(prefix="charon-demo-") as home:
        console.print(f"   serves on {server.url}")
        console.print(f"[bold]2.[/] {STEPS} steps of gradient descent, logged by pluto-ml")
        began = time.monotonic()
        run_id, curve = _train_in_a_process(server, Path(home))
        console.print(f"   run {run_id} finished in {time.monotonic() - began:.1f} s")
        console.print("[bold]3.[/] read back from ClickHouse")
        stored = _read_back(server, run_id, expected=len(curve) * len(curve[0]))
    _show(console, curve, stored)
    faults = compare(curve, stored)
    if faults:
        for fault in faults[:20]:
            console.print(f"[red]{fault}[/]")
        console.print(f"[red]{len(faults)} differences[/]")
        sys.exit(1)
    values = len(curve) * len(curve[0])
    console.print(f"[green]all {values} values are in ClickHouse, once each, bit for bit[/]")


def compare(curve: Curve, stored: list[list[Any]]) -> list[str]:
    """What differs between the training loop's values and the stored rows; empty when all is well.

    Args:
        curve: a dict of values a step.
        stored: rows of name, step, and the value's bits as hexadecimal text.
    """
    wanted = {
        (name, float(step)): _bits(value)
        for step, metrics in enumerate(curve)
        for name, value in metrics.items()
    }
    faults: list[str] = []
    seen: set[tuple[str, float]] = set()
    for name, step, bits in stored:
        place = (str(name), float(step))
        if place in seen:
            faults.append(f"{name} at step {step:g} is there twice")
        seen.add(place)
        if wanted.get(place) != bits:
            faults.append(f"{name} at step {step:g}: stored {bits}, logged {wanted.get(place)}")
    faults += [f"{name} at step {step:g} is missing" for name, step in wanted.keys() - seen]
    return faults


def _train_in_a_process(server: Server, home: Path) -> tuple[int, Curve]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = kept | {
        "HOME": str(home),
        "PLUTO_DIR": str(home),
        "PLUTO_DISABLE_TELEMETRY": "1",
        "PLUTO_API_KEY": server.key,
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        **{f"PLUTO_URL_{role}": server.url for role in ("APP", "API", "INGEST", "PY")},
    }
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.demo", "train"],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=SDK_SECONDS_MAX,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"run_id"')]
    if done.returncode != 0 or not lines:
        raise SystemExit(f"the training process failed:\n{(done.stdout + done.stderr)[-4_000:]}")
    result = json.loads(lines[-1])
    return int(result["run_id"]), result["curve"]


def _read_back(server: Server, run_id: int, expected: int) -> list[list[Any]]:
    """All rows of the run's training metrics, as soon as there are as many as expected."""
    query = (
        "SELECT logName, step, leftPad(lower(hex(reinterpretAsUInt64(value))), 16, '0') "
        f"FROM mlop_metrics WHERE runId = {run_id} AND startsWith(logName, 'train/') "
        "ORDER BY logName, step"
    )
    deadline = time.monotonic() + DELIVERY_SECONDS_MAX
    while True:
        rows = server.sql(query)
        if len(rows) >= expected or time.monotonic() > deadline:
            return rows
        time.sleep(0.1)


def _bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def _number(bits: str) -> float:
    number: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return number


def _show(console: Console, curve: Curve, stored: list[list[Any]]) -> None:
    series: dict[str, list[float]] = {}
    for name, _, bits in stored:
        series.setdefault(str(name), []).append(_number(str(bits)))
    table = Table(header_style="bold")
    for column in ("series", "rows", "first", "last", "least", "greatest"):
        table.add_column(column, justify="left" if column == "series" else "right")
    for name, values in series.items():
        numbers = [values[0], values[-1], min(values), max(values)]
        table.add_row(name, str(len(values)), *(f"{number:.6f}" for number in numbers))
    console.print(table)
    loss = series.get("train/loss")
    if loss:
        console.print(f"train/loss, {len(loss)} of {len(curve)} steps")
        console.print(chart(loss, width=min(72, console.width - 12), height=12), highlight=False)


if __name__ == "__main__":
    main()
