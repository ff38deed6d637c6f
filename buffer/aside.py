"""What delivery writes down on the shard's thread: what is set aside, told once; what is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from buffer.journal import Delivered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from buffer.batch import RowSpan
    from buffer.checkpoint import Pending
    from buffer.clock import Clock
    from buffer.log import Damage
    from buffer.metrics import Metrics
    from buffer.quarantine import SetAside
    from buffer.surroundings import ShardParts
    from schema.streams import StreamKind

_log = structlog.get_logger()


async def put_rows(
    parts: ShardParts,
    metrics: Metrics,
    table: str,
    reason: str,
    code: int | None,
    rows: Sequence[SetAside],
) -> None:
    """Sets rows of one table aside; the same rows once.

    Raises:
        QuarantineFull: no room; nothing is written.

    Durability: they survive a power cut once this returns.
    """
    if not await parts.disk.run(parts.quarantine.put_rows, table, reason, code, rows):
        return
    count = sum(item.chunks.row_count for item in rows)
    metrics.count("quarantined_rows", count, table=table)
    _log.error(
        "rows_quarantined",
        table=table,
        shard=parts.shard,
        rows=count,
        first_lsn=rows[0].frame.lsn,
        reason=reason,
        code=code,
    )


async def put_damage(parts: ShardParts, metrics: Metrics, damage: Damage) -> None:
    """Sets a damaged range of the log aside; the same range once.

    Raises:
        QuarantineFull: no room; nothing is written.

    Durability: it survives a power cut once this returns.
    """
    if not await parts.disk.run(parts.quarantine.put_damage, damage):
        return
    metrics.count("damaged_ranges")
    _log.error(
        "damage_quarantined",
        shard=parts.shard,
        segment=damage.segment,
        offset=damage.offset,
        length=damage.length,
        reason=damage.reason,
    )


async def note_delivered(
    parts: ShardParts, clock: Clock, kind: StreamKind, pending: Pending, span: RowSpan, rows: int
) -> None:
    """Writes a block that is confirmed into the journal, before the checkpoint moves past it.

    A block that is noted twice, because a kill came between the two, is compared twice.
    """
    if parts.journal is None:
        return
    delivered = Delivered(
        kind=kind,
        number=pending.number,
        generation=pending.generation,
        first=pending.first,
        last=pending.last,
        batch_rows=pending.rows,
        first_row=span.first,
        end_row=span.end,
        rows=rows,
        delivered_at_ns=clock.wall_ns(),
    )
    await parts.disk.run(parts.journal.note, delivered)
