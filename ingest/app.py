"""The application: all routes, and one place where every error becomes an answer."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
from aiohttp import HttpVersion10, HttpVersion11, web

from buffer.errors import Broken, BufferFailure
from ingest import routes
from ingest.answers import (
    SERVER,
    Code,
    RequestRefused,
    code_of_status,
    error_response,
    refusal_of,
)
from ingest.appkeys import HEALTH, METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiohttp.typedefs import Handler, Middleware

_RESOURCE: web.RequestKey[web.AbstractResource | None] = web.RequestKey("resource")
"""Where a request with doubled slashes went after all, for its count."""

log = structlog.get_logger()


def make_app(
    *,
    more_routes: Iterable[web.RouteDef] = (),
    on_broken: Callable[[Broken], None] = lambda _error: None,
) -> web.Application:
    """An application with all routes; the caller puts the parts under their keys.

    Args:
        more_routes: the run API's.
        on_broken: told when an invariant of ours does not hold, so that the worker stops.
    """
    app = web.Application(
        middlewares=(_answering(on_broken), _single_slashes),
        # aiohttp's own limit, which does not count a body that is read piece by piece, is off: a
        # `ingest.intake.Body` counts.
        client_max_size=0,
    )
    app.add_routes(
        web.RouteDef(route.method, route.path, route.handler, {**route.kwargs, **_EXPECTING})
        for route in (*routes.routes(), *more_routes)
    )
    return app


def _answering(on_broken: Callable[[Broken], None]) -> Middleware:
    @web.middleware
    async def answering(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn whatever a handler raises into an answer, count it, and close while draining."""
        try:
            _see_version(request)
            response = await handler(request)
        except RequestRefused as refused:
            request.app[METRICS].count("requests_refused", code=refused.code.value)
            response = refused.response()
        except BufferFailure as failure:
            response = _failed(request, failure, on_broken)
        except web.HTTPException as error:
            response = _of_http(request, error)
        except ConnectionError:
            raise  # the client has hung up: there is nobody to answer
        except Exception as error:  # noqa: BLE001 - the top of a request; no trace to a client
            response = _defect(request, error)
        resource = request.get(_RESOURCE) or request.match_info.route.resource
        route = "unmatched" if resource is None else resource.canonical
        request.app[METRICS].count("requests", route=route, status=str(response.status))
        response.headers["Server"] = SERVER
        if request.app[HEALTH].is_draining:
            response.force_close()
        return response

    return answering


@web.middleware
async def _single_slashes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Serve `//ingest//metrics` as `/ingest/metrics`.

    The SDK joins a base URL that ends in a slash with a path that begins with one, and follows no
    redirect.
    """
    if "//" not in request.rel_url.raw_path:
        return await handler(request)
    path = "/" + "/".join(part for part in request.rel_url.raw_path.split("/") if part)
    url = request.rel_url.with_path(path, encoded=True, keep_query=True)
    again = request.clone(rel_url=url)
    match = await request.app.router.resolve(again)
    match.add_app(request.app)
    match.freeze()
    again._match_info = match  # noqa: SLF001 - what the application does after its own resolving
    request[_RESOURCE] = match.route.resource
    return await match.handler(again)


def _see_version(request: web.Request) -> None:
    """The parser takes some more; an answer under a version that we do not speak would be a lie."""
    if request.version not in (HttpVersion10, HttpVersion11):
        raise RequestRefused(
            Code.MALFORMED_REQUEST, "the version must be HTTP/1.0 or HTTP/1.1", is_last=True
        )


async def _expect(request: web.Request) -> web.StreamResponse | None:
    """Answer an `Expect` header, which is asked for before middlewares; aiohttp refuses in text."""
    if request.version < HttpVersion11:
        return None  # RFC 9110: such a client does not know the interim answer
    if request.headers.get("Expect", "").lower() != "100-continue":
        message = "the only expectation that is met is 100-continue"
        return error_response(Code.EXPECTATION_FAILED, message)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer itself has not begun
    return None


_EXPECTING = {"expect_handler": _expect}


def _failed(
    request: web.Request, failure: BufferFailure, on_broken: Callable[[Broken], None]
) -> web.Response:
    refused = refusal_of(failure)
    if refused is not None:
        request.app[METRICS].count("requests_refused", code=refused.code.value)
        return refused.response()
    if isinstance(failure, Broken):
        on_broken(failure)
    return _defect(request, failure)


def _of_http(request: web.Request, error: web.HTTPException) -> web.Response:
    """Aiohttp's own refusals (no such path, wrong method) in our shape."""
    code = code_of_status(error.status)
    match code:
        case Code.NOT_FOUND:
            message = "there is no such path"
        case Code.METHOD_NOT_ALLOWED:
            allowed = error.headers.get("Allow", "")
            message = f"this path does not take {request.method[:20]}; it takes {allowed}"
        case _:
            message = error.reason
    response = error_response(code, message, error=_phrase(request, error.status))
    response.set_status(error.status)
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    request.app[METRICS].count("requests_refused", code=code.value)
    return response


def _defect(request: web.Request, error: Exception) -> web.Response:
    """A defect of ours: the client gets an id, the log the traceback under that id."""
    error_id = secrets.token_hex(8)
    request.app[METRICS].count("request_failures")
    log.error(
        "request_failed",
        error_id=error_id,
        method=request.method,
        path=request.path[:200],
        exc_info=error,
    )
    return error_response(
        Code.INTERNAL_ERROR,
        f"an error of the server's own; its log has it as {error_id}",
        {"error_id": error_id},
        error=_phrase(request, 500),
    )


def _phrase(request: web.Request, status: int) -> str | None:
    """What `error` is to clients of the run API, which then show the message; None for others."""
    if not request.path.lstrip("/").startswith("api/"):
        return None
    return HTTPStatus(status).phrase
