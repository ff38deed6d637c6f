"""The numbers that bound the buffer. Each default says why."""

from __future__ import annotations

from dataclasses import dataclass

_MAY_BE_NOTHING = ("ahead_bytes", "disk_free_bytes_min", "group_spacing_seconds")


@dataclass(frozen=True, slots=True)
class BufferOptions:
    """Sizes in bytes, spans in seconds. Checked against each other when made.

    Raises:
        ValueError: two bounds contradict each other; says which and what to change.
    """

    segment_bytes_max: int = 64 * 2**20
    """Rotation: delivered log goes soon, and a file a second is the worst."""
    ahead_bytes: int = 2**20
    """Zeros written ahead of the log's end at a time, where groups are small: the next syncs then
    take half as long. It is written as often as the log has grown by so much, with one group that
    takes a millisecond longer, and a start reads it; what is left is cut off with the segment."""
    group_bytes_max: int = 8 * 2**20
    """One write: a longer group only delays its first request. A larger request is one alone."""
    group_frames_max: int = 1_024
    group_spacing_seconds: float = 0.005
    group_requests_enough: int = 128
    """After a group of several requests the next begins so long after it began, or when so many
    wait, or as many as there were in the groups before. A sync costs the same for one request as
    for thirty: on a disk that is quick, requests would else be synced by ones and twos, and take
    twice the CPU. Alone, a request never waits."""
    queue_bytes_max: int = 64 * 2**20
    """Frames waiting for the committer; past it `append` raises `LogFull`."""
    log_bytes_max: int = 16 * 2**30
    """All shards together; past it requests are held, then refused."""
    disk_free_bytes_min: int = 2 * 2**30
    """Left free: an embedded engine on the same disk must insert and merge while the log drains."""
    batch_rows_max: int = 200_000
    batch_bytes_max: int = 32 * 2**20
    batch_age_seconds_max: float = 1.0
    """A batch is sent when rows, bytes or its oldest frame has this age, whichever is first."""
    repeat_seconds: float = 600.0
    repeat_requests_max: int = 200_000
    repeat_log_bytes_max: int = 256 * 2**20
    """The window in which a repeat is answered from memory, and the delivered log kept for it."""
    quarantine_bytes_max: int = 2**30
    """At this cap a table's cursor waits: nothing is thrown away to make room."""
    sync_stall_seconds: float = 5.0
    """A sync that takes longer turns readiness off."""

    def __post_init__(self) -> None:
        """Refuse bounds that contradict each other."""
        for name in self.__slots__:
            if getattr(self, name) <= 0 and name not in _MAY_BE_NOTHING:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.log_bytes_max < 2 * self.segment_bytes_max:
            raise ValueError(
                f"log_bytes_max ({self.log_bytes_max}) must hold at least two segments of "
                f"segment_bytes_max ({self.segment_bytes_max}): raise the one or lower the other"
            )
