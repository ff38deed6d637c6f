"""The buffer: rows in, durable at once; rows out to ClickHouse, each once.

What happens to a request's rows, and which module does it::

    append ─▶ committer ─▶ log ─▶ segment          one write, one fdatasync, many answers
                            │
      cursor ◀──────────────┘   synced frames only, each table at its own pace
        │
      flusher ─▶ checkpoint     the batch's bounds, on disk before the first try
        │
      building ─▶ sink ─▶ ClickHouse     one block, one part, one token
        │             │
        │             ├─ taken ─▶ checkpoint ─▶ log.release
        │             ├─ not known ─▶ settle, ask for the block's number, generation + 1
        │             └─ refused for a row ─▶ bisection ─▶ quarantine
        └─ damage, or rows that the live table cannot hold ─▶ quarantine

**Shards.** A shard is a directory with a random id, a lock, one log and one checkpoint. A worker
holds one and appends to it; `adoption` drains those that have lost their worker.

**Threads and tasks.** The event loop owns all state. Each shard has three threads: one commits,
one writes the checkpoint and looks at the disk, one reads. Blocks are built on a thread, one at a
time. Each stream of each shard has a flusher task, so that one table's trouble holds up no other; a
task that dies is started again, and seen while it is down (`tasks`).

**The legal order of calls.** ``open``, ``start``; then ``repeat_of``, ``append``, ``room`` and
``statistics`` in any order; then ``close`` (bounded by its grace), or ``terminate``. The sink is
the caller's: made before ``open``, closed after ``close``.

**Three families of errors** (`errors`): `Unavailable` is the world's and may be tried again;
`Broken` is ours and ends the worker; `Damaged` and `UnknownFormat` speak of files. What ClickHouse
says is a `SinkError`, which never leaves this package: ``docs/delivery.md``.

Formats: ``docs/wal-format.md``, ``docs/chunk-format.md``; `quarantine` draws its own.
"""

from buffer.errors import Broken, BufferFailure, Closed, LogFull, OutcomeUnknown, Unavailable
from buffer.frame import Receipt, Submission
from buffer.options import BufferOptions
from buffer.writeahead import WriteAheadBuffer

__all__ = [
    "Broken",
    "BufferFailure",
    "BufferOptions",
    "Closed",
    "LogFull",
    "OutcomeUnknown",
    "Receipt",
    "Submission",
    "Unavailable",
    "WriteAheadBuffer",
]
