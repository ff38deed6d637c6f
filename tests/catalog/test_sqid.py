from __future__ import annotations

import pytest

from catalog.sqid import run_id_of, sqid_of

VECTORS = [
    (0, "bMZn4"),
    (1, "UkLWZ"),
    (2, "gbHJd"),
    (3, "EfhxL"),
    (42, "JgaEB"),
    (100, "86uR0"),
    (999, "ATas1"),
    (12345, "A6das"),
    (1_000_000, "gMvFo"),
]


@pytest.mark.parametrize(("number", "sqid"), VECTORS)
def test_a_runs_number_and_its_sqid_belong_together(number, sqid):
    assert sqid_of(number) == sqid
    assert run_id_of(sqid) == number


@pytest.mark.parametrize("text", ["", "????", "bMZn4bMZn4bMZn4", "a", "9" * 30])
def test_what_is_no_sqid_of_ours_names_no_run(text):
    assert run_id_of(text) is None
