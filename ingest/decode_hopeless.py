"""Lines that are refused without being parsed, because parsing them is what an attacker wants.

Two kinds, both of which a small compressed body can hold by the million:

* **Lines that are too short to be a row.** ``{}`` costs 2 µs to refuse with its words, so that a
  body of 60 MiB of it (275 KB as gzip) took a worker's time for a minute. No line of fewer than 23
  bytes is a row or refused more than once, and words are shown for the first 20 refusals alone.
* **A long line of lists and objects**, each of which takes 20 times its bytes when parsed: 8 MiB
  of ``[],`` took 170 MiB.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from catalog.json_values import CONTAINERS, holds_more
from ingest.decode_lines import BLANKS, Block
from ingest.refusals import WHOLE_LINE, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ingest.refusals import Refusals

ROW_BYTES_MIN = len(b'{"time":1e11,"data":{}}')
"""The shortest line that is not refused: no row yet, but all that a line of metrics needs."""
LINES_AT_ONCE = 1_024
"""After so many lines it is looked anew whether words are still shown."""
LONG_LINE_BYTES = 2**19
CONTAINERS_MAX = 65_536
"""Lists and objects in one line. A row has two at most: structured data comes in strings."""


def without_hopeless(block: Block, refusals: Refusals) -> Iterator[Block]:
    """The block in parts, less those lines that are refused here.

    Line numbers are true as long as words are shown, and mean nothing afterwards.
    """
    if len(block.lines) == 1 and len(block.lines[0]) > LONG_LINE_BYTES:
        if holds_more(block.lines[0], CONTAINERS_MAX, CONTAINERS):
            message = f"more than {CONTAINERS_MAX:,} lists and objects in one line"
            refusals.add(block.first_line, WHOLE_LINE, message, Reason.JSON)
        else:
            yield block
        return
    if len(block.lines) <= LINES_AT_ONCE:
        yield block
        return
    for start in range(0, len(block.lines), LINES_AT_ONCE):
        if refusals.is_full:
            lines = _long_enough(block.lines[start:], refusals)
            if lines:
                yield Block(block.first_line + start, lines)
            return
        yield Block(block.first_line + start, block.lines[start : start + LINES_AT_ONCE])


def _long_enough(lines: list[bytes], refusals: Refusals) -> list[bytes]:
    """The lines that may be rows; those that cannot be are counted as refused, unless blank."""
    for line, count in Counter(line for line in lines if len(line) < ROW_BYTES_MIN).items():
        text = line.strip(BLANKS)
        if text:
            reason = Reason.TIME if text.startswith(b"{") else Reason.JSON
            refusals.add_unseen(count, reason)
    return [line for line in lines if len(line) >= ROW_BYTES_MIN]
