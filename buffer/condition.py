"""What a table's flusher is doing about trouble: one state, one log line a change of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from buffer.retry import OPERATOR_SECONDS, TRANSIENT_SECONDS, Backoff
from buffer.statistics import TableCondition

if TYPE_CHECKING:
    from collections.abc import Callable

    from buffer.clock import Clock
    from buffer.metrics import Metrics

_log = structlog.get_logger()

_EVENTS = {
    TableCondition.OK: "table_recovered",
    TableCondition.RETRYING: "table_retrying",
    TableCondition.WAITING: "table_waiting",
    TableCondition.STOPPED: "table_stopped",
}


class Condition:
    """The condition of one table in one shard, and how long to wait in it."""

    def __init__(
        self,
        table: str,
        shard: str,
        *,
        clock: Clock,
        metrics: Metrics,
        random: Callable[[], float],
    ) -> None:
        self._table = table
        self._shard = shard
        self._clock = clock
        self._metrics = metrics
        self._transient = Backoff(*TRANSIENT_SECONDS, random)
        self._operator = Backoff(*OPERATOR_SECONDS, random)
        self._since = clock.monotonic()
        self.state = TableCondition.OK
        self.reason: str | None = None
        self.code: int | None = None
        self.failures = 0

    @property
    def since_seconds(self) -> float:
        """How long the state has held."""
        return self._clock.monotonic() - self._since

    def worked(self) -> None:
        """A try succeeded."""
        self.failures = 0
        if self.state is not TableCondition.OK:
            self._change(TableCondition.OK, None, None)

    def failed(self, state: TableCondition, reason: str, code: int | None = None) -> float:
        """A try failed; returns how long to wait before the next, in seconds."""
        self.failures = self.failures + 1 if state is self.state else 1
        self._metrics.count("delivery_failures", table=self._table, condition=state.value)
        if (state, code) != (self.state, self.code) or self.failures == 1:
            self._change(state, reason, code)
        self.reason = reason
        backoff = self._transient if state is TableCondition.RETRYING else self._operator
        return backoff.seconds(self.failures)

    def _change(self, state: TableCondition, reason: str | None, code: int | None) -> None:
        lasted = self.since_seconds
        if state is not self.state:
            self._since = self._clock.monotonic()
        self.state, self.reason, self.code = state, reason, code
        is_quiet = state in {TableCondition.OK, TableCondition.RETRYING}
        (_log.warning if is_quiet else _log.error)(
            _EVENTS[state],
            table=self._table,
            shard=self._shard,
            reason=reason,
            code=code,
            former_seconds=round(lasted, 3),
        )
