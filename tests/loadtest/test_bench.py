"""`charon bench`: the fields that are promised, the comparison, what makes figures worthless."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from loadtest import bench, bench_all, closed_loop, machine, run, wrk
from loadtest.backlog import Backlog

ROOT = Path(__file__).parents[2]


def test_the_parts_are_measured_and_held_against_the_stored_figures(tmp_path):
    stored = tmp_path / "baseline.json"
    stored.write_text(json.dumps({"figures": {"decode_10_us_per_request": 1.0}}))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ingest.cli", "bench", "--parts", "--points", "10", "--json"),
            *("--save", "--baseline", str(stored)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert set(found["parts"]) == {
        "decode_10_us_per_request",
        "encode_10_us_per_request",
        "append_10_us_per_request",
        "build_10_rows_per_second",
        "log_10_bytes_per_point",
    }
    assert all(value > 0 for value in found["parts"].values())
    assert {"cpu", "cores", "kernel", "python", "versions"} <= set(found["machine"])
    assert found["ratios"]["decode_10_us_per_request"] > 1
    assert found["ratios"]["encode_10_us_per_request"] == 0  # none was stored
    assert json.loads(stored.read_text())["figures"] == found["parts"]


def test_without_wrk_the_closed_loop_is_left_out_and_said_so(monkeypatch):
    monkeypatch.setattr(wrk, "is_installed", lambda: False)
    found = bench.measure(points=[10], seconds=1, rounds=1, workers=[1], wants={"loop", "peers"})
    assert "closed_loop" not in found
    assert found["notes"] == [wrk.ADVICE]
    assert "apt-get install wrk" in "\n".join(bench.show(found, {}))


def test_workers_are_held_against_one_worker():
    def row(points, workers, cpu):
        return SimpleNamespace(points=points, workers=workers, cpu_us_per_request=cpu)

    rows = [row(10, 1, 60.0), row(100, 1, 100.0), row(10, 2, 63.0)]
    assert closed_loop.workers_table(rows)[2:] == ["| 10 | 2 | 1.05 |"]
    assert closed_loop.workers_table(rows[:2]) == []


def test_a_backlog_that_grows_makes_figures_worth_nothing():
    assert not Backlog(half_way_seconds=1.2, at_the_end_seconds=1.9).is_growing
    assert not Backlog(half_way_seconds=2.5, at_the_end_seconds=2.6).is_growing
    assert Backlog(half_way_seconds=2.0, at_the_end_seconds=4.0).is_growing


def test_figures_are_compared_as_ratios_by_name():
    found = {
        "parts": {"decode_10_us_per_request": 5.0},
        "closed_loop": [
            {"points": 10, "workers": 2, "cpu_us_per_request": 60, "requests_per_second": 9_000}
        ],
        "peers": [{"points": 10, "ratio": 0.95}],
    }
    values = bench.flat(found)
    assert values == {
        "decode_10_us_per_request": 5.0,
        "loop_10_2_workers_cpu_us_per_request": 60,
        "loop_10_2_workers_requests_per_second": 9_000,
        "peer_10_ratio": 0.95,
    }
    ratios = {name: ratio for name, _, ratio in bench.compared(values, {"peer_10_ratio": 0.5})}
    assert ratios["peer_10_ratio"] == 1.9
    assert ratios["decode_10_us_per_request"] == 0


def test_measured_tables_take_their_places_in_a_page_and_others_stay():
    places = [
        f"<!-- figures: {name} -->\nold\n<!-- end: {name} -->" for name in ("growth", "drain")
    ]
    page = "\n".join(["a", places[0], "b", places[1], ""])
    replaced = bench_all.into_page(page, {"growth": ["new", "rows"], "unknown": ["lost"]})
    assert replaced == page.replace("old", "new\nrows", 1)
    assert bench_all.into_page(replaced, {"growth": ["old"]}) == page


def test_without_locust_it_says_so_before_a_server_is_started(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(run, "throwaway_server", None)
    monkeypatch.setattr(sys, "argv", ["run", "steady"])
    with pytest.raises(SystemExit) as end:
        run.main()
    assert end.value.code == 2
    assert "pip install locust" in capsys.readouterr().err


def test_large_figures_are_spelled_like_small_ones():
    parts = {"build_rows_per_second": 32_718_710.4}
    found = {"machine": machine.facts(), "parts": parts, "notes": [], "faults": []}
    assert "| build_rows_per_second | 32,718,710 |" in "\n".join(bench.show(found, {}))
