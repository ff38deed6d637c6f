"""Random identifiers in nanoid's alphabet, from the system's secure source."""

from __future__ import annotations

import secrets
import string

ALPHABET = string.ascii_letters + string.digits + "_-"
"""64 letters: 6 bits each."""

_PLAIN = string.ascii_letters + string.digits


def nanoid(length: int) -> str:
    """`length` random letters; 24 hold 144 bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def random_id() -> str:
    """A row's identity: 21 letters and digits, 125 bits; never what looks like an option."""
    return "".join(secrets.choice(_PLAIN) for _ in range(21))
