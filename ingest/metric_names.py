"""Every number that `ingest` counts, by name; the buffer's own are in `buffer.metrics`.

Exported with the prefix `charon_`, counters with the suffix `_total`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from buffer.metrics import METRICS as BUFFER_METRICS
from buffer.metrics import Metric, MetricKind

if TYPE_CHECKING:
    from collections.abc import Mapping

_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

METRICS: tuple[Metric, ...] = (
    Metric("requests", _C, "requests", "requests answered", ("route", "status")),
    Metric("lane_requests", _C, "requests", "ingest requests, by what served them", ("lane",)),
    Metric("request_seconds", _H, "seconds", "an ingest request, from its headers to its answer"),
    Metric("requests_refused", _C, "requests", "requests refused as a whole", ("code",)),
    Metric("request_failures", _C, "requests", "requests that met a defect of ours (500)"),
    Metric("body_bytes", _C, "bytes", "decoded bytes of bodies read", ("stream",)),
    Metric("rows_accepted", _C, "rows", "rows accepted and durable", ("stream",)),
    Metric("refusals", _C, "refusals", "values or lines refused in requests", ("stream",)),
    Metric("unknown_fields", _C, "fields", "unknown fields of lines, ignored", ("stream",)),
    Metric("future_rows", _C, "rows", "rows stamped more than a day ahead, stored", ("stream",)),
    Metric("repeats", _C, "requests", "repeated requests answered with the former counts"),
    Metric("auth_refused", _C, "requests", "requests without a valid key", ("reason",)),
    Metric("auth_unchecked", _C, "requests", "unknown keys that could not be looked up"),
    Metric("key_lookup_failures", _C, "lookups", "look-ups of keys that the catalogue failed"),
    Metric("run_lookup_failures", _C, "lookups", "look-ups of runs that the catalogue failed"),
    Metric("heartbeat_failures", _C, "tries", "heartbeats of runs that the catalogue failed"),
    Metric("runs_cancelled", _C, "runs", "runs cancelled from outside"),
    Metric("runs_reaped", _C, "runs", "silent runs marked FAILED"),
    Metric("reaper_skips", _C, "cycles", "silent runs were not judged", ("reason",)),
    Metric("http_malformed", _C, "requests", "what was no HTTP request"),
    Metric("header_timeouts", _C, "connections", "connections that sent no whole request in time"),
    Metric(
        "answers_abandoned",
        _C,
        "connections",
        "connections ended: answers unread, or too much sent ahead",
    ),
    Metric("connections_refused", _C, "connections", "connections above the limit"),
    Metric("connections", _G, "connections", "open connections"),
    Metric("inflight_bytes", _G, "bytes", "reserved for bodies under way"),
    Metric("waiting_requests", _G, "requests", "requests that wait for memory"),
    Metric("held_requests", _G, "requests", "requests held for room in the log"),
    Metric("backlog_bytes", _G, "bytes", "log not yet delivered, by table", ("table",)),
    Metric("backlog_seconds", _G, "seconds", "age of the oldest undelivered row read", ("table",)),
    Metric("quarantine_rows", _G, "rows", "rows set aside as undeliverable"),
    Metric("quarantine_bytes", _G, "bytes", "what is set aside, on disk"),
    Metric("writable", _G, "boolean", "1 while new rows can be made durable"),
    Metric("clickhouse_up", _G, "boolean", "1 while ClickHouse answers"),
    Metric("catalogue_up", _G, "boolean", "1 while the catalogue's database answers"),
    Metric("resident_bytes", _G, "bytes", "resident memory of the worker"),
)

KNOWN: Mapping[str, Metric] = MappingProxyType(
    {metric.name: metric for metric in (*BUFFER_METRICS, *METRICS)}
)
"""All names of all packages."""
