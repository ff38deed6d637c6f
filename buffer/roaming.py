"""Several endpoints of one ClickHouse cluster as one sink: who is away or read-only is left.

Only a replicated table may change its endpoint: token and part are committed together in Keeper,
so the same token settles a lost answer at any of them. In any other table each endpoint has rows
and tokens of its own; it stays at the first endpoint, and the others are ignored, loudly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import structlog

from buffer.sink import SinkError
from schema.chcodes import ErrorClass
from schema.streams import STREAMS, StreamKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from buffer.metrics import Metrics
    from buffer.sink import Sink
    from schema.block import Block, Layout
    from schema.ids import BlockNumber

T = TypeVar("T")

_log = structlog.get_logger()

LEFT_CODES = frozenset({225, 242, 244, 285, 286, 319, 999})
"""Of one replica's trouble with its Keeper, quorum or disk: another one may be well. What is busy
or out of memory (241, 252 and the like) is not left: the others share the load already."""


class RoamingSink:
    """Endpoints in the order of preference. Each table has a place of its own among them."""

    def __init__(self, sinks: Sequence[Sink], *, metrics: Metrics) -> None:
        """`sinks`: one an endpoint; closed with this one."""
        assert sinks, "there is at least one endpoint"
        self._sinks = tuple(sinks)
        self._metrics = metrics
        self._place = dict.fromkeys(StreamKind, 0)
        self._sent_to = dict.fromkeys(StreamKind, 0)
        self._is_replicated: dict[StreamKind, bool] = {}

    def __repr__(self) -> str:
        return f"RoamingSink({list(self._sinks)!r})"

    async def layout(self, kind: StreamKind) -> Layout:
        """Of the first endpoint that answers; whether it may be used, `is_replicated` says."""
        return await self._ask(kind, lambda sink: sink.layout(kind), is_first_look=True)

    async def is_replicated(self, kind: StreamKind) -> bool:
        """As the endpoint says whose layout was read.

        Raises:
            SinkError: it is not the first one, and the table is not replicated: it is not used.
        """
        found = await self._ask(kind, lambda sink: sink.is_replicated(kind), is_first_look=True)
        if not found:
            self._stay(kind)
        self._is_replicated[kind] = found
        return found

    async def insert(self, layout: Layout, block: Block, *, token: str, query_id: str) -> None:
        """At the table's place; after an error of that endpoint the next try goes elsewhere."""
        kind = layout.stream.kind
        self._sent_to[kind] = self._at(kind)
        await self._ask(
            kind, lambda sink: sink.insert(layout, block, token=token, query_id=query_id)
        )

    async def settle(self, query_id: str) -> None:
        """At the endpoint that was sent it. Where that is away, a replicated table's token does."""
        kind = next((k for k, one in STREAMS.items() if f"-{one.table}-" in query_id), None)
        index = 0 if kind is None else self._sent_to[kind] if self._may_roam(kind) else 0
        try:
            await self._sinks[index].settle(query_id)
        except SinkError as error:
            if kind is None or not self._may_roam(kind):
                raise
            _log.info("settled_by_token", query_id=query_id, reason=error.message)

    async def has_batch(self, layout: Layout, number: BlockNumber) -> bool:
        """At the table's place. A replica that is behind says no; the same token is sent then."""
        return await self._ask(layout.stream.kind, lambda sink: sink.has_batch(layout, number))

    async def stored_rows(
        self, layout: Layout, numbers: Sequence[BlockNumber], *, since_s: int | None
    ) -> Mapping[int, int]:
        """At the table's place."""
        return await self._ask(
            layout.stream.kind, lambda sink: sink.stored_rows(layout, numbers, since_s=since_s)
        )

    async def count_rows(self, layout: Layout, rows: Sequence[Mapping[str, object]]) -> int:
        """At the table's place."""
        return await self._ask(layout.stream.kind, lambda sink: sink.count_rows(layout, rows))

    async def close(self) -> None:
        """Closes all of them."""
        for sink in self._sinks:
            await sink.close()

    def _may_roam(self, kind: StreamKind) -> bool:
        return self._is_replicated.get(kind, False)

    def _at(self, kind: StreamKind, *, is_first_look: bool = False) -> int:
        """The table's endpoint: the first one for as long as it is not known to be replicated."""
        return self._place[kind] if is_first_look or self._may_roam(kind) else 0

    async def _ask(
        self,
        kind: StreamKind,
        call: Callable[[Sink], Awaitable[T]],
        *,
        is_first_look: bool = False,
    ) -> T:
        index = self._at(kind, is_first_look=is_first_look)
        try:
            return await call(self._sinks[index])
        except SinkError as error:
            is_unknown = is_first_look and kind not in self._is_replicated
            if (self._may_roam(kind) or is_unknown) and _is_of_the_endpoint(error):
                self._leave(kind, index, error)
            raise

    def _leave(self, kind: StreamKind, index: int, error: SinkError) -> None:
        self._place[kind] = (index + 1) % len(self._sinks)
        table = STREAMS[kind].table
        self._metrics.count("delivery_endpoint_changes", table=table)
        _log.warning(
            "endpoint_left",
            table=table,
            left=repr(self._sinks[index]),
            reason=error.message,
            code=error.code,
        )

    def _stay(self, kind: StreamKind) -> None:
        """The first endpoint alone, whatever becomes of it."""
        was_at, self._place[kind] = self._place[kind], 0
        table = STREAMS[kind].table
        if self._is_replicated.get(kind) is not False and len(self._sinks) > 1:
            _log.error(
                "endpoints_ignored",
                table=table,
                reason="the table is not replicated: only the first endpoint is used for it",
            )
        if was_at:
            self._is_replicated[kind] = False
            raise SinkError(
                ErrorClass.TRANSIENT,
                None,
                f"the first endpoint is away, and {table} is not replicated: it is waited for",
                is_outcome_unknown=False,
            )


def _is_of_the_endpoint(error: SinkError) -> bool:
    """Whether another endpoint may fare better."""
    if error.code is None:
        return error.error_class is ErrorClass.TRANSIENT
    return error.code in LEFT_CODES
