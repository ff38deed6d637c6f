"""One thing that `charon doctor` has looked at."""

from __future__ import annotations

from dataclasses import dataclass

OK, NOTE, WARNING, ERROR = "ok", "note", "warning", "error"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, and what to do about it.

    Attributes:
        subject: settings, Python, disk, server, ClickHouse or catalogue.
        state: ok, note, warning or error; an error means that the server cannot do its work.
        found: what was seen.
        advice: what to do; empty when there is nothing to do.
    """

    subject: str
    state: str
    found: str
    advice: str = ""
