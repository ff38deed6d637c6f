"""Counting a JSON text's values without parsing it, against counting them in what it parses to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import json_values
from catalog.json_values import holds_more, steps

TEXTS = st.text(st.sampled_from('a"\\,[{]}:é'), max_size=6)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def counted(value: object) -> int:
    """Opening brackets and commas outside of strings."""
    if isinstance(value, dict | list):
        inner = list(value.values() if isinstance(value, dict) else value)
        return 1 + max(0, len(inner) - 1) + sum(map(counted, inner))
    return 0


@given(VALUES, st.integers(1, 9))
def test_the_count_is_that_of_the_parsed_value(value, slice_bytes):
    text = json.dumps(value, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "SLICE_BYTES", slice_bytes)
        count = counted(value)
        assert not holds_more(text, count)
        assert count == 0 or holds_more(text, count - 1)


@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_have_an_end(data, limit):
    for _ in range(2):
        assert len(list(steps(data * 3, limit))) <= 4


def test_a_large_text_in_one_string_holds_one_value():
    assert not holds_more(b'{"a":"' + b"[,{" * 100_000 + b'"}', 1)
