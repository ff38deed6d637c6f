from __future__ import annotations

import pytest

from catalog.errors import Invalid, TooLong
from catalog.tags import checked_tags, inherited_tags


def test_two_groups_are_refused():
    with pytest.raises(Invalid, match=r"^A run can have at most one group:\* tag\.$"):
        checked_tags(["group:a", "x", "group:b"])
    assert checked_tags(["group:a", "x"]) == ["group:a", "x"]


def test_limits_name_what_is_too_much():
    with pytest.raises(Invalid, match="at most 50"):
        checked_tags(["t"] * 51)
    with pytest.raises(TooLong, match="1024"):
        checked_tags(["t" * 1_025])


def test_a_fork_has_its_parents_tags_first_and_only_the_last_group():
    assert inherited_tags(["a", "group:p", "b"], ["b", "group:c", "c"]) == [
        "a",
        "b",
        "group:c",
        "c",
    ]
    assert inherited_tags(["group:p"], ["c"]) == ["group:p", "c"]
