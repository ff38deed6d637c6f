"""How deep JSON may be nested where Python's own parser reads it: as deep under every Python.

Up to Python 3.11 a level of JSON counts as a call, so that about 1,000 are too many, as they are
for orjson. 3.12 and 3.13 take 10,000, and 3.14 what the stack holds. What is accepted must not go
by who runs the server, and code of ours that follows a value inwards must know an end to it.
"""

from __future__ import annotations

import json
from typing import Any

LEVELS_MAX = 1_000


def loads(text: str | bytes, **hooks: Any) -> Any:  # noqa: ANN401 - JSON may be anything
    """As `json.loads`, hooks and all.

    Raises:
        ValueError: it is no JSON. RecursionError: it is nested more than `LEVELS_MAX` deep.
    """
    value = json.loads(text, **hooks)
    check(text, value)
    return value


def check(text: str | bytes, value: object) -> None:
    """See whether a parsed text is nested too deeply; as good as free where it has few brackets.

    Raises:
        RecursionError: it is, as the parser itself would have said under Python 3.11.
    """
    brackets = (
        text.count("[") + text.count("{")
        if isinstance(text, str)
        else text.count(b"[") + text.count(b"{")
    )
    if brackets <= LEVELS_MAX:
        return
    level: list[Any] = [[value]]
    for _ in range(LEVELS_MAX + 1):
        level = [
            part
            for whole in level
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if isinstance(part, dict | list)
        ]
        if not level:
            return
    raise RecursionError(f"JSON is nested more than {LEVELS_MAX} deep")
