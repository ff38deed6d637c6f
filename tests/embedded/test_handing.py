"""An insert's data handed over as memory: read where it is, or refused before anything begins."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import aiohttp
import pytest

from buffer.handing import hand
from ingest import embedded_body
from ingest.embedded_body import DataFile, InsertRoom
from ingest.embedded_errors import EngineError
from schema.handing import HEADER, REFUSED_STATUS, SEALS, Place

ROWS = b"".join(b"%d\n" % row for row in range(1_000))


@pytest.fixture
async def ask(engine):
    async with aiohttp.ClientSession() as session:

        async def ask(sql, data=b"", place=None):
            headers = {"X-ClickHouse-User": engine.user, "X-ClickHouse-Key": engine.password}
            if place is not None:
                headers[HEADER] = str(place)
            async with session.post(
                engine.url, params={"query": sql}, data=data, headers=headers
            ) as answer:
                return answer.status, (await answer.text()).strip()

        await ask("DROP TABLE IF EXISTS handed SYNC")
        await ask("CREATE TABLE handed (a UInt32) ENGINE = MergeTree ORDER BY a")
        yield ask


async def insert(ask, place, data=b""):
    return await ask("INSERT INTO handed FORMAT CSV", data, place)


async def count(ask):
    return int((await ask("SELECT count() FROM handed"))[1])


@pytest.fixture
def memory():
    """Makes a memfd of a name and with seals of one's choice."""
    made = []

    def make(name, seals=SEALS, data=ROWS):
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        made.append(descriptor)
        os.write(descriptor, data)
        if seals:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        return descriptor

    yield make
    for descriptor in made:
        os.close(descriptor)


async def test_rows_are_inserted_from_the_memory_of_another_process(ask):
    pieces = [ROWS[at : at + 2] for at in range(0, len(ROWS), 2)]  # more than one call may have
    handed = await hand(pieces)
    assert (await insert(ask, handed.place))[0] == 200
    handed.close()
    assert await count(ask) == 1_000


async def test_what_is_not_there_any_more_is_refused_and_stores_nothing(ask):
    handed = await hand([ROWS])
    handed.close()
    status, text = await insert(ask, handed.place)
    assert status == REFUSED_STATUS
    assert "CANNOT_OPEN_FILE" in text
    assert await count(ask) == 0


async def test_another_block_at_the_same_descriptor_is_not_taken_for_it(ask, memory):
    """A number is given again as soon as it is free: other rows would go under a block's token."""
    descriptor = memory(f"charon-{1:032x}")
    place = Place(os.getpid(), descriptor, f"charon-{2:032x}")
    assert (await insert(ask, place))[0] == REFUSED_STATUS
    assert await count(ask) == 0


@pytest.mark.parametrize("seals", [0, SEALS & ~fcntl.F_SEAL_WRITE, SEALS & ~fcntl.F_SEAL_GROW])
async def test_memory_that_may_still_change_is_refused(ask, memory, seals):
    name = f"charon-{3:032x}"
    place = Place(os.getpid(), memory(name, seals), name)
    assert (await insert(ask, place))[0] == REFUSED_STATUS


async def test_a_client_can_name_no_file(ask, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes(ROWS)
    with file.open("rb") as opened:
        for place in (
            f"{os.getpid()}/{opened.fileno()}/rows.csv",
            f"{os.getpid()}/{opened.fileno()}/charon-{4:032x}",
            "1/0/charon-",
            "../etc/passwd",
            f"{os.getpid()}/0/charon-{5:032x}/x",
            "",
        ):
            assert (await insert(ask, place))[0] == REFUSED_STATUS, place
    assert await count(ask) == 0


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo, Path.mkdir])
def test_a_file_that_bears_a_memorys_name_is_not_had_and_not_waited_for(
    monkeypatch, tmp_path, make
):
    """The kernel's word is a path: in a mount of its own, anybody may give a file that name."""
    file = tmp_path / f"memfd:charon-{6:032x} (deleted)"
    make(file)
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setattr(embedded_body, "_is", lambda _: True)
    before = sorted(os.listdir("/proc/self/fd"))
    place = Place(os.getpid(), descriptor, f"charon-{6:032x}")
    with pytest.raises(EngineError) as refused:
        DataFile(InsertRoom(), str(place))
    assert refused.value.status == REFUSED_STATUS
    assert sorted(os.listdir("/proc/self/fd")) == before
    os.close(descriptor)


async def test_data_in_the_body_beside_it_is_an_error_and_stores_nothing(ask):
    handed = await hand([ROWS])
    status, text = await insert(ask, handed.place, b"7\n")
    handed.close()
    assert status == 400, text
    assert await count(ask) == 0


async def test_bad_data_is_an_error_as_in_a_body(ask):
    handed = await hand([b"no number\n"])
    status, _ = await insert(ask, handed.place)
    handed.close()
    assert status == 400
    assert await count(ask) == 0


async def test_the_engine_lets_go_of_memory_that_it_has_read(ask, engine):
    for _ in range(5):
        handed = await hand([ROWS])
        await insert(ask, handed.place)
        await insert(ask, handed.place, b"in the body too")
        handed.close()
        await insert(ask, handed.place)
    assert not [target for target in opened_by(engine.pid) if "/memfd:charon-" in target]


def opened_by(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{pid}/fd/{name}")
