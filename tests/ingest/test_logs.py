"""Log lines: their shape, and what never gets into them."""

from __future__ import annotations

import io
import json
import logging
import time

import pytest
import structlog

from ingest import logs
from ingest.logs import redact

SECRET = "mlps_abcdefghijklmnopqrstuvwx"


@pytest.fixture
def output():
    return io.StringIO()


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (f"key {SECRET}!", "key mlps_…!"),
        ("mlpi_0123456789abcdef", "mlpi_…"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
        ("'authorization': 'basic dXNlcjpwYXNz'", "'authorization': 'basic …'"),
        ("postgresql://user:pa55@db:5432/x", "postgresql://user:…@db:5432/x"),
        ("http://127.0.0.1:8123/", "http://127.0.0.1:8123/"),
        ("a bearer of news", "a bearer …"),
    ],
)
def test_f42_keys_credentials_and_passwords_are_cut_out(text, rest):
    assert redact(text).startswith(rest)


def test_a_json_line_is_json_with_time_level_event_and_what_is_bound(output):
    logs.set_up("info", "json", output=output, worker=3)
    structlog.get_logger().info("shard_opened", shard="12ab", key=SECRET)
    structlog.get_logger().debug("not_shown")
    [line] = output.getvalue().splitlines()
    event = json.loads(line)
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "event": "shard_opened",
        "level": "info",
        "worker": 3,
        "shard": "12ab",
        "key": "mlps_…",
    }


@pytest.mark.parametrize("form", ["json", "console"])
def test_f42_a_traceback_is_logged_without_the_keys_in_it(output, form):
    logs.set_up("info", form, output=output)
    try:
        raise ValueError(f"bad header: Bearer {SECRET}")
    except ValueError:
        structlog.get_logger().exception("request_failed", path="/a b")
    text = output.getvalue()
    assert "Traceback" in text
    assert "ValueError" in text
    assert SECRET not in text


def test_what_libraries_log_takes_the_same_way(output):
    logs.set_up("info", "json", output=output)
    logging.getLogger("aiohttp.server").error("failed for %s", SECRET)
    logging.getLogger("sqlalchemy.engine").info("SELECT secret")
    [line] = output.getvalue().splitlines()
    event = json.loads(line)
    assert (event["event"], event["logger"]) == ("library_log", "aiohttp.server")
    assert event["message"] == "failed for mlps_…"


def test_a_long_line_is_cut_in_its_middle(output):
    logs.set_up("info", "console", output=output)
    started = time.perf_counter()
    structlog.get_logger().info("long", text="a" * 100_000 + "end")
    assert time.perf_counter() - started < 1
    assert len(output.getvalue()) < 20_000
    assert output.getvalue().rstrip().endswith("end")


def test_odd_values_do_not_break_a_line(output):
    logs.set_up("info", "console", output=output)
    structlog.get_logger().info("odd", text="two\nlines", empty="", number=1)
    assert output.getvalue().count("\n") == 1
    assert r"text='two\nlines' empty='' number=1" in output.getvalue()
