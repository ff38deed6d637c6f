"""How deep JSON may be nested, the same under every Python."""

from __future__ import annotations

import json

import pytest

from catalog.json_depth import LEVELS_MAX, check, loads


def nested(opening: str, closing: str, levels: int) -> str:
    return opening * levels + "NaN" + closing * levels


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[1,{"a":', "}]")])
@pytest.mark.parametrize("levels", [LEVELS_MAX + 1, 9_000, 200_000])
def test_more_levels_than_orjson_takes_are_refused_by_every_python(opening, closing, levels):
    for text in (nested(opening, closing, levels), nested(opening, closing, levels).encode()):
        with pytest.raises(RecursionError):
            loads(text)


def test_levels_are_counted_and_not_brackets():
    value: list[object] = []
    for _ in range(LEVELS_MAX - 1):
        value = [value]
    check("[" * LEVELS_MAX, value)  # looked at by levels from here on:
    check("[" * LEVELS_MAX * 2, value)
    with pytest.raises(RecursionError):
        check("[" * LEVELS_MAX * 2, [value])
    for wide in ([[]] * 5_000, "[" * 5_000, [{"a": [{}]}] * 5_000):
        assert loads(json.dumps(wide)) == wide
        assert loads(json.dumps(wide).encode()) == wide


def test_hooks_are_the_parsers():
    assert loads('{"a":NaN,"b":2}', parse_constant=str, parse_int=float) == {"a": "NaN", "b": 2.0}
