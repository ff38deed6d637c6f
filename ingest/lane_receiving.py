"""An ordinary ingest request from its head and its whole body to its answer, without a wait.

The steps of `ingest.receiving` in the same order, by the same parts, for the case where none of
them waits for anything but the disk: a key and a run that are known, memory that is free, a request
that is new, room in the log. Where a step would wait, the request is unusual and goes to aiohttp,
which takes it through `Receiver` from the start; nothing has been counted or stored by then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from buffer.errors import BufferFailure, LogFull
from buffer.frame import DIGEST_BYTES, Submission
from ingest.answers import STATUS, RequestRefused, refusal_of
from ingest.decode import decode_whole
from ingest.intake import too_slow
from ingest.lane_answers import refused_answer, stored_answer
from ingest.lane_heads import BeatHead
from schema.ids import TenantId

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingest.accounting import Accounting
    from ingest.admission import Admission, Reservation
    from ingest.auth import Authenticator
    from ingest.decode import Decoded, ShapeCache
    from ingest.lane_beats import LaneBeats
    from ingest.lane_heads import IngestHead
    from ingest.metrics import WorkerMetrics
    from ingest.runs_directory import RunsDirectory
    from ingest.storing import Storing


class Unusual(Exception):
    """This request is for aiohttp's lane; nothing of it was done here."""


class Asker(Protocol):
    """Who waits for the answer of a request: its connection."""

    def answer(self, answer: bytes) -> None:
        """The answer, later."""

    def turn_away(self) -> None:
        """The request has become unusual: nothing of it is stored, and aiohttp has to take it."""


class LaneReceiver:
    """Serves the ordinary ingest requests of one worker.

    Args:
        is_draining: whether answers have to end their connections.
        body_seconds_max: for a body to arrive.
        beats: answers heartbeats; None: aiohttp does.
    """

    def __init__(
        self,
        *,
        auth: Authenticator,
        runs: RunsDirectory,
        admission: Admission,
        storing: Storing,
        shapes: ShapeCache,
        accounting: Accounting,
        metrics: WorkerMetrics,
        is_draining: Callable[[], bool],
        body_seconds_max: float,
        beats: LaneBeats | None = None,
    ) -> None:
        self._auth = auth
        self._beats = beats
        self._runs = runs
        self._admission = admission
        self._storing = storing
        self._shapes = shapes
        self._accounting = accounting
        self._metrics = metrics
        self.is_draining = is_draining
        self.body_seconds_max = body_seconds_max

    def take(self, head: IngestHead | BeatHead, body: bytes, asker: Asker) -> bytes | None:
        """Serve one request.

        Args:
            head: the request's.
            body: all of it.
            asker: gets the answer where it is not given at once.

        Returns: the answer, or None: it comes later.

        Raises:
            Unusual: aiohttp has to serve it.

        Durability: every accepted row survives kill -9 once there is an answer that says 200.
        """
        if isinstance(head, BeatHead):
            beat = None if self._beats is None else self._beats.take(head, body)
            if beat is None:
                raise Unusual
            return beat
        started = time.perf_counter()
        try:
            record = self._auth.known(head.authorization)
        except RequestRefused as refused:
            return self.refuse(head, refused)
        if record is None:
            raise Unusual
        tenant, to, kind = TenantId(record.tenant), head.to, head.kind
        project = self._runs.known(tenant, to.run_id, to.project)
        if project is None:
            raise Unusual
        digest = head.digest(tenant)
        digest.update(body)
        name = digest.digest()[:DIGEST_BYTES]
        if self._storing.is_known(name) or not self._admission.take_small(len(body)):
            raise Unusual
        try:
            decoded = decode_whole(
                body,
                kind,
                tenant,
                project,
                to.run_id,
                now_ms=time.time_ns() // 1_000_000,
                shapes=self._shapes,
            )
            waiting = _Waiting(self, asker, head, decoded, len(body), started)
            if decoded.chunks:
                submission = Submission(decoded.chunks, name, decoded.accepted, decoded.rejected)
                self._storing.append_then(submission, waiting)
        except BaseException as error:
            self._admission.give_small(len(body))
            if isinstance(error, BufferFailure):
                raise Unusual from error
            raise
        if decoded.rejected or decoded.unknown_fields or decoded.future_rows:
            self._accounting.remarks(tenant, kind, to, decoded)
        return None if decoded.chunks else waiting.finish()

    def refuse(self, head: IngestHead | BeatHead, refused: RequestRefused) -> bytes:
        """The answer of a request that is refused as a whole, counted."""
        self._metrics.count("requests_refused", code=refused.code.value)
        self._metrics.count("requests", route=head.path, status=str(STATUS[refused.code]))
        self._accounting.served_by("fast")
        return refused_answer(refused, is_last=refused.is_last or self.is_draining())

    def await_body(self, size: int, give_up: Callable[[], None]) -> Reservation:
        """A body of `size` bytes is on its way; `give_up` is called where it must end."""
        reservation = self._admission.admit(size)
        self._admission.watch(reservation, give_up, buffered=size)
        return reservation

    def end_of_body(self, reservation: Reservation) -> None:
        """It is there, or will not come."""
        self._admission.unwatch(reservation)

    def too_slow(self, head: IngestHead | BeatHead, reservation: Reservation) -> bytes:
        """The answer of a request whose body did not come in time."""
        refused = too_slow(self.body_seconds_max, is_given_up=reservation.is_given_up)
        return self.refuse(head, refused)

    def finish(self, head: IngestHead, decoded: Decoded, size: int, started: float) -> bytes:
        """The answer of a request whose rows are durable, counted; its memory is free again."""
        self._admission.give_small(size)
        self._accounting.stored_fast(head.kind, decoded.accepted, size, started)
        return stored_answer(decoded, is_last=self.is_draining())

    def fail(self, head: IngestHead, size: int, failure: BufferFailure) -> bytes | None:
        """The answer of a request that was not stored; None: another try may store it."""
        self._admission.give_small(size)
        refused = None if isinstance(failure, LogFull) else refusal_of(failure)
        return None if refused is None else self.refuse(head, refused)


class _Waiting:
    """A request between its append and its outcome, with which the buffer calls it."""

    __slots__ = ("_asker", "_decoded", "_head", "_receiver", "_size", "_started")

    def __init__(
        self,
        receiver: LaneReceiver,
        asker: Asker,
        head: IngestHead,
        decoded: Decoded,
        size: int,
        started: float,
    ) -> None:
        self._receiver = receiver
        self._asker = asker
        self._head = head
        self._decoded = decoded
        self._size = size
        self._started = started

    def __call__(self, failure: BufferFailure | None) -> None:
        """The outcome is known."""
        if failure is None:
            self._asker.answer(self.finish())
            return
        answer = self._receiver.fail(self._head, self._size, failure)
        if answer is None:
            self._asker.turn_away()
        else:
            self._asker.answer(answer)

    def finish(self) -> bytes:
        """The answer of a request that is durable or had no rows."""
        return self._receiver.finish(self._head, self._decoded, self._size, self._started)
