from __future__ import annotations

import pytest

from catalog.display_ids import display_id, parse_display_id, prefix_of
from catalog.errors import Invalid


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("my-ml-project", "MMP"),
        ("training", "TRA"),
        ("image-classification", "ICL"),
        ("resnet-50", "R50"),
        ("a", "A"),
        ("a-b", "AB"),
        ("my-ml_project.v2", "MMPV"),
        ("---", "RUN"),
        ("", "RUN"),
        ("one two three four five", "OTTF"),
        (" spaced  out ", "SOU"),
    ],
)
def test_a_prefix_is_drawn_from_the_projects_name(name, prefix):
    assert prefix_of(name) == prefix


def test_a_display_id_is_read_in_either_case():
    assert parse_display_id("mmp-12") == ("MMP", 12)
    assert display_id("MMP", 12) == "MMP-12"


@pytest.mark.parametrize(
    "text", ["", "MMP", "MMP-", "-1", "MMP-x", "M P-1", "MMP-1\n", "MMP-" + "9" * 40]
)
def test_what_is_no_display_id_is_refused(text):
    with pytest.raises(Invalid, match="PREFIX-NUMBER"):
        parse_display_id(text)
