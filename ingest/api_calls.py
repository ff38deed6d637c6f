"""The frame around every handler of the run API: key, body, validation, and errors in one dialect.

A handler gets a `Call` with its validated body and gives JSON; it knows no status and no header.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from catalog import json_depth
from catalog.errors import CatalogFailure
from catalog.json_values import steps
from catalog.scopes import INGEST, READ
from ingest.answers import Code, RequestRefused
from ingest.api_answers import failure_response, json_response, refusal_response
from ingest.appkeys import ADMISSION, AUTH, CATALOG, SETTINGS
from ingest.intake import Body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from catalog import Catalog, KeyRecord
    from ingest.admission import Reservation
    from ingest.api_answers import Dialect

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BODY_BYTES_MAX = 40 * 2**20
"""Two documents at their limit, quoted. Parsed in one call, so less than an ingest body may be."""
BODY_VALUES_MAX = 110_000
"""JSON values of a body, those in its documents not counted: the log names that one call may
register, and more than anything else needs. The call that parses them takes about 20 ms."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Caller:
    """A request with a valid key."""

    request: web.Request
    key: KeyRecord

    @property
    def catalog(self) -> Catalog:
        """The catalogue."""
        return self.request.app[CATALOG]

    @property
    def tenant(self) -> str:
        """The key's organisation: the only one that the call reads or writes."""
        return self.key.tenant


@dataclass(frozen=True, slots=True)
class Call(Caller, Generic[Model]):
    """A caller with what it sent."""

    body: Model


@dataclass(frozen=True, slots=True)
class Asked(Caller, Generic[Model]):
    """A caller with its query."""

    query: Model


class MalformedJson(Exception):
    """The body is no JSON."""


def with_key(
    dialect: Dialect,
    action: Callable[[Caller], Awaitable[dict[str, Any]]],
    *,
    scope: str | None = READ,
) -> Handler:
    """A handler of a route that takes no body; None as the scope: any valid key will do."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            key = await request.app[AUTH].of(request, scope)
            return json_response(await action(Caller(request, key)))
        except RequestRefused as refusal:
            return refusal_response(dialect, refusal)
        except CatalogFailure as failure:
            response = failure_response(dialect, failure)
            if response is None:
                raise
            return response

    return handle


def with_query(
    dialect: Dialect,
    model: type[Model],
    action: Callable[[Asked[Model]], Awaitable[dict[str, Any]]],
    *,
    scope: str | None = READ,
) -> Handler:
    """A handler of a route that takes a query.

    An empty value is one that was not given, but for the names in the model's `taken_empty`.
    """
    taken_empty: frozenset[str] = getattr(model, "taken_empty", frozenset())

    async def ask(caller: Caller) -> dict[str, Any]:
        named = caller.request.query.items()
        given = {name: value for name, value in named if value or name in taken_empty}
        query = model.model_validate(given)
        return await action(Asked(caller.request, caller.key, query))

    handle = with_key(dialect, ask, scope=scope)

    async def handle_query(request: web.Request) -> web.StreamResponse:
        try:
            return await handle(request)
        except ValidationError as error:
            return dialect.body_refused(error)

    return handle_query


def with_body(
    dialect: Dialect, model: type[Model], action: Callable[[Call[Model]], Awaitable[dict[str, Any]]]
) -> Handler:
    """A handler of a route that takes JSON. The body's bytes stay reserved until the answer."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            key = await request.app[AUTH].of(request, INGEST)
            body = _body(request)
            async with request.app[ADMISSION].admit(body.known_size) as reservation:
                data = await _whole(body, reservation)
                await _bounded(data)
                sent = model.model_validate(parse_json(data))
                del data
                return json_response(await action(Call(request, key, sent)))
        except RequestRefused as refusal:
            return refusal_response(dialect, refusal)
        except MalformedJson:
            return dialect.refused(400, "Malformed JSON in request body")
        except RecursionError:
            return dialect.refused(400, "the request body is nested too deeply")
        except ValidationError as error:
            return dialect.body_refused(error)
        except CatalogFailure as failure:
            response = failure_response(dialect, failure)
            if response is None:
                raise
            return response

    return handle


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - JSON may be anything
    """What the bytes say; bare NaN and lone surrogates, which Python writes, are taken.

    Raises:
        MalformedJson: it is no JSON, or nested too deeply.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json_depth.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedJson from error


async def _whole(body: Body, reservation: Reservation) -> bytes:
    pieces: list[bytes] = []
    while piece := await body.read(reservation):
        pieces.append(piece)
    return b"".join(pieces)


async def _bounded(data: bytes) -> None:
    """See that what will be parsed in one call is small, however large its text is.

    Raises:
        RequestRefused: 413, it holds too many values.
    """
    for count in steps(data, BODY_VALUES_MAX):
        if count > BODY_VALUES_MAX:
            raise RequestRefused(
                Code.BODY_TOO_LARGE,
                f"the body holds more than {BODY_VALUES_MAX:,} JSON values",
            )
        await asyncio.sleep(0)


def _body(request: web.Request) -> Body:
    settings = request.app[SETTINGS]
    return Body(
        request,
        bytes_max=min(BODY_BYTES_MAX, settings.body_bytes_max),
        seconds_max=settings.body_seconds_max,
    )
