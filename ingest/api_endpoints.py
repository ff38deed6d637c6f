"""An endpoint of the run API as one value: what serves it is what describes it.

The application takes its route from it, and `GET /api/openapi.json` its description: path, query,
body and answer are the same models either way.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel

from catalog.scopes import INGEST, READ
from ingest.api_answers import API
from ingest.api_calls import with_body, with_key, with_query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ingest.api_answers import Dialect
    from ingest.api_calls import Asked, Call, Caller, Handler

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method on a path.

    Attributes:
        path: with `{name}` for each part that varies.
        summary: its handler's first line.
        answer: the JSON of a 200; None for one that is no JSON.
        scope: that a key needs; None where any key will do, and where none is needed.
        example: of its body.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    dialect: Dialect = API
    answer: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    scope: str | None = None
    needs_key: bool = True
    example: dict[str, Any] | None = None

    def route(self) -> web.RouteDef:
        """For the application."""
        return web.route(self.method, self.path, self.handler)


def taking(
    path: str,
    body: type[Model],
    action: Callable[[Call[Model]], Awaitable[dict[str, Any]]],
    answer: type[BaseModel],
    *,
    example: dict[str, Any],
    dialect: Dialect = API,
) -> Endpoint:
    """A POST with a JSON body; what changes something needs the scope `ingest`."""
    return Endpoint(
        "POST",
        path,
        with_body(dialect, body, action),
        _summary(action),
        dialect=dialect,
        answer=answer,
        body=body,
        scope=INGEST,
        example=example,
    )


def giving(
    path: str,
    action: Callable[[Caller], Awaitable[dict[str, Any]]],
    answer: type[BaseModel],
    *,
    method: str = "GET",
    scope: str | None = READ,
) -> Endpoint:
    """A request that says nothing but its path; None as the scope: any valid key will do."""
    handler = with_key(API, action, scope=scope)
    return Endpoint(method, path, handler, _summary(action), answer=answer, scope=scope)


def asked(
    path: str,
    query: type[Model],
    action: Callable[[Asked[Model]], Awaitable[dict[str, Any]]],
    answer: type[BaseModel],
) -> Endpoint:
    """A GET with a query."""
    handler = with_query(API, query, action, scope=READ)
    return Endpoint("GET", path, handler, _summary(action), answer=answer, query=query, scope=READ)


def public(
    path: str,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    answer: type[BaseModel] | None = None,
) -> Endpoint:
    """A GET that needs no key."""
    return Endpoint("GET", path, handler, _summary(handler), answer=answer, needs_key=False)


def _summary(action: Callable[..., object]) -> str:
    text = inspect.getdoc(action)
    assert text, f"{action.__name__} says nothing of itself"
    return text.partition("\n\n")[0].replace("\n", " ")
