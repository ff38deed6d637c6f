"""The page that operators read says what the code does."""

import re
from pathlib import Path

from buffer import bisection
from buffer.retry import OPERATOR_SECONDS, TRANSIENT_SECONDS
from buffer.shard import QUARANTINE_NAME
from schema.chcodes import SERVER_CODES

PAGE = (Path(__file__).parents[2] / "docs" / "delivery.md").read_text()


def test_every_code_is_listed_with_its_class_and_source():
    listed = set(re.findall(r"^\| (\d+) \| (\w+) \| (\w+) \| (.+) \|$", PAGE, re.MULTILINE))
    assert listed == {
        (str(row.code), row.name, row.error_class.value, row.source) for row in SERVER_CODES
    }


def test_the_numbers_of_the_page_are_the_codes():
    first, longest = TRANSIENT_SECONDS
    assert f"from {first:g} s to {longest:g} s" in PAGE
    first, longest = OPERATOR_SECONDS
    assert f"from {first:g} s to {longest:g} s" in PAGE
    assert f"more than {bisection.BAD_FRAMES_MAX} frames" in PAGE
    assert f"{bisection.INSERTS_MAX} inserts" in PAGE
    assert f"/{QUARANTINE_NAME}/" in PAGE
