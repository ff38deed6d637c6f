"""What README tells a newcomer to type does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.sdk import environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtest.throwaway import Server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_snippet_as_written_logs_a_run_and_reads_it_back(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server("charon-data")
    (snippet,) = blocks("python")
    assert len(snippet.splitlines()) <= 14
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        cwd=tmp_path,
        env=environment(server.url, server.key, tmp_path / "home"),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    expected = [f"{step}\t{1 / (step + 1)!r}".removesuffix(".0") for step in range(5)]
    printed = done.stdout.splitlines()
    assert [line for line in printed if re.match(r"\d+\t", line)] == expected
    query = re.search(r'charon sql "(SELECT [^"]*)"', README)
    assert query is not None
    rows = server.command("sql", query[1])["rows"]
    assert ["train/loss", 100, 0.01] in rows


@pytest.mark.slow
def test_the_demo_checks_every_value_and_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 900 values are in ClickHouse, once each, bit for bit" in done.stdout
