"""Display ids, `MMP-1`: the project's prefix and the run's number in its project."""

from __future__ import annotations

import re

from catalog.errors import Invalid

_SEPARATORS = re.compile(r"[-_\s.]+")
_DISPLAY_ID = re.compile(r"([A-Za-z0-9]+)-([0-9]+)", re.ASCII)
_NUMBER_DIGITS_MAX = 18


def prefix_of(project_name: str) -> str:
    """The prefix that a project's name gives: one to four letters, in upper case.

    `my-ml-project` gives MMP, `training` TRA, `resnet-50` R50, `---` RUN. Two projects may share
    one.
    """
    words = [word for word in _SEPARATORS.split(project_name) if word]
    if not words:
        return "RUN"
    if len(words) == 1:
        return words[0][:3].upper()
    initials = "".join(word[0] for word in words)
    if len(initials) < 3:
        initials = initials[:-1] + words[-1][: 3 - len(initials) + 1]
    return initials[:4].upper()


def display_id(prefix: str, number: int) -> str:
    """The id as people read it."""
    return f"{prefix}-{number}"


def parse_display_id(text: str) -> tuple[str, int]:
    """Prefix, in upper case, and number.

    Raises:
        Invalid: it is no display id.
    """
    match = _DISPLAY_ID.fullmatch(text)
    if match is None or len(match[2].lstrip("0")) > _NUMBER_DIGITS_MAX:
        raise Invalid("Invalid displayId format. Expected PREFIX-NUMBER (e.g., 'MMP-1')")
    return match[1].upper(), int(match[2])
