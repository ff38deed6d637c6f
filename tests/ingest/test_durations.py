"""Lengths of time on a command line."""

from __future__ import annotations

import pytest

from ingest.durations import duration_ms, lifetime_ms


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [("0s", 0), ("90s", 90_000), ("30m", 1_800_000), ("24H", 86_400_000), (" 7d ", 604_800_000)],
)
def test_a_number_and_a_unit_are_a_length(text, length_ms):
    assert duration_ms(text) == length_ms


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1.5h", "1w", "1h30m", "٣h", "36501d"])
def test_anything_else_is_refused_with_what_was_sent(text):
    with pytest.raises(ValueError, match=r"no length of time|a hundred years") as caught:
        duration_ms(text)
    assert repr(text) in str(caught.value)


def test_nothing_lives_for_no_time_at_all():
    assert lifetime_ms("1s") == 1_000
    with pytest.raises(ValueError, match="no time at all"):
        lifetime_ms("0d")
