"""Setting rows and damage aside: on the shard's thread, and told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from buffer.log import Damage
    from buffer.metrics import Metrics
    from buffer.quarantine import SetAside
    from buffer.surroundings import ShardParts

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
