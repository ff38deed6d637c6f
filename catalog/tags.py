"""Tags of a run: an ordered list, with at most one that names a group."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from catalog.errors import Invalid, TooLong
from catalog.names import storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TAGS_MAX = 50
TAG_LENGTH_MAX = 1_024
GROUP_PREFIX = "group:"


def checked_tags(tags: Sequence[str]) -> list[str]:
    """The tags as they are stored.

    Raises:
        Invalid: more than one names a group, or there are too many. TooLong: one is.
    """
    if len(tags) > TAGS_MAX:
        raise Invalid(f"tags may have at most {TAGS_MAX} entries, and has {len(tags)}")
    for tag in tags:
        if len(tag) > TAG_LENGTH_MAX:
            raise TooLong(
                f"tags: a tag may have at most {TAG_LENGTH_MAX} characters, and one has {len(tag)}"
            )
    if sum(tag.startswith(GROUP_PREFIX) for tag in tags) > 1:
        raise Invalid("A run can have at most one group:* tag.")
    return [storable(tag) for tag in tags]


def inherited_tags(parent: Iterable[str], own: Iterable[str]) -> list[str]:
    """Both lists' tags, the parent's first, each once, with only the last of the group tags."""
    union = list(dict.fromkeys([*parent, *own]))
    groups = [tag for tag in union if tag.startswith(GROUP_PREFIX)]
    return [tag for tag in union if tag not in groups[:-1]]


def tags_to_text(tags: Sequence[str]) -> str:
    """As the column holds them."""
    return json.dumps(list(tags))


def tags_from_text(text: str) -> list[str]:
    """As the column held them."""
    return [str(tag) for tag in json.loads(text)]
