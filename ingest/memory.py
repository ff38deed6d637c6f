"""How the C library keeps the memory that a worker gives back.

A block of 200,000 rows is made in pieces of 128 KiB and given back some 100 ms later. As glibc is
set out of the box, each thread has a heap of its own, and its end goes back to the kernel at once:
the next block finds none of it, and 1,500 pages are cleared for it anew, which took as long as all
else that its building does.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

HEAPS = 1
"""Python's lock lets one thread at a time allocate: more heaps are more memory that lies idle."""
KEPT_BYTES_MAX = 32 * 2**20
"""Of free memory at the heap's end: what three blocks take."""
MAPPED_BYTES = 4 * 2**20
"""From this size on memory comes from the kernel and goes back to it, whatever is kept."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Source: glibc's ``malloc.h``."""


def keep_memory() -> None:
    """Sets it for this process, before its threads start; does nothing with another C library."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, HEAPS)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES_MAX)
        mallopt(_MMAP_THRESHOLD, MAPPED_BYTES)
