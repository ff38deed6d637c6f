"""Bodies are the SDK's in spelling, no two are equal, and their rows follow from their stamps."""

import json

import pytest

from loadtest import payloads
from loadtest.payloads import Kind, Shape
from loadtest.scenarios import SCENARIOS, WIDE_NAMES, Plan, Work, runs_of

SECOND = 1_764_423_221


def plan_of(scenario, *, rate=50.0, seconds=10.0, generators=1):
    runs = list(range(1, runs_of(SCENARIOS[scenario], rate) + 1))
    return Plan(scenario, "http://127.0.0.1:1", "key", "p", rate, seconds, runs, SECOND, generators)


def taken(plan, index=0):
    work = Work(plan, index)
    return list(iter(work.take, None))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_two_bodies_and_no_two_rows_of_a_run_are_equal(scenario):
    plan = plan_of(scenario)
    requests = taken(plan)
    assert len(requests) == plan.slots == 500
    assert len({(due.run, due.body) for due in requests}) == 500
    rows = set()
    for due in requests:
        for line in due.body.splitlines():
            record = json.loads(line)
            place = record.get("step", record.get("lineNumber"))
            rows.add((due.kind, due.run, place, record["time"], record.get("logName")))
    lines = sum(len(due.body.splitlines()) for due in requests)
    assert len(rows) == lines


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_lines_are_spelled_as_json_dumps_spells_them(scenario):
    for due in taken(plan_of(scenario, seconds=1)):
        assert due.body.endswith(b"\n")
        for line in due.body.decode().splitlines():
            assert json.dumps(json.loads(line)) == line


def test_fields_are_those_of_the_sdk_in_its_order():
    fields = {
        Kind.METRICS: ["time", "step", "data"],
        Kind.LOGS: ["time", "message", "lineNumber", "logType"],
        Kind.DATA: ["time", "data", "dataType", "logName", "step"],
    }
    found = {
        due.kind: list(json.loads(due.body.splitlines()[0])) for due in taken(plan_of("mixed"))
    }
    assert found == fields


@pytest.mark.parametrize("kind", Kind)
def test_rows_and_the_sum_of_their_places_follow_from_how_many_and_which_requests(kind):
    shape = Shape(lines=3, names=4)
    make = {Kind.METRICS: payloads.metrics, Kind.LOGS: payloads.logs, Kind.DATA: payloads.data}
    template = make[kind](shape, 1)
    numbers = (1, 2, 7)
    places = []
    for number in numbers:
        for line in template.stamped(SECOND, number).splitlines():
            record = json.loads(line)
            values = len(record["data"]) if kind is Kind.METRICS else 1
            places += [record[kind.place]] * values
    assert len(places) == len(numbers) * shape.rows(kind)
    assert sum(places) == shape.places(kind, len(numbers), sum(numbers))


def test_the_wide_scenario_has_fifty_thousand_names_in_each_run():
    names = {}
    for due in taken(plan_of("wide", rate=100, seconds=4)):
        names.setdefault(due.run, set()).update(json.loads(due.body)["data"])
    assert {run: len(found) for run, found in names.items()} == dict.fromkeys(range(4), WIDE_NAMES)


@pytest.mark.parametrize("scenario", ["steady", "burst"])
def test_the_schedule_has_the_rate_that_was_asked_for_and_never_goes_back(scenario):
    due = [request.seconds for request in taken(plan_of(scenario, rate=100, seconds=20))]
    assert due == sorted(due)
    assert len(due) == 2_000
    assert sum(second < 10 for second in due) == 1_000
    busiest = max(sum(at <= second < at + 1 for second in due) for at in range(20))
    assert busiest == (300 if scenario == "burst" else 100)


def test_generators_share_the_slots_and_leave_none_out():
    parts = [taken(plan_of("steady", generators=3), index) for index in range(3)]
    alone = taken(plan_of("steady"))
    together = sorted((request for part in parts for request in part), key=lambda one: one.seconds)
    assert [one.body for one in together] == [one.body for one in alone]


def test_each_run_of_the_mixed_scenario_sends_every_stream():
    kinds = {}
    for due in taken(plan_of("mixed", rate=1_000, seconds=2)):
        kinds.setdefault(due.run, set()).add(due.kind)
    assert all(found == set(Kind) for found in kinds.values())


def test_no_two_requests_of_the_shifting_scenario_have_the_same_names():
    sets = {
        tuple(json.loads(due.body.splitlines()[0])["data"]) for due in taken(plan_of("shifting"))
    }
    assert len(sets) == 500
