"""What can go wrong in the catalogue, by what the caller should do about it."""

from __future__ import annotations


class CatalogFailure(Exception):
    """Any error of this package."""


class Refused(CatalogFailure):
    """The sender's: the request does not fit what is stored, or what may be stored."""


class NotFound(Refused):
    """Nothing of that name or number belongs to the organisation that asks."""


class Conflict(Refused):
    """More than one thing matches, or something else is already there under that name."""


class Invalid(Refused):
    """A value that is well formed and yet makes no sense here."""


class TooLong(Refused):
    """A name above its limit; the message names the field and the limit."""


class TooLarge(Refused):
    """A document above its limit in bytes; the message names the field and the limit."""


class Unavailable(CatalogFailure):
    """The database cannot be reached, is busy, or is not migrated yet; try again later.

    The message names no host, user or statement: it may be shown to a client.
    """


class Interrupted(Unavailable):
    """The transaction came to no end through no fault of its own.

    Attributes:
        may_be_committed: it may be there all the same, if its commit was on its way.
    """

    def __init__(self, message: str, *, may_be_committed: bool) -> None:
        super().__init__(message)
        self.may_be_committed = may_be_committed


class Broken(CatalogFailure):
    """An invariant of ours does not hold."""


class NewerDatabase(CatalogFailure):
    """The database was migrated by a newer release, which this one must not write to."""
