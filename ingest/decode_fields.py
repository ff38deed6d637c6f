"""The fields that lines of several streams share: what each may hold, and what to send instead.

Every function takes a line's object and gives a checked value or raises `Refused`.
"""

from __future__ import annotations

from typing import Any

from ingest.refusals import WHOLE_LINE, Reason, Refused, shown
from schema.limits import STEP_ABS_MAX, TIME_MS_MAX, TIME_MS_MIN

NAME_BYTES_MAX = 65_536
"""UTF-8 bytes of a name or type: they are part of keys, which an engine holds in memory."""

_SECONDS_MIN = 10**8
_MICROSECONDS_MIN = 10**14
_UINT64_END = 2**64
_MISSING = object()
_KINDS = {
    bool: "a boolean",
    str: "a string",
    dict: "an object",
    list: "a list",
    type(None): "null",
    float: "a fraction",
    int: "a number",
}


def row_object(value: object) -> dict[str, Any]:
    """The line's value as an object."""
    if type(value) is dict:
        return value
    raise Refused(WHOLE_LINE, f"not a JSON object but {kind_of(value)}", Reason.JSON)


def row_time(row: dict[str, Any]) -> int:
    """Milliseconds since 1970, as sent; a float without a fraction is taken."""
    time = row.get("time", _MISSING)
    if type(time) is float and time.is_integer():
        time = int(time)
    if type(time) is not int:
        raise Refused(
            "time", f"must be integer milliseconds since 1970, {_found(time)}", Reason.TIME
        )
    if TIME_MS_MIN <= time <= TIME_MS_MAX:
        return time
    if _SECONDS_MIN <= time < TIME_MS_MIN:
        message = f"{time} looks like seconds; send milliseconds: {time * 1000}"
        raise Refused("time", message, Reason.SECONDS)
    if time < TIME_MS_MIN:
        message = (
            f"{_digits(time)} is before 1973 as milliseconds since 1970; nothing so old is taken"
        )
        raise Refused("time", message, Reason.TIME)
    finer = "; it looks like microseconds or nanoseconds" if time >= _MICROSECONDS_MIN else ""
    message = f"{_digits(time)} is after the year 2299 as milliseconds since 1970{finer}"
    raise Refused("time", message, Reason.TIME)


def row_step(row: dict[str, Any]) -> float:
    """A finite float64, at most 2**53 either way, however spelled; 0 where missing or null."""
    step = row.get("step")
    if step is None:
        return 0.0
    if type(step) is not int and type(step) is not float:
        raise Refused("step", f"must be a number, {_found(step)}", Reason.STEP)
    if not -STEP_ABS_MAX <= step <= STEP_ABS_MAX:
        raise Refused("step", f"must be from -2**53 to 2**53, not {_digits(step)}", Reason.STEP)
    return step + 0.0


def row_text(row: dict[str, Any], field: str) -> str:
    """A string, which may be empty."""
    text = row.get(field, _MISSING)
    if type(text) is not str:
        raise Refused(field, f"must be a string, {_found(text)}", Reason.FIELD)
    return text


def row_name(row: dict[str, Any], field: str) -> str:
    """A string that is neither blank nor endless."""
    name = row_text(row, field)
    problem = problem_of_name(name)
    if problem is not None:
        raise Refused(field, problem, Reason.NAME)
    return name


def row_uint64(row: dict[str, Any], field: str) -> int:
    """An integer from 0 to 2**64 - 1; a float with no fraction is taken."""
    number = row.get(field, _MISSING)
    if type(number) is float and number.is_integer():
        number = int(number)
    if type(number) is not int:
        raise Refused(field, f"must be an integer, {_found(number)}", Reason.FIELD)
    if not 0 <= number < _UINT64_END:
        raise Refused(field, f"must be from 0 to 2**64 - 1, not {_digits(number)}", Reason.FIELD)
    return number


def problem_of_name(name: str) -> str | None:
    """Why a name is refused, or None. Any character is taken, NUL too; blank names name nothing."""
    if not name or name.isspace():
        return "must not be blank"
    if len(name) * 4 > NAME_BYTES_MAX and len(name.encode()) > NAME_BYTES_MAX:
        return f"must be at most {NAME_BYTES_MAX:,} bytes of UTF-8"
    return None


def kind_of(value: object) -> str:
    """What a value is, for a message."""
    return _KINDS[type(value)]


def _found(value: object) -> str:
    if value is _MISSING:
        return "but is missing"
    text = (
        f" {shown(value)!r}" if type(value) is str else f" {value}" if type(value) is float else ""
    )
    return f"not {kind_of(value)}{text}"


def _digits(number: float) -> str:
    """A number for a message; a very large one is not written out."""
    return str(number) if abs(number) < 10**20 else f"{float(number):g}"
