"""`charon wal` and `charon quarantine` on a directory that no server works on."""

import asyncio
import base64
import json

import pytest

from schema.streams import StreamKind
from tests.buffer.delivery_rig import logs, metrics
from tests.fakes.sink import FakeSink
from tests.ingest.log_site import Site


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch, no_settings, tmp_path):
    monkeypatch.setenv("CHARON_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CHARON_DISK_FREE_BYTES_MIN", "0")


@pytest.fixture
def read(charon_json):
    return charon_json


@pytest.fixture
def site(tmp_path):
    """Ten requests delivered; the value 13 is refused by the table."""
    made = Site(tmp_path / "data", FakeSink())
    made.sink.tables[StreamKind.METRICS].is_bad = lambda row: row["value"] == 13

    async def fill():
        async with made.serving() as buffer:
            await made.send(buffer, *(metrics(*range(i, i + 5)) for i in range(0, 45, 5)))
            await made.send(buffer, logs("a\x1b[31m", "b"))

    asyncio.run(fill())
    return made


def test_ls_and_stat_say_what_there_is_and_how_far_each_table_is(site, read, charon):
    segments = read("wal", "ls")
    assert {one["state"] for one in segments} <= {"sealed", "last"}
    assert all(one["is_delivered"] for one in segments)
    [shard] = read("wal", "stat")
    assert shard["tables"]["metrics"] == {
        "delivered_lsn": 10,
        "next_number": shard["tables"]["metrics"]["next_number"],
        "pending": None,
    }
    assert (shard["end_lsn"], shard["is_held"], shard["quarantine"]) == (10, False, 1)
    status, out, _ = charon("wal", "stat")
    assert status == 0
    assert "held by nobody" in out
    assert "metrics" in out
    assert charon("wal", "ls", "--shard", shard["shard"][:6])[0] == 0


def test_a_shard_at_work_is_seen_as_held_and_its_lock_stays_free_to_take(site, read):
    async def look():
        async with site.serving() as buffer:
            [before] = await asyncio.to_thread(read, "wal", "stat")
            await site.send(buffer, metrics(1.0))
            return before

    assert asyncio.run(look())["is_held"]
    assert not read("wal", "stat")[0]["is_held"]


def test_show_gives_frames_and_rows(site, read, charon):
    frames = read("wal", "show", "--from", "8", "--to", "9", "--rows")
    assert [one["lsn"] for one in frames] == [8, 9]
    assert [row["value"] for row in frames[0]["content"]] == [40, 41, 42, 43, 44]
    [only] = read("wal", "show", "--stream", "logs")
    assert (only["stream"], only["tenant"], only["rows"]) == ("logs", "acme", 2)
    assert len(read("wal", "show", "--limit", "3")) == 3
    status, out, _ = charon("wal", "show", "--stream", "logs", "--rows")
    assert status == 0
    assert "\x1b" not in out  # a value that would steer the terminal
    assert json.loads(out)["content"][0]["message"] == "a\x1b[31m"
    assert charon("wal", "show", "--stream", "nonsense")[0] == 1


def test_verify_finds_what_is_damaged_and_says_where(site, read, charon):
    whole = read("wal", "verify")
    assert (whole["frames"], whole["rows"], whole["damage"]) == (10, 47, [])
    [segment] = sorted(site.shards()[0].glob("*.seg"))[:1]
    data = bytearray(segment.read_bytes())
    data[4_096 + 44 + 100] ^= 1
    segment.write_bytes(data)
    found = read("wal", "verify", status=1)
    [damage] = found["damage"]
    assert (damage["segment"], damage["offset"]) == (segment.name, 4_140)
    status, out, err = charon("wal", "verify")
    assert (status, err) == (1, "")
    assert "DAMAGE" in out


def test_delivered_frames_are_sent_again_as_a_shard_of_their_own(site, read):
    [shard] = site.shards()
    would = read("wal", "replay", "--shard", shard.name[:8], "--stream", "logs", "--dry-run")
    assert (would["frames"], would["rows"], would["shard"]) == (1, 2, None)
    assert site.shards() == [shard]
    made = read("wal", "replay", "--shard", shard.name[:8], "--stream", "logs")
    assert made["rows"] == 2
    assert (site.log / made["shard"]).is_dir()
    [look] = read("wal", "stat", "--shard", made["shard"])
    assert look["tables"]["logs"]["delivered_lsn"] == 0
    # Not delivered yet, so not for a replay.
    again = read("wal", "replay", "--shard", made["shard"])
    assert (again["frames"], again["left_out"]) == (0, {"undelivered": 1, "damaged": 0})


def test_quarantined_rows_are_shown_exported_and_replayed_once(
    site, read, charon, tmp_path, monkeypatch
):
    monkeypatch.setattr("buffer.adoption.FREE_SECONDS", 0.1)
    monkeypatch.setattr("buffer.adoption.LOOK_SECONDS", 0.1)
    [entry] = read("quarantine", "ls")
    assert (entry["rows"], entry["code"], entry["table"]) == (1, 469, "mlop_metrics")
    shown = read("quarantine", "show", entry["entry"][:20])
    assert [row["value"] for row in shown["content"]] == [13]
    status, out, _ = charon("quarantine", "export", "--all")
    assert status == 0
    assert json.loads(out)["row"]["value"] == 13
    target = tmp_path / "rows.jsonl"
    assert charon("quarantine", "export", entry["entry"], "-o", target)[0] == 0
    assert json.loads(target.read_text())["entry"] == entry["entry"]
    assert charon("quarantine", "export", "--all", "-o", target)[0] == 1  # nothing is overwritten
    assert charon("quarantine", "replay")[0] == 1  # names, or --all
    assert charon("quarantine", "replay", "no-such")[0] == 1

    made = read("quarantine", "replay", "--all")
    assert (made["rows"], made["left"]) == (1, [])
    assert read("quarantine", "ls") == []
    assert read("quarantine", "replay", "--all")["shard"] is None
    table = site.sink.tables[StreamKind.METRICS]
    table.is_bad = None

    async def drain():
        async with site.serving(), asyncio.timeout(20):
            while not any(row["value"] == 13 for row in table.rows):
                await asyncio.sleep(0.02)

    # Whichever of the two free shards a start takes for its own, it takes the other up later.
    asyncio.run(drain())
    assert sum(row["value"] == 13 for row in table.rows) == 1


def test_damage_is_exported_and_not_replayed(site, read, charon):
    shard = site.shards()[0]
    from buffer.clock import SystemClock
    from buffer.fs import RealFileSystem
    from buffer.lsn import Lsn
    from buffer.quarantine import Quarantine
    from buffer.reader import Damage

    quarantine = Quarantine(
        RealFileSystem(),
        shard / "quarantine",
        shard=shard.name,
        bytes_max=2**20,
        clock=SystemClock(),
    )
    quarantine.put_damage(Damage("1.seg", 7, 3, Lsn(1), Lsn(2), "CRC", b"\xff\x00!", None))
    (shard / "quarantine" / "rows-broken-1.q").write_bytes(b"nonsense")
    lines = [json.loads(line) for line in charon("quarantine", "export", "--all")[1].splitlines()]
    assert base64.b64decode(lines[0]["raw_base64"]) == b"\xff\x00!"
    left = read("quarantine", "replay", "--all")["left"]
    assert {name.partition("-")[0] for name in left} == {"damage", "rows"}
    assert charon("quarantine", "ls")[0] == 0


@pytest.mark.parametrize(
    "command", [["wal", "ls"], ["wal", "verify"], ["quarantine", "ls"], ["reconcile"]]
)
def test_where_there_is_no_log_it_is_said_and_nothing_is_made(charon, tmp_path, command):
    status, out, err = charon(*command)
    assert (status, out) == (1, "")
    assert "--data-dir" in err
    assert not (tmp_path / "data").exists()
