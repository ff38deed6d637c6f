"""The contract in docs/ingest-api.md is what the code does: its example, its limits, its codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ingest.answers import STATUS, error_list
from ingest.body_decoding import EMPTY_MEMBERS_MAX, ENCODINGS
from ingest.decode_fields import NAME_BYTES_MAX
from ingest.refusals import ERRORS_MAX
from schema.limits import LINE_BYTES_MAX
from tests.ingest.bodies import decode

PAGE = (Path(__file__).parents[2] / "docs" / "ingest-api.md").read_text()


def example(name: str) -> str:
    """The text of a marked code block of the page."""
    found = re.search(rf"<!-- example: {name} -->\n```json\n(.*?)```", PAGE, re.DOTALL)
    assert found, name
    return found[1]


def test_the_example_gets_the_answer_that_the_page_shows():
    decoded = decode(example("metrics request"))
    assert {
        "accepted": decoded.accepted,
        "rejected": decoded.rejected,
        "errors": error_list(decoded.errors),
    } == json.loads(example("metrics answer"))


@pytest.mark.parametrize(
    "says",
    [
        f"longer than {LINE_BYTES_MAX // 2**20} MiB",
        f"{NAME_BYTES_MAX:,} bytes of UTF-8",
        f"the first {ERRORS_MAX} refusals",
        f"members in a row | {EMPTY_MEMBERS_MAX:,}",
        *(f"`{encoding}`" for encoding in ENCODINGS),
    ],
)
def test_the_page_names_the_limits_that_hold(says):
    assert says in PAGE


def test_the_page_lists_every_code_with_its_status():
    listed = re.findall(r"^\| (\d{3}) \| `([A-Z_]+)` \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted((str(status), code.value) for code, status in STATUS.items())
