"""Sqids: a run's number as the short text that its address ends in."""

from __future__ import annotations

import string

from sqids import Sqids

from catalog.run_records import RUN_ID_MAX

_SQIDS = Sqids(
    min_length=5,
    alphabet=string.ascii_lowercase + string.ascii_uppercase + string.digits,
)


def sqid_of(run_id: int) -> str:
    """The sqid of that run: 100 gives `86uR0`."""
    return str(_SQIDS.encode([run_id]))


def run_id_of(sqid: str) -> int | None:
    """The run that the sqid stands for; None where it is no sqid, or not the one we would write."""
    numbers = _SQIDS.decode(sqid)
    if len(numbers) != 1 or numbers[0] > RUN_ID_MAX or sqid_of(numbers[0]) != sqid:
        return None
    return int(numbers[0])
