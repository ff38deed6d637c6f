"""One run's figures: as JSON, as a CSV of its seconds, as a page with plots, and as a table."""

from __future__ import annotations

import csv
import json
from html import escape
from typing import TYPE_CHECKING, Any

from rich.table import Table

from loadtest.histogram import Histogram
from loadtest.plots import Line, plot

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from loadtest.recording import Recording
    from loadtest.sampling import Sample
    from loadtest.scenarios import Plan
    from loadtest.stored import Audit

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
SECOND_FIELDS = (
    *("second", "due", "answered", "p50_ms", "p95_ms", "p99_ms"),
    *("worker_mib", "worker_cpu_percent", "engine_cpu_percent", "log_mib"),
)


def figures(
    plan: Plan,
    recording: Recording,
    audit: Audit,
    lags: Histogram,
    samples: list[Sample],
    *,
    generator: str,
    machine: dict[str, Any],
) -> dict[str, Any]:
    """Everything about a run, as JSON."""
    total = recording.total
    sent = len(total)
    acknowledged = recording.answered.total()
    return {
        "scenario": plan.scenario,
        "generator": generator,
        "generator_processes": plan.generators,
        "machine": machine,
        "rate": plan.rate,
        "seconds": plan.seconds,
        "runs": len(plan.run_ids),
        "connections": plan.connections,
        "points_per_request": plan.shape.lines * plan.shape.names,
        "requests_due": plan.slots,
        "requests_sent": sent,
        "requests_acknowledged": acknowledged,
        "requests_per_second": round(acknowledged / max(plan.seconds, recording.ended), 1),
        "failures": dict(recording.errors),
        "latency_ms": _percentiles(total),
        "latency_from_the_send_ms": _percentiles(recording.service),
        "sent_late_ms": _percentiles(recording.late),
        "visible_after_ms": {**_percentiles(lags), "markers": len(lags)},
        "rows": {
            "acknowledged": audit.acknowledged,
            "stored": audit.stored,
            "unknown": audit.unknown,
            "differences": list(audit.differences[:20]),
            "delivered_after_seconds": audit.waited_seconds,
        },
        "generator_cpu_us_per_request": round(1e6 * recording.cpu_seconds / max(1, sent), 1),
        "seconds_taken": round(recording.ended, 2),
        "generator_cores": round(recording.cpu_seconds / max(plan.seconds, recording.ended), 2),
        "worker_cpu_us_per_request": _cpu(samples, "worker_cpu_seconds", sent),
        "engine_cpu_us_per_request": _cpu(samples, "engine_cpu_seconds", sent),
        "worker_peak_mib": round(max((s.worker_mib for s in samples), default=0.0), 1),
        "per_second": _seconds(recording, samples),
    }


def write(directory: Path, value: dict[str, Any]) -> None:
    """Write report.json, seconds.csv and report.html into a directory that is made."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.json").write_text(json.dumps(value, indent=1))
    with (directory / "seconds.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, SECOND_FIELDS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(value["per_second"])
    (directory / "report.html").write_text(_page(value))


def show(value: dict[str, Any], console: Console) -> None:
    """The summary, as a table."""
    table = Table(
        title=f"{value['scenario']}, {value['rate']:,.0f} requests/s due", show_header=False
    )
    table.add_column("what", style="bold")
    table.add_column("figure", justify="right")
    for what, figure in _summary(value):
        table.add_row(what, figure)
    console.print(table)


def _summary(value: dict[str, Any]) -> list[tuple[str, str]]:
    latency, rows = value["latency_ms"], value["rows"]
    lines = [
        ("requests due / sent", f"{value['requests_due']:,} / {value['requests_sent']:,}"),
        ("acknowledged a second", f"{value['requests_per_second']:,.0f}"),
        ("failed", f"{sum(value['failures'].values()):,}"),
        (
            "P50 / P95 / P99 from when due",
            f"{latency['p50']:,.1f} / {latency['p95']:,.1f} / {latency['p99']:,.1f} ms",
        ),
        ("P99 from the send", f"{value['latency_from_the_send_ms']['p99']:,.1f} ms"),
        ("rows acknowledged / stored", f"{rows['acknowledged']:,} / {rows['stored']:,}"),
        ("last row stored after", f"{rows['delivered_after_seconds']:.1f} s"),
    ]
    visible = value["visible_after_ms"]
    if visible["markers"]:
        lines.append(
            ("visible after, P50 / P99", f"{visible['p50']:,.0f} / {visible['p99']:,.0f} ms")
        )
    if value["worker_cpu_us_per_request"] is not None:
        lines.append(
            ("worker's CPU a request", f"{value['worker_cpu_us_per_request']:,.0f} \u00b5s")
        )
        lines.append(("worker's peak memory", f"{value['worker_peak_mib']:,.0f} MiB"))
    lines.append(
        (
            f"{value['generator']}'s CPU",
            (
                f"{value['generator_cpu_us_per_request']:,.0f} \u00b5s a request, "
                f"{value['generator_cores']:.2f} cores"
            ),
        )
    )
    return lines


def _percentiles(histogram: Histogram) -> dict[str, float]:
    values = {f"p{percent:g}": round(histogram.percentile(percent), 2) for percent in PERCENTILES}
    return {
        **values,
        "mean": round(histogram.mean_ms, 2),
        "max": round(histogram.percentile(100), 2),
    }


def _cpu(samples: list[Sample], name: str, requests: int) -> float | None:
    if len(samples) < 2 or not requests:
        return None
    used: float = getattr(samples[-1], name) - getattr(samples[0], name)
    return round(1e6 * used / requests, 1)


def _seconds(recording: Recording, samples: list[Sample]) -> list[dict[str, Any]]:
    by_second = {int(sample.second): sample for sample in samples}
    rows = []
    end = max([*recording.latency, *recording.answered], default=-1) + 1
    before: Sample | None = None
    for second in range(end):
        latency = recording.latency.get(second, Histogram())
        row: dict[str, Any] = {
            "second": second,
            "due": len(latency),
            "answered": recording.answered[second],
        }
        for percent in (50, 95, 99):
            value = latency.percentile(percent)
            row[f"p{percent}_ms"] = round(value, 2) if len(latency) else None
        sample = by_second.get(second)
        if sample is not None:
            row["worker_mib"] = round(sample.worker_mib, 1)
            row["log_mib"] = round(sample.log_mib, 1)
            if before is not None:
                span = sample.second - before.second
                worker = sample.worker_cpu_seconds - before.worker_cpu_seconds
                engine = sample.engine_cpu_seconds - before.engine_cpu_seconds
                row["worker_cpu_percent"] = round(100 * worker / span)
                row["engine_cpu_percent"] = round(100 * engine / span)
            before = sample
        rows.append(row)
    return rows


def _page(value: dict[str, Any]) -> str:
    rows = value["per_second"]
    seconds = [row["second"] for row in rows]

    def line(label: str, name: str) -> Line:
        return Line(label, [row.get(name) for row in rows])

    plots = [
        plot(
            "Latency, counted from when a request was due",
            "ms",
            seconds,
            [line("P50", "p50_ms"), line("P95", "p95_ms"), line("P99", "p99_ms")],
        ),
        plot(
            "Requests",
            "a second",
            seconds,
            [line("acknowledged", "answered"), line("due", "due")],
        ),
    ]
    if any("worker_mib" in row for row in rows):
        cpu = [line("worker", "worker_cpu_percent"), line("ClickHouse", "engine_cpu_percent")]
        memory = [line("memory", "worker_mib"), line("log on disk", "log_mib")]
        plots.append(plot("CPU", "% of a core", seconds, cpu))
        plots.append(plot("Worker's memory, and the log", "MiB", seconds, memory))
    faults = [
        *(f"{count:,} \u00d7 {error}" for error, count in value["failures"].items()),
        *value["rows"]["differences"],
    ]
    title = f"Load test: {value['scenario']}"
    summary = "".join(
        f"<tr><th>{escape(what)}</th><td>{escape(figure)}</td></tr>"
        for what, figure in _summary(value)
    )
    machine = ", ".join(
        f"{name} {fact}" for name, fact in value["machine"].items() if name != "versions"
    )
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f"<p>{escape(machine)}</p>",
            f"<table>{summary}</table>",
            *(f"<p class='fault'>{escape(fault)}</p>" for fault in faults),
            *plots,
            "</body></html>",
        ]
    )


_STYLE = """
body { font: 15px system-ui, sans-serif; max-width: 900px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } th { text-align: left; font-weight: 500; }
th, td { padding: 3px 16px 3px 0; border-bottom: 1px solid #d0d7de; } td { text-align: right; }
svg { width: 100%; margin-top: 1em; font-size: 12px; } polyline { fill: none; stroke-width: 1.5; }
.title { font-size: 14px; font-weight: 600; } .grid { stroke: #d0d7de; stroke-width: 0.5; }
.left { text-anchor: end; } .below { text-anchor: middle; } .fault { color: #d1242f; }
"""
