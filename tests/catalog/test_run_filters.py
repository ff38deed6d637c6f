from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest

from catalog.errors import Invalid
from catalog.flat_documents import as_number, flattened
from catalog.run_filters import CONDITIONS_MAX, Candidate, compiled
from catalog.run_pages import RunSearch
from catalog.statuses import Status

RUN = Candidate(
    name="Big Run",
    status=Status.FAILED,
    tags=["a", "b"],
    created_at_ms=1_000_000,
    updated_at_ms=2_000_000,
    rows_received_at_ms=3_000_000,
    config=flattened('{"opt": {"lr": 0.1, "name": "adam"}, "n": "12", "on": true, "l": [1, "x"]}'),
    system_metadata=flattened('{"gpu": 8}'),
)


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ({}, True),
        ({"$and": []}, False),
        ({"$or": []}, False),
        ({"$not": {}}, False),
        ({"state": "crashed"}, True),
        ({"status": "FAILED"}, True),
        ({"status": {"$ne": "COMPLETED"}}, True),
        ({"state": {"$in": ["running", "finished"]}}, False),
        ({"state": {"$nin": ["running"], "$eq": "running"}}, True),
        ({"name": "Big Run"}, True),
        ({"name": {"$regex": "big r"}}, True),
        ({"name": {"$regex": ".*"}}, False),
        ({"display_name": {"$ne": "other"}}, True),
        ({"tags": {"$in": ["z", "b"]}}, True),
        ({"tags": "z"}, False),
        ({"created_at": {"$gt": "1970-01-01T00:16:39Z", "$lte": "1970-01-01T00:16:40"}}, True),
        ({"updatedAt": {"$lt": "1970-01-01"}}, False),
        ({"heartbeat_at": {"$gt": "1970-01-01T00:50:00Z"}}, True),  # both ends belong to it
        ({"heartbeatAt": {"$lt": "1970-01-01T00:49:59Z"}}, False),
        ({"config.opt.lr": 0.1}, True),
        ({"config.opt.lr": {"$gt": 0.05, "$lt": 0.1}}, False),
        ({"config.n": 12}, True),
        ({"config.n": {"$gte": "12.0"}}, True),
        ({"config.opt.name": {"$in": ["sgd", "adam"]}}, True),
        ({"config.opt.name": {"$gt": 1}}, False),
        ({"config.on": True}, True),
        ({"config.l": "1,x"}, True),
        ({"config.missing": 1}, False),
        ({"config.missing": {"$ne": 1}}, True),
        ({"config.missing": {"$nin": ["1"]}}, True),
        ({"systemMetadata.gpu": {"$gte": 8}}, True),
        ({"$or": [{"state": "running"}, {"$and": [{"tags": "a"}, {"name": "Big Run"}]}]}, True),
        ({"state": "failed", "tags": "z"}, False),
        ({"$not": {"$or": [{"tags": "z"}, {"tags": "y"}]}}, True),
    ],
)
def test_a_filter_fits_or_does_not(query, fits):
    assert compiled(json.dumps(query))(RUN) is fits


def test_a_run_without_rows_has_no_heartbeat():
    fits = compiled('{"heartbeat_at": {"$gte": "1970-01-01"}}')
    assert not fits(replace(RUN, rows_received_at_ms=None))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "filter must be valid JSON"),
        ("[" * 100_000, "filter must be valid JSON"),
        ("[]", "filter must be an object"),
        ('{"$and": {}}', "$and expects an array"),
        ('{"$and": [1]}', "filter must be an object"),
        ('{"$xor": []}', "unknown boolean operator: $xor"),
        ('{"name": {"$like": "x"}}', "unknown leaf operator: $like"),
        ('{"nme": "x"}', "unknown filter field: nme"),
        ('{"config.": 1}', "unknown filter field: config."),
        ('{"state": "resting"}', "unknown run state: resting"),
        ('{"state": null}', "unknown run state: None"),
        ('{"tags": {"$regex": "x"}}', "unsupported operator for tags: $regex"),
        ('{"config.a": {"$regex": "(a+)+$"}}', "unsupported operator for config.a: $regex"),
        ('{"heartbeat_at": {"$eq": "1970-01-01"}}', "unsupported operator for heartbeat_at: $eq"),
        ('{"created_at": {"$gt": "soon"}}', "created_at must be compared with a date"),
        ('{"created_at": 5}', "created_at must be compared with a date"),
        ('{"summaryMetrics.loss": 1}', "filtering on summaryMetrics.loss is not taken yet"),
        ('{"$not": ' * 60 + "{}" + "}" * 60, "filter may be nested 50 deep at most"),
        (
            json.dumps({"$or": [{"tags": "a"}] * (CONDITIONS_MAX + 1)}),
            f"filter may hold {CONDITIONS_MAX} conditions at most",
        ),
    ],
)
def test_a_filter_that_is_none_is_refused_with_its_reason(text, message):
    with pytest.raises(Invalid) as refusal:
        compiled(text)
    assert str(refusal.value).startswith(message)


def test_a_value_as_deep_as_can_be_read_is_compared_or_refused():
    """Python needs more of its stack to write it than to read it: near the limit it could only do
    the one."""
    for levels in range(900, 1_002):
        value = '{"a":' * levels + "1" + "}" * levels
        with contextlib.suppress(Invalid):
            compiled(f'{{"name": {{"$eq": [{value}]}}}}')


def test_a_document_is_flat_with_its_numbers_recognised():
    text = '{"a": {"b": {"c": 1.0}}, "d": null, "e": NaN, "f.g": "x"}'
    assert flattened(text) == {"a.b.c": "1", "e": "nan", "f.g": "x"}
    assert flattened("[1]") == flattened("{") == flattened(None) == {}
    lists = '{"a":[1,[2,[],[[3.0]]],{"b":[null]}],"b":[],"c":[[],[null,true]]}'
    assert flattened(lists) == {"a": '1,2,,3,{"b": [null]}', "b": "", "c": ",,true"}
    assert flattened('{"a":' + "[" * 900 + "1,2" + "]" * 900 + "}") == {"a": "1,2"}
    numbers = {"12": 12, "-0.5": -0.5, "1e3": 1000, "0": 0}
    others = ["012", "0x1f", "", "1,5", "nan", "inf", " 1", "1_000", "٣"]
    assert {text: as_number(text) for text in numbers} == numbers
    assert [text for text in others if as_number(text) is not None] == []


async def test_a_page_holds_the_runs_that_the_filter_fits(tenant, new_run, monkeypatch):
    monkeypatch.setattr("catalog.run_pages.CANDIDATES_STEP", 3)
    for n in range(10):
        tenant.clock.now_ms += 1
        await tenant.catalog.runs.create(tenant.id, new_run(config=f'{{"n": {n}}}', tags=["t"]))
    await tenant.catalog.heartbeats.note_rows({9: 3_600_000})

    async def find(query, **given):
        search = RunSearch("my-ml-project", filter=json.dumps(query), **given)
        page = await tenant.catalog.runs.page(tenant.id, search)
        return [run.head.number for run in page.runs], page.total

    assert await find({"config.n": {"$gte": 4}}) == ([10, 9, 8, 7, 6, 5], 6)
    assert await find({"config.n": {"$gte": 4}}, limit=2, offset=1) == ([9, 8], 6)
    assert await find({"config.n": {"$lt": 2}}, sort="createdAt", tags=["t"]) == ([1, 2], 2)
    assert await find({"heartbeat_at": {"$gte": "1970-01-01T01:00:00Z"}}) == ([9], 1)
    assert await find({}, tags=["z"]) == ([], 0)
