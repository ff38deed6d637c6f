"""What was refused of a request: how many, why, and the first of them by line and field.

A refusal is the smallest thing that can be refused: a metric's value or name, else a line. It is
told to the client in the answer of the very request, so nothing of it is stored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

ERRORS_MAX = 20
"""Refusals that an answer spells out; the rest are counted, since there may be millions."""

SHOWN_CHARACTERS_MAX = 100
"""A name in a message: enough to find it, short enough that 20 of them stay a small answer."""

WHOLE_LINE = "line"
"""The field of a refusal that concerns a line as JSON and not one field of it."""


class Reason(Enum):
    """Kinds of refusal: a label of counters, and what a hint is drawn from."""

    JSON = "json"
    TOO_LONG = "too_long"
    TIME = "time"
    SECONDS = "seconds"
    STEP = "step"
    NAME = "name"
    VALUE = "value"
    FIELD = "field"


@dataclass(frozen=True, slots=True)
class LineError:
    """One refusal as an answer shows it: line number from 1, field, what to send instead."""

    line: int
    field: str
    error: str


class Refused(Exception):
    """A line cannot become a row: which field, why, and what would be right."""

    def __init__(self, field: str, error: str, reason: Reason) -> None:
        super().__init__(field, error)
        self.field = field
        self.error = error
        self.reason = reason


class Refusals:
    """The refusals of one request. Memory is bounded whatever the body holds."""

    def __init__(self) -> None:
        self.errors: list[LineError] = []
        self.by_reason: Counter[Reason] = Counter()
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether further refusals are only counted, so that their words need not be found."""
        return len(self.errors) >= ERRORS_MAX

    def add(self, line: int, field: str, error: str, reason: Reason) -> None:
        """Count one refusal; keep its words while there is room."""
        self.count += 1
        self.by_reason[reason] += 1
        if len(self.errors) < ERRORS_MAX:
            self.errors.append(LineError(line, field, error))

    def add_unseen(self, count: int, reason: Reason) -> None:
        """Count refusals whose words would not be shown: `is_full` holds."""
        self.count += count
        self.by_reason[reason] += count

    def add_refused(self, line: int, refused: Refused) -> None:
        """Count one refusal that was raised."""
        self.add(line, refused.field, refused.error, refused.reason)


def shown(text: str) -> str:
    """The text as a message may show it: cut to 100 characters, without raw control characters."""
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = f"{text[:SHOWN_CHARACTERS_MAX]}… ({len(text):,} characters)"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
