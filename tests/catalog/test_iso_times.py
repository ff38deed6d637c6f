from __future__ import annotations

import pytest

from catalog.iso_times import iso_time


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_764_423_221_123, "2025-11-29T13:33:41.123Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+010000-01-01T00:00:00.000Z"),
        (8_640_000_000_000_000, "+275760-09-13T00:00:00.000Z"),
    ],
)
def test_a_time_is_written_as_javascript_writes_it(time_ms, text):
    assert iso_time(time_ms) == text
    assert iso_time(time_ms, "seconds") == text[:-5] + "Z"
