"""Times as text, for clients and people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, where Python's calendar stops; the wire's goes on to 275760."""
_CYCLE_MS = 146_097 * 86_400_000
_CYCLE_YEARS = 400


def iso_time(time_ms: int, timespec: str = "milliseconds") -> str:
    """ISO-8601 in UTC with Z; a year of more than four digits as JavaScript writes it: `+010000-…`.

    Args:
        time_ms: since 1970.
        timespec: as of `datetime.isoformat`.
    """
    # The calendar repeats itself every 400 years, to the day.
    cycles = max(0, -(-(time_ms - _LAST_MS) // _CYCLE_MS))
    moment = _EPOCH + timedelta(milliseconds=time_ms - cycles * _CYCLE_MS)
    text = moment.isoformat(timespec=timespec).removesuffix("+00:00") + "Z"
    return f"+{moment.year + cycles * _CYCLE_YEARS:06}{text[4:]}" if cycles else text
