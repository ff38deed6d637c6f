"""What people see of a command's rows."""

from __future__ import annotations

import pytest

from ingest.cli_output import moment, print_table

COLUMNS = ["name", "id", "made"]
ROW = ("k-acme", "DOxKBgVjgcNTxp4dwA7at", "2026-11-29T19:34:18+00:00")


@pytest.mark.parametrize("width", ["20", "29"])
def test_in_a_terminal_too_narrow_for_a_table_every_value_is_shown_all_the_same(
    width, monkeypatch, capsys
):
    monkeypatch.setenv("FORCE_COLOR", "1")  # which rich takes for a terminal
    monkeypatch.setenv("COLUMNS", width)
    print_table(COLUMNS, [ROW, ("x", None, "")])
    out = capsys.readouterr().out
    assert out == (
        "name: k-acme\nid: DOxKBgVjgcNTxp4dwA7at\nmade: 2026-11-29T19:34:18+00:00\n\n"
        "name: x\nid: NULL\nmade: \n\n"
    )


def test_in_any_other_it_is_a_table_that_folds(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "32")
    print_table(COLUMNS, [ROW])
    lines = capsys.readouterr().out.splitlines()
    assert "k-acme" in lines[3]
    assert "DOxKBgVj" in lines[3]
    assert "2026-11-" in lines[3]


def test_a_time_beyond_the_year_9999_is_shown():
    assert moment(8_640_000_000_000_000) == "+275760-09-13T00:00:00+00:00"
    assert moment(0) == "1970-01-01T00:00:00+00:00"
    assert moment(None) is None
