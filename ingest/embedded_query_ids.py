"""`query_id` as clients know it, in a statement's text.

chDB gives every statement an id of its own and takes none, so a client's id travels in the setting
`log_comment`. Where a client names `query_id` in KILL QUERY, or reads `system.processes`, its own
id is put in the engine's place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ingest.embedded_connection import QUERY_ID_SETTING

if TYPE_CHECKING:
    from ingest.embedded_lexer import Token
    from ingest.embedded_statement import Statement

_CLIENTS_ID: Final = (
    f"if(Settings['{QUERY_ID_SETTING}'] != '', Settings['{QUERY_ID_SETTING}'], query_id)"
)
_PROCESSES: Final = f"(SELECT * REPLACE ({_CLIENTS_ID} AS query_id) FROM system.processes)"  # noqa: S608 - ours alone


def reads_processes(statement: Statement) -> bool:
    """Whether it looks at what runs, which must be answered while every reader is busy."""
    return bool(_processes_places(statement.tokens))


def with_processes(statement: Statement) -> str:
    """A SELECT's text, its `system.processes` showing the clients' ids."""
    return _replaced(
        statement.text,
        [(start, end, _PROCESSES) for start, end in _processes_places(statement.tokens)],
    )


def with_kill(statement: Statement) -> str:
    """A KILL QUERY's text, its `query_id` meaning the clients' ids."""
    places = [
        (token.start, token.end, _CLIENTS_ID)
        for token in statement.tokens
        if token.name == "query_id"
    ]
    return _replaced(statement.text, places)


def _processes_places(tokens: tuple[Token, ...]) -> list[tuple[int, int]]:
    return [
        (first.start, last.end)
        for first, dot, last in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if first.name == "system" and dot.is_mark(".") and last.name == "processes"
    ]


def _replaced(text: str, places: list[tuple[int, int, str]]) -> str:
    for start, end, instead in reversed(places):
        text = text[:start] + instead + text[end:]
    return text
