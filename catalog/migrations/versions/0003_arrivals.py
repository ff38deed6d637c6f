"""When rows of a run were received last, by the server's own clock."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds a table: a run that sends rows and no heartbeats is judged by other rules."""
    op.create_table(
        "charon_arrivals",
        sa.Column("run_id", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("last_received_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="charon_arrivals_pk"),
        sa.ForeignKeyConstraint(["run_id"], ["charon_runs.id"], name="charon_arrivals_run_id_fk"),
    )
