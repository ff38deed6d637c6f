"""What seems wrong with a request of which nothing was accepted: a sentence for its sender."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.refusals import Reason

if TYPE_CHECKING:
    from ingest.decode_rows import Tally

_COMPRESSED = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))


_HINTS = {
    Reason.SECONDS: "times look like seconds: send integer milliseconds since 1970",
    Reason.JSON: "the body is not JSON: send one JSON object a line (newline-delimited JSON)",
    Reason.TOO_LONG: "lines are too long: send one JSON object a line, with newlines between",
}


def hint_of(start: bytes, tally: Tally) -> str:
    """The hint, for a body whose first line begins with `start`."""
    for magic, encoding in _COMPRESSED:
        if start.startswith(magic):
            return f"the body looks compressed: send the header Content-Encoding: {encoding}"
    if not start:
        return "the body holds no lines: send one JSON object a line"
    if start.startswith(b"["):
        return (
            "the body looks like a JSON array: send one object a line (newline-delimited JSON), "
            "without brackets around and commas between"
        )
    return _hint_by_reason(start, tally)


def _hint_by_reason(start: bytes, tally: Tally) -> str:
    refusals = tally.refusals
    if tally.misplaced is not None:
        return f"these look like lines for {tally.misplaced}"
    if not refusals.count:
        return "no line holds a value: nulls are passed over"
    reason, _ = refusals.by_reason.most_common(1)[0]
    if reason is Reason.JSON and start.startswith(b"{"):
        return (
            "lines are not JSON objects by themselves: send each object on one line, "
            "not spread over several or several on one"
        )
    return _HINTS.get(reason, "every line was refused: see errors")
