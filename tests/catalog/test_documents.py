from __future__ import annotations

import json
import math

import pytest

from catalog import documents
from catalog.documents import (
    NotAnObject,
    NotJson,
    checked_text,
    merged_deep,
    merged_shallow,
    parse_object,
)
from catalog.errors import TooLarge


def test_a_document_is_kept_as_it_came():
    text = '{"lr": 0.10, "worst": NaN, "big": 123456789012345678901234567890, "s": "\\ud800"}'
    assert checked_text("config", text) == text


@pytest.mark.parametrize("text", [None, "null", " null "])
def test_null_is_no_document(text):
    assert checked_text("config", text) is None


@pytest.mark.parametrize(
    "text", ["", "{", "{'a': 1}", "[" * 100_000, "1" * 5_000, "nul", '{"a": undefined}']
)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(NotJson, match="Invalid config JSON"):
        checked_text("config", text) if text != "1" * 5_000 else parse_object("config", text)


def test_letters_that_no_database_holds_are_replaced():
    stored = checked_text("config", '{"a": "\ud800"}')
    assert stored is not None
    stored.encode()


def test_a_document_over_the_limit_is_refused_with_the_limit(monkeypatch):
    monkeypatch.setattr(documents, "DOCUMENT_BYTES_MAX", 10)
    with pytest.raises(TooLarge, match="config may have at most 10 bytes, and has 12"):
        checked_text("config", '"äääää"')
    with pytest.raises(TooLarge):
        merged_deep("config", '{"a":1}', {"b": 2})


def test_objects_merge_by_key_and_all_else_is_replaced():
    stored = '{"a": {"x": 1, "deep": {"k": [1, 2]}}, "b": [1], "c": {"gone": 1}, "kept": 0}'
    patch = {"a": {"y": 2, "deep": {"k": [3]}}, "b": {"now": "object"}, "c": 5}
    assert json.loads(merged_deep("config", stored, patch)) == {
        "a": {"x": 1, "y": 2, "deep": {"k": [3]}},
        "b": {"now": "object"},
        "c": 5,
        "kept": 0,
    }


def test_a_merge_keeps_what_only_python_can_say():
    merged = json.loads(
        merged_deep("config", '{"n": NaN, "i": 9999999999999999999999}', {"j": math.inf})
    )
    assert math.isnan(merged["n"])
    assert (merged["i"], merged["j"]) == (9999999999999999999999, math.inf)


def test_a_merge_into_nothing_or_into_no_object_gives_the_patch():
    assert merged_deep("config", None, {"a": 1}) == '{"a":1}'
    assert merged_deep("config", "[1, 2]", {"a": 1}) == '{"a":1}'


def nested(depth: int) -> dict:
    value: dict = {"leaf": depth}
    for _ in range(depth):
        value = {"a": value}
    return value


def test_a_document_as_deep_as_can_be_read_is_merged_without_recursion():
    stored = json.dumps(nested(700))
    assert json.loads(merged_deep("config", stored, nested(700))) == nested(700)


def test_a_merge_that_gets_too_deep_to_be_written_is_refused():
    with pytest.raises(NotJson):
        merged_deep("config", None, nested(100_000))


def test_a_shallow_merge_lets_the_own_keys_win_whole():
    assert (
        merged_shallow("config", '{"a": {"x": 1}, "b": 1}', '{"a": {"y": 2}}')
        == '{"a":{"y":2},"b":1}'
    )
    assert merged_shallow("config", None, "[1]") == "[1]"
    assert merged_shallow("config", '{"a": 1}', None) == '{"a": 1}'
    assert merged_shallow("config", '{"a": 1}', "[1]") == "[1]"


@pytest.mark.parametrize("text", ["[1]", "1", '"x"', "NaN"])
def test_where_an_object_is_needed_nothing_else_will_do(text):
    with pytest.raises(NotAnObject, match="expected an object"):
        parse_object("config", text)
    assert parse_object("config", "null") is None
