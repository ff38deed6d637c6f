"""One statement of a client: what it is, where its parts stand, what the engine never sees."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ingest.embedded_errors import EngineError, refuse
from ingest.embedded_lexer import Token, TokenKind, tokens_of

QUERY_CHARS_MAX: Final = 262_144
"""ClickHouse's own default of max_query_size."""


class StatementKind(Enum):
    """Which path a statement takes."""

    SELECT = auto()
    """Answers rows, of any number: streamed."""
    DESCRIBE = auto()
    """Answers a few rows."""
    INSERT_DATA = auto()
    """Takes the data that follows it."""
    COMMAND = auto()
    """Changes tables; may take long."""
    CONTROL = auto()
    """KILL, SET, USE, SYSTEM: short, and must run when all else is busy."""
    OTHER = auto()
    """Nothing that is offered, or nothing that parses: the engine's parser tells which."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that this front lets pass, as tokens and text.

    `text` is without a trailing semicolon. Of an INSERT with data it ends after the format's name,
    and `data_start` is the offset in characters at which its data begins.
    """

    kind: StatementKind
    text: str
    tokens: tuple[Token, ...]
    data_start: int = 0

    @property
    def first_word(self) -> str:
        """The leading keyword, upper case."""
        return self.tokens[0].text.upper()


_KINDS: Final = {
    "SELECT": StatementKind.SELECT,
    "WITH": StatementKind.SELECT,
    "FROM": StatementKind.SELECT,
    "(": StatementKind.SELECT,
    "SHOW": StatementKind.DESCRIBE,
    "DESCRIBE": StatementKind.DESCRIBE,
    "DESC": StatementKind.DESCRIBE,
    "EXPLAIN": StatementKind.DESCRIBE,
    "EXISTS": StatementKind.DESCRIBE,
    "CHECK": StatementKind.DESCRIBE,
    "INSERT": StatementKind.INSERT_DATA,
    "CREATE": StatementKind.COMMAND,
    "ALTER": StatementKind.COMMAND,
    "DROP": StatementKind.COMMAND,
    "UNDROP": StatementKind.COMMAND,
    "TRUNCATE": StatementKind.COMMAND,
    "RENAME": StatementKind.COMMAND,
    "EXCHANGE": StatementKind.COMMAND,
    "OPTIMIZE": StatementKind.COMMAND,
    "DELETE": StatementKind.COMMAND,
    "UPDATE": StatementKind.COMMAND,
    "REPLACE": StatementKind.COMMAND,
    "KILL": StatementKind.CONTROL,
    "SET": StatementKind.CONTROL,
    "USE": StatementKind.CONTROL,
    "SYSTEM": StatementKind.CONTROL,
}


def read_statement(text: str, refused_functions: frozenset[str]) -> Statement:
    """The one statement in a text.

    Args:
        text: the whole text; for an INSERT with data at least its head.
        refused_functions: names, lower case, that may not be called.

    Raises:
        EngineError: 62 (nothing there, more than one statement, no tokens, too long); 497 (a file
            or network function, a file of the server).
    """
    tokens: list[Token] = []
    for token in tokens_of(text):
        if token.is_mark(";"):
            _check_nothing_follows(text, token)
            break
        tokens.append(token)
        _check_token(token, tokens, refused_functions)
        if token.end > QUERY_CHARS_MAX:
            raise refuse(
                62, "SYNTAX_ERROR", f"Max query size exceeded: {QUERY_CHARS_MAX} characters"
            )
        data = _insert_data_start(text, tokens)
        if data is not None:
            return Statement(StatementKind.INSERT_DATA, text[: token.end], tuple(tokens), data)
    if not tokens:
        raise refuse(62, "SYNTAX_ERROR", "Syntax error: Empty query")
    kind = _KINDS.get(tokens[0].text.upper(), StatementKind.OTHER)
    if kind is StatementKind.INSERT_DATA:  # without data after it: INSERT … SELECT
        kind = StatementKind.COMMAND
    return Statement(kind, text[: tokens[-1].end], tuple(tokens))


def insert_from(statement: Statement, file: str) -> str:
    """An INSERT with data, as one that reads the data from a file of ours."""
    tokens = statement.tokens
    last = tokens[-1]
    is_values = last.is_word("VALUES")
    cut = last if is_values else tokens[-2]
    for token in tokens[:-1]:
        if token.is_word("SETTINGS") and _depth(tokens, token) == 0:
            cut = token
            break
    head, tail = statement.text[: cut.start], statement.text[cut.start :]
    if is_values:
        tail = f"{statement.text[cut.start : last.start]} FORMAT Values"
    return f"{head} FROM INFILE '{file}' {tail}"


def insert_format(statement: Statement) -> str:
    """The format of an INSERT's data."""
    last = statement.tokens[-1]
    return "Values" if last.is_word("VALUES") else last.text


def select_into(statement: Statement, file: str, default_format: str) -> tuple[str, str]:
    """A SELECT that writes its answer into a file of ours, and its format's name."""
    into = f"\nINTO OUTFILE '{file}' APPEND\n"
    at = output_format(statement)
    if at is None:
        return f"{statement.text}{into}FORMAT {default_format}", default_format
    token = statement.tokens[at]
    text = statement.text
    return f"{text[: token.start]}{into}{text[token.start :]}", statement.tokens[at + 1].text


def output_format(statement: Statement) -> int | None:
    """Index of the FORMAT keyword that ends the statement (SETTINGS may follow), or None."""
    tokens = statement.tokens
    for at in range(len(tokens) - 2, 0, -1):
        if tokens[at].is_word("FORMAT") and tokens[at + 1].kind is TokenKind.WORD:
            is_end = at + 2 == len(tokens) or tokens[at + 2].is_word("SETTINGS")
            if is_end and _depth(tokens, tokens[at]) == 0:
                return at
    return None


def _depth(tokens: tuple[Token, ...], until: Token) -> int:
    depth = 0
    for token in tokens:
        if token is until:
            break
        if token.kind is TokenKind.MARK:
            depth += (token.text in "([{") - (token.text in ")]}")
    return depth


def _check_nothing_follows(text: str, semicolon: Token) -> None:
    for token in tokens_of(text, semicolon.end):
        if not token.is_mark(";"):
            raise refuse(
                62,
                "SYNTAX_ERROR",
                f"Syntax error (Multi-statements are not allowed): failed at position "
                f"{semicolon.start + 1} (end of query): send one statement a request",
            )


def _check_token(token: Token, tokens: list[Token], refused_functions: frozenset[str]) -> None:
    if token.is_word("INFILE", "OUTFILE"):
        raise _denied(f"{token.text.upper()} reads or writes a file of the server")
    if not token.is_mark("(") or len(tokens) < 2:
        return
    name = tokens[-2].name
    if name in refused_functions:
        raise _denied(f"function {name} reaches files, processes or other servers")


def _insert_data_start(text: str, tokens: list[Token]) -> int | None:
    """Where an INSERT's data begins, once its head is complete."""
    if not tokens[0].is_word("INSERT") or len(tokens) < 3:
        return None
    last = tokens[-1]
    is_values = last.is_word("VALUES")
    is_format = last.kind is TokenKind.WORD and tokens[-2].is_word("FORMAT")
    if not (is_values or is_format) or _depth(tuple(tokens), last) != 0:
        return None
    if any(token.is_word("SELECT", "WITH", "WATCH") for token in tokens):
        return None
    return last.end if is_values else _after_line_break(text, last.end)


def _after_line_break(text: str, at: int) -> int:
    """After FORMAT's name: blanks, at most one line break, or one semicolon, are not data."""
    end = at
    while end < len(text) and text[end] in " \t\r":
        end += 1
    if end < len(text) and text[end] == ";":
        end += 1
    if end < len(text) and text[end] == "\n":
        return end + 1
    return end


def _denied(what: str) -> EngineError:
    return refuse(497, "ACCESS_DENIED", f"Not allowed here: {what}")
