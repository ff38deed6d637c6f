"""Whatever goes wrong, each row once: random faults and crashes against a plain list.

Method: a seed chooses what each insert meets (refused, lost before or after storing, token noted
alone, landing late, hanging until the process is killed), when frames are appended, and when the
process dies. Afterwards the table must hold exactly what was appended, bad rows excepted, and those
must be in quarantine.
"""

import asyncio
import random

import pytest

from schema.block import rows_of
from tests.buffer.delivery_rig import Rig, logs, metrics
from tests.fakes import sink as fakes
from tests.fakes.sink import FakeSink


def hang(stores):
    async def act(sink, table, token, number, rows, query_id):
        if stores:
            sink._store(table, token, number, rows)
        await asyncio.Event().wait()

    return act


def plainly():
    async def act(sink, table, token, number, rows, query_id):
        sink._store(table, token, number, rows)

    return act


def late():
    """Lands when settled, unless a constraint refuses it, as the real one would."""

    async def act(sink, table, token, number, rows, query_id):
        if table.is_bad is None or not any(map(table.is_bad, rows)):
            sink.late[query_id] = lambda: table.store(token, number, rows)
        raise fakes.lost()

    return act


def faults(chance, *, is_replicated):
    crack = [] if is_replicated else [fakes.note_token_only()]
    kinds = [
        plainly(),
        plainly(),
        fakes.refuse(chance.choice([252, 241, 999])),
        fakes.refuse(60, 404),
        fakes.store_and_lose_answer(),
        fakes.lose_request(),
        late(),
        hang(stores=False),
        hang(stores=True),
        *crack,
    ]
    return [chance.choice(kinds) for _ in range(chance.randrange(1, 25))]


@pytest.mark.parametrize("is_replicated", [False, True])
@pytest.mark.parametrize("seed", range(16))
async def test_each_row_once_whatever_happens(tmp_path, seed, is_replicated):
    chance = random.Random(seed)
    sink = FakeSink()
    rig = Rig(
        tmp_path,
        sink,
        batch_rows_max=chance.choice([5, 40, 200_000]),
        batch_age_seconds_max=0.005,
    )
    table = rig.table()
    table.is_replicated = is_replicated
    table.names_bad_row = chance.random() < 0.5
    table.script.extend(faults(chance, is_replicated=is_replicated))
    bad = set()
    if chance.random() < 0.6:
        table.is_bad = lambda row: row["value"] in bad
    sent = []
    rig.start()
    async with asyncio.timeout(30):
        for _ in range(chance.randrange(2, 6)):
            for _ in range(chance.randrange(1, 5)):
                values = [float(len(sent) + index) for index in range(chance.randrange(4, 20))]
                sent += values
                if table.is_bad is not None and len(bad) < 3 and chance.random() < 0.3:
                    bad.add(chance.choice(values))
                rig.append(metrics(*values), logs("x"))
            await asyncio.sleep(chance.choice([0, 0.002, 0.02]))
            if chance.random() < 0.7:
                await rig.kill()
                rig.start()
        while not rig.delivery.is_drained:
            await asyncio.sleep(0.05)
            if not rig.delivery.is_drained:  # something hangs: only a kill helps
                await rig.kill()
                rig.start()
    stored = sorted(row["value"] for row in table.rows)
    aside = sorted(
        row["value"] for entry in rig.set_aside() for part in entry.chunks for row in rows_of(part)
    )
    assert stored == sorted(set(sent) - bad)
    assert aside == sorted(bad)
    assert len({part.number for part in table.parts}) == len(table.parts)
    await rig.close()
