"""What a key may do: write rows and runs, read them, or everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

INGEST = "ingest"
"""Send rows, and make and change runs: what a training process does."""
READ = "read"
"""Read what is there."""
ADMIN = "admin"
"""Everything, the other two included."""

ALL_SCOPES = frozenset({INGEST, READ, ADMIN})
SDK_SCOPES = frozenset({INGEST, READ})
"""What a key has unless it is said otherwise: what the SDK needs, and nothing above it."""


def checked_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes with what they include.

    Raises:
        Invalid: none, or one that does not exist.
    """
    wanted = frozenset(scopes)
    unknown = sorted(wanted - ALL_SCOPES)
    if unknown or not wanted:
        what = f"there is no scope {unknown[0]!r}" if unknown else "a key needs a scope"
        raise Invalid(f"scopes: {what}; give one or more of {', '.join(sorted(ALL_SCOPES))}")
    return ALL_SCOPES if ADMIN in wanted else wanted


def scopes_from_text(text: str) -> frozenset[str]:
    """As the column holds them; a word that a newer release knows gives nothing here."""
    found = frozenset(word.strip() for word in text.split(",")) & ALL_SCOPES
    return ALL_SCOPES if ADMIN in found else found


def scopes_to_text(scopes: Iterable[str]) -> str:
    """As the column holds them."""
    return ",".join(sorted(scopes))
