"""One ingest request, from its headers to its answer: the order of the steps and no more.

authenticate → headers → encoding → body → digest → repeat? → decode → append → answer

A body that is small is decoded in one call, after its digest has been looked up. A larger one is
digested and decoded piece by piece as it is read, so that its text is never in memory as a whole;
other requests get their turn between the pieces.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import TYPE_CHECKING, Protocol, Self

from buffer.frame import DIGEST_BYTES, Submission
from ingest.answers import Code, RequestRefused, error_list, stored_response
from ingest.decode import Decoder, decode_whole
from ingest.intake import Body
from ingest.request_headers import addressee, idempotency_key, is_strict
from schema.ids import TenantId

if TYPE_CHECKING:
    from aiohttp import web

    from ingest.accounting import Accounting
    from ingest.admission import Admission, Reservation
    from ingest.auth import Authenticator
    from ingest.decode import Decoded, ShapeCache
    from ingest.request_headers import Addressee
    from ingest.runs_directory import RunsDirectory
    from ingest.storing import IdempotencyKeys, Storing
    from schema.streams import StreamKind

WHOLE_BYTES_MAX = 256 * 2**10
"""Decoded in one call: about 5 ms, for which other requests wait."""
SLICE_BYTES = 64 * 2**10
"""Of a larger body, between which others get their turn: 0.5 ms of usual lines, 15 ms of the
costliest, of which the next slice is smaller."""
SLICE_SECONDS = 0.003
COSTLY_SLICE_BYTES = 8 * 2**10


class Hash(Protocol):
    """Of `hashlib`'s, as far as it is used here."""

    def update(self, data: bytes, /) -> None:
        """More of what is digested."""

    def copy(self) -> Self:
        """Another that has begun in the same way."""
        ...

    def digest(self) -> bytes:
        """Of all so far."""
        ...


class Receiver:
    """Serves the ingest endpoints of one worker.

    Args:
        body_bytes_max: of a body after decoding.
        body_seconds_max: for a body to arrive.
    """

    def __init__(
        self,
        *,
        auth: Authenticator,
        runs: RunsDirectory,
        admission: Admission,
        storing: Storing,
        keys: IdempotencyKeys,
        shapes: ShapeCache,
        accounting: Accounting,
        body_bytes_max: int,
        body_seconds_max: float,
    ) -> None:
        self._auth = auth
        self._runs = runs
        self._admission = admission
        self._storing = storing
        self._keys = keys
        self._shapes = shapes
        self._accounting = accounting
        self._body_bytes_max = body_bytes_max
        self._body_seconds_max = body_seconds_max
        self._turn = asyncio.Lock()
        """Whose slice of a larger body is decoded: of several bodies one, and then anyone else."""

    async def receive(self, request: web.Request, kind: StreamKind) -> web.Response:
        """Store the rows of a request.

        Raises:
            RequestRefused, buffer.errors.Unavailable: nothing was answered yet; see
            `ingest.answers`.

        Durability: every accepted row survives kill -9 once this returns.
        """
        started = time.perf_counter()
        self._accounting.served_by("aiohttp")
        tenant = TenantId((await self._auth.of(request)).tenant)
        to = addressee(request.headers)
        strict = is_strict(request)
        key = idempotency_key(request.headers)
        body = Body(request, bytes_max=self._body_bytes_max, seconds_max=self._body_seconds_max)
        project = await self._runs.project(tenant, to.run_id, to.project)
        now_ms = time.time_ns() // 1_000_000
        digest = digest_of_head(tenant, kind, to, is_strict=strict)
        async with self._admission.admit(body.known_size) as reservation:
            start, is_whole = await _start_of(body, reservation)
            digest.update(start)
            decoder = None
            if not is_whole:
                shapes = self._shapes
                decoder = Decoder(
                    kind, tenant, project, to.run_id, now_ms=now_ms, shapes=shapes, strict=strict
                )
                await _decode_pieces(start, body, reservation, decoder, digest, self._turn)
            name = digest.digest()[:DIGEST_BYTES]
            if key is not None:
                self._keys.check(tenant, key, name)
            former = await self._storing.former(name)
            if former is not None:
                self._accounting.repeated()
                return stored_response(former.accepted, former.rejected, is_repeat=True)
            if decoder is not None:
                decoded = decoder.finish()
            else:
                decoded = decode_whole(
                    start,
                    kind,
                    tenant,
                    project,
                    to.run_id,
                    now_ms=now_ms,
                    shapes=self._shapes,
                    strict=strict,
                )
            del start  # only the columns are kept while the rows are made durable
            self._accounting.decoded(tenant, kind, to, decoded, body.size)
            if strict and decoded.rejected:
                raise RequestRefused(
                    Code.PROCESSING_FAILED,
                    f"{decoded.rejected} refusals, and strict=1 asks for none: nothing was stored",
                    details={"rejected": decoded.rejected, "errors": error_list(decoded.errors)},
                )
            if key is not None:
                self._keys.use(tenant, key, name)
            response = await self._store(request, decoded, name, reservation.size)
        self._accounting.stored(kind, decoded.accepted, started)
        return response

    async def _store(
        self, request: web.Request, decoded: Decoded, digest: bytes, size: int
    ) -> web.Response:
        if not decoded.chunks:
            return stored_response(0, decoded.rejected, decoded.errors, hint=decoded.hint)
        submission = Submission(decoded.chunks, digest, decoded.accepted, decoded.rejected)
        receipt = await self._storing.store(
            submission, size=size, is_gone=lambda: _is_gone(request)
        )
        return stored_response(
            receipt.accepted, receipt.rejected, decoded.errors, is_repeat=receipt.is_repeat
        )


def _is_gone(request: web.Request) -> bool:
    """Whether the client has hung up, or may have: one that only sends no more is not held."""
    return request.transport is None or getattr(request.protocol, "has_ended", False)


def digest_of_head(tenant: TenantId, kind: StreamKind, to: Addressee, *, is_strict: bool) -> Hash:
    """The digest of a request, its body still to come: SHA-256's first 16 bytes.

    Processors have instructions for it: 42 KB take 25 us, and 47 with BLAKE2b.

    The project is the header's word: what the catalogue knows of the run may change between a
    request and its repeat. No part holds the separator: HTTP has no NUL in headers.
    """
    head = f"{tenant}\0{kind.value}\0{to.run_id}\0{to.project}\0{int(is_strict)}\0"
    return hashlib.sha256(head.encode())


async def _start_of(body: Body, reservation: Reservation) -> tuple[bytes, bool]:
    """The first pieces, up to `WHOLE_BYTES_MAX` and a piece, and whether they are the whole."""
    pieces: list[bytes] = []
    while piece := await body.read(reservation):
        pieces.append(piece)
        if body.size > WHOLE_BYTES_MAX:
            return b"".join(pieces), False
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), True


async def _decode_pieces(
    start: bytes,
    body: Body,
    reservation: Reservation,
    decoder: Decoder,
    digest: Hash,
    turn: asyncio.Lock,
) -> None:
    """Decode the start, then digest and decode the rest as it comes, yielding between slices."""
    piece, size = start, SLICE_BYTES
    while piece:
        at = 0
        while at < len(piece):
            async with turn:
                began = time.perf_counter()
                decoder.feed(piece[at : at + size])
                at += size
                is_costly = time.perf_counter() - began > SLICE_SECONDS
                size = COSTLY_SLICE_BYTES if is_costly else SLICE_BYTES
                await asyncio.sleep(0)
        piece = await body.read(reservation)
        digest.update(piece)
