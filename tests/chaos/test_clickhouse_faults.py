"""Goal: whatever lies between Charon and ClickHouse does, acknowledged = stored, each row once.

Method: one server behind the proxy, an engine of the tests' own, a view that copies each row into a
table that would show a doubled block. For each fault: some requests, the fault on the next inserts,
and then the audit of those requests' rows in the table, its FINAL and the view's target.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.chaos import proxy as faults
from tests.chaos.house import VIEW, get, pending
from tests.chaos.load import Load, eventually
from tests.chaos.proxy import late, refused, slow, taken_but_refused

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.chaos.house import House

pytestmark = pytest.mark.slow

TRANSIENT = (252, 241, 242, 159, 209, 210, 225, 999, 319, 243, 202, 236)
OPERATOR = (60, 81, 164, 497, 516, 16, 53, 4242)
"""The last is a code that no release has yet."""


def suffer(house: House, folder: Path, *what: faults.Fault, seconds_max: float = 30.0) -> None:
    """Faults on the next inserts, requests under way meanwhile, and the audit."""
    load = Load(house.server, folder / "notes", writers=2)
    house.proxy.next_inserts(*what)
    load.send(2)
    for _ in what:  # a block that is found stored is not sent again: the next fault needs another
        house.drained(seconds_max)
        load.send(1)
    house.drained(seconds_max)
    assert house.proxy.is_spent
    assert not load.outcomes.unknown
    load.audit(house.backend.ask, views=[VIEW], requests_min=4)


@pytest.mark.parametrize("code", TRANSIENT)
def test_a_passing_error_is_tried_again_until_it_passes(
    house: House, tmp_path: Path, code: int
) -> None:
    suffer(house, tmp_path, refused(code), refused(code))


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_an_error_without_a_code_is_tried_again(house: House, tmp_path: Path, status: int) -> None:
    suffer(house, tmp_path, refused(None, status))


@pytest.mark.parametrize("code", OPERATOR)
def test_what_an_operator_must_mend_waits_and_loses_nothing(
    house: House, tmp_path: Path, code: int
) -> None:
    suffer(house, tmp_path, refused(code, 404 if code in {60, 81} else 500))


@pytest.mark.parametrize("status", [400, 403, 404, 413])
def test_a_word_of_something_in_between_waits_and_loses_nothing(
    house: House, tmp_path: Path, status: int
) -> None:
    suffer(house, tmp_path, refused(None, status))


@pytest.mark.parametrize(
    "fault",
    [faults.cut_before, faults.cut_within, faults.cut_after, faults.cut_in_answer],
    ids=lambda fault: fault.__name__,
)
def test_a_cut_connection_doubles_nothing(house: House, tmp_path: Path, fault) -> None:
    suffer(house, tmp_path, fault, fault)


@pytest.mark.parametrize("code", [159, 241, 999, None])
def test_a_block_that_was_stored_before_its_error_is_stored_once(
    house: House, tmp_path: Path, code: int | None
) -> None:
    suffer(house, tmp_path, taken_but_refused(code), taken_but_refused(code))


def test_an_answer_after_our_patience_doubles_nothing(house: House, tmp_path: Path) -> None:
    suffer(house, tmp_path, late(2.0))


def test_an_insert_that_lands_after_it_was_given_up_is_one_row_to_every_reader(
    house: House, tmp_path: Path
) -> None:
    """Nothing of it was there, nothing of it ran, so it was sent again under another token."""
    load = Load(house.server, tmp_path / "notes", writers=1)
    house.proxy.next_inserts(slow(2.0))
    load.send(1)
    house.drained()
    eventually(lambda: house.proxy.under_way == 0, 10, "the late insert's end")
    load.audit(house.backend.ask, tables=["mlop_metrics FINAL"])


def test_connections_that_are_closed_when_used_again_cost_nothing(
    house: House, tmp_path: Path
) -> None:
    # F24: the first request after an idle while meets a connection that the server has closed.
    before = house.proxy.faulted
    house.proxy.closes_reused = True
    try:
        for _ in range(4):
            suffer(house, tmp_path)
    finally:
        house.proxy.closes_reused = False
    assert house.proxy.faulted == before


def test_an_engine_that_hangs_and_goes_on_doubles_nothing(house: House, tmp_path: Path) -> None:
    load = Load(house.server, tmp_path / "notes", writers=2)
    load.start()
    load.acknowledged(20)
    os.kill(house.backend.engine.pid, signal.SIGSTOP)
    try:
        time.sleep(2.5)  # beyond the patience of an insert
        load.acknowledged(20)
    finally:
        os.kill(house.backend.engine.pid, signal.SIGCONT)
    load.stop()
    house.drained()
    assert not load.outcomes.unknown
    load.audit(house.backend.ask, views=[VIEW])


def test_faults_of_every_kind_at_random_double_nothing(
    house: House, tmp_path: Path, chance: random.Random, minutes: float
) -> None:
    """The storm: a third of all inserts meets something, while clients go on."""
    kinds = [
        *(refused(code) for code in TRANSIENT),
        *(taken_but_refused(code) for code in (159, 209, None)),
        *(faults.cut_before, faults.cut_within, faults.cut_after, faults.cut_in_answer),
        late(1.8),
    ]
    guard = threading.Lock()

    async def storm(exchange: faults.Exchange) -> None:
        with guard:
            fault = chance.choice(kinds) if chance.random() < 0.33 else faults.passed
        await fault(exchange)

    load = Load(house.server, tmp_path / "notes", writers=3)
    before = house.proxy.inserts
    house.proxy.every = storm
    try:
        load.start()
        time.sleep(minutes * 60 or 4.0)
        load.stop()
        house.drained(90)
    finally:
        house.proxy.every = None
        load.stop()
    assert house.proxy.inserts > before + 5
    assert not load.outcomes.unknown
    rows = load.audit(house.backend.ask, views=[VIEW])
    print(f"{rows} rows through {house.proxy.inserts - before} inserts")


def test_a_block_that_the_server_cannot_read_stops_one_table_until_a_restart(
    house: House, tmp_path: Path
) -> None:
    load = Load(house.server, tmp_path / "notes", writers=2)
    house.proxy.next_inserts(refused(33, 400))
    load.send(2)
    eventually(lambda: house.proxy.is_spent, 10, "the refused insert")
    status, body = get(house.server.url, "/health/ready")
    eventually(
        lambda: b"mlop_metrics" in get(house.server.url, "/health/ready")[1], 10, "a table named"
    )
    assert status == 200, body  # new rows can still be made durable
    assert pending(house.server) > 0
    house.server.stop()
    house.server.start()
    house.drained()
    load.audit(house.backend.ask, views=[VIEW], requests_min=4)
