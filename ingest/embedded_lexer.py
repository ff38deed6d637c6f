"""SQL text → tokens, as ClickHouse's lexer cuts it: comments gone, quoted things told from words.

It need not know the grammar. What it cannot cut the way ClickHouse would, it refuses, so that no
text reads one way here and another way in the engine.

Source: ClickHouse, src/Parsers/Lexer.cpp (quotes, comments, heredocs, typographic quotes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from ingest.embedded_errors import EngineError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator


class TokenKind(Enum):
    """What a token is."""

    WORD = auto()
    QUOTED_NAME = auto()
    STRING = auto()
    NUMBER = auto()
    MARK = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """One token and where it stands in the text."""

    kind: TokenKind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords, in any case; never when quoted."""
        return self.kind is TokenKind.WORD and self.text.upper() in words

    def is_mark(self, mark: str) -> bool:
        """Whether it is this punctuation."""
        return self.kind is TokenKind.MARK and self.text == mark

    @property
    def name(self) -> str | None:
        """The identifier it spells, lower case; None where it is none."""
        if self.kind is TokenKind.WORD:
            return self.text.lower()
        if self.kind is TokenKind.QUOTED_NAME:
            return self.text[1:-1].lower()
        return None


_TOKEN: Final = re.compile(
    r"""
      (?P<space>[\s\x00\ufeff\u200b]+)
    | (?P<comment>--[^\n]*|\#[!\ ][^\n]*|/\*.*?\*/)
    | (?P<string>'(?:[^'\\]|\\.|'')*')
    | (?P<quoted>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*")
    | (?P<heredoc>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<number>\d[\w.]*|\.\d[\w.]*)
    | (?P<word>[A-Za-z_][A-Za-z0-9_$]*)
    | (?P<mark>[-+*/%=<>!&|^~?:;,.(){}\[\]@\\])
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS: Final = {
    "string": TokenKind.STRING,
    "heredoc": TokenKind.STRING,
    "quoted": TokenKind.QUOTED_NAME,
    "number": TokenKind.NUMBER,
    "word": TokenKind.WORD,
    "mark": TokenKind.MARK,
}
_HEX_OR_BITS: Final = re.compile(r"'[0-9A-Fa-f]*'")


def tokens_of(text: str, start: int = 0) -> Iterator[Token]:
    """The tokens from `start` on, lazily: what follows an INSERT's FORMAT is data, never read.

    Raises:
        EngineError: 62, at a character that cannot begin a token, an unclosed quote, or a spelling
            that ClickHouse would cut otherwise (typographic quotes, escapes in quoted names).
    """
    at, length = start, len(text)
    former: Token | None = None
    while at < length:
        match = _TOKEN.match(text, at)
        if match is None:
            raise syntax_error(text, at)
        group = match.lastgroup if match.lastgroup != "tag" else "heredoc"
        at = match.end()
        kind = _KINDS.get(group or "")
        if kind is None:
            continue
        token = Token(kind, match.group(), match.start(), at)
        _check(text, token, former)
        yield token
        former = token


def syntax_error(text: str, at: int) -> EngineError:
    """ClickHouse's answer to what it cannot read."""
    return refuse(
        62, "SYNTAX_ERROR", f"Syntax error: failed at position {at + 1}: {text[at : at + 40]}"
    )


def _check(text: str, token: Token, former: Token | None) -> None:
    if token.kind is TokenKind.QUOTED_NAME and "\\" in token.text:
        # `fi\x6ce` is `file` to the engine: nobody needs it, and nothing here has to decode it.
        raise syntax_error(text, token.start)
    is_glued = former is not None and former.end == token.start and former.kind is TokenKind.WORD
    if (
        is_glued
        and former is not None
        and token.kind is TokenKind.STRING
        and former.text.lower() in ("x", "b")
        and not _HEX_OR_BITS.fullmatch(token.text)
    ):
        # x'..' knows no escapes: the engine would end it at another quote than we do.
        raise syntax_error(text, token.start)
