"""What can go wrong in the buffer, by what the caller should do about it."""

from __future__ import annotations


class BufferFailure(Exception):
    """Any error of this package."""


class Unavailable(BufferFailure):
    """Rows could not be made durable now; the same request may succeed later.

    Attributes:
        retry_after_seconds: when another try is sensible.
    """

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class LogFull(Unavailable):
    """No room: the disk, a quota or the log's cap is reached. Nothing of the request was stored."""


class OutcomeUnknown(Unavailable):
    """A sync failed: the rows may or may not be delivered one day. Never answered with a 2xx."""


class Closed(Unavailable):
    """The buffer is shutting down or has stopped; nothing of the request was stored."""


class Broken(BufferFailure):
    """An invariant of ours does not hold, or its state is unknown; the worker must stop."""


class Damaged(BufferFailure):
    """Bytes on disk are not what was written: says shard, segment, byte offset, expected, found."""


class UnknownFormat(BufferFailure):
    """A file of a version that this release does not know; says which versions it does know."""


class ShardTaken(BufferFailure):
    """Another living process holds the shard's lock; names its pid where it is known."""
