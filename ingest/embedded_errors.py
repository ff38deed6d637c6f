"""What the engine's failures look like to a ClickHouse client: code, name, text, HTTP status."""

from __future__ import annotations

import re
from typing import Final

_CODE: Final = re.compile(r"Code: (\d+)\.")
_NAME: Final = re.compile(r"\(([A-Z][A-Z0-9_]+)\)")

UNKNOWN_EXCEPTION: Final = 1002

# Source: ClickHouse, src/Server/HTTP/exceptionCodeToHTTPStatus.cpp; all other codes are 500.
_STATUSES: Final[dict[int, tuple[int, ...]]] = {
    400: (
        *(6, 8, 15, 25, 26, 27, 36, 37, 38, 41, 44, 53, 62, 72, 117, 123, 167, 168),
        *(223, 321, 376, 427, 441, 675, 676),
    ),
    401: (194,),
    403: (192, 193, 497, 512, 516),
    404: (46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 152, 336, 511),
    408: (159,),
    411: (381,),
    413: (229,),
    415: (779,),
    501: (48,),
    503: (76, 209, 439),
}
_STATUS_OF: Final = {code: status for status, codes in _STATUSES.items() for code in codes}


class EngineError(Exception):
    """One exception of ClickHouse, raised by the engine or by this front in its manner."""

    def __init__(self, code: int, name: str, text: str, *, status: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.name = name
        self.text = text
        self.status = _STATUS_OF.get(code, 500) if status is None else status


def refuse(code: int, name: str, message: str, *, status: int | None = None) -> EngineError:
    """An error made here, worded as the engine words its own.

    `status` is of HTTP, where it is not the one that ClickHouse answers for the code.
    """
    text = f"Code: {code}. DB::Exception: {message} ({name})"
    return EngineError(code, name, text, status=status)


def parse_error(text: str, version: str) -> EngineError:
    """The engine's text as an error.

    The first `Code: n.` and the last `(NAME)` are reliable, nothing else is. What has no code is
    given ClickHouse's own code for that, 1002.
    """
    text = text.strip()
    text = text[max(0, text.find("Code: ")) :]
    code = _CODE.match(text)
    names = _NAME.findall(text)
    if code is None:
        return refuse(UNKNOWN_EXCEPTION, "UNKNOWN_EXCEPTION", text)
    if version and not text.endswith(f"(version {version})"):
        text = f"{text} (version {version})"
    return EngineError(int(code.group(1)), names[-1] if names else "UNKNOWN_EXCEPTION", text)
