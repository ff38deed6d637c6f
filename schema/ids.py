"""Types of the numbers and names that travel through the whole of Charon.

An index, a count and an identity are different things; the type checker keeps them apart.
"""

from __future__ import annotations

from typing import NewType

TenantId = NewType("TenantId", str)
"""An organisation's id, as its API keys say; the first column of every sorting key."""

RunId = NewType("RunId", int)
"""A run's number, 0 < id < 2**64; never used again for another run."""

RowCount = NewType("RowCount", int)
"""How many rows; of one table, unless said otherwise."""

BlockNumber = NewType("BlockNumber", int)
"""Value of the column ``batch``: shard tag in the upper 32 bits, a counter of that shard below."""
