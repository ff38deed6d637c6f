"""Scopes, rotation and last use of keys; requests to stop a run; model graphs.

In Postgres each change of a key is announced on the channel `charon_keys`, with the key's lookup
value, when its transaction commits: replicas drop it from their caches. A change of its last use
alone is none.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_ANNOUNCE = """
CREATE FUNCTION charon_announce_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF to_jsonb(NEW) - 'last_used_at_ms' = to_jsonb(OLD) - 'last_used_at_ms' THEN
            RETURN NULL;
        END IF;
        IF NEW.lookup <> OLD.lookup THEN
            PERFORM pg_notify('charon_keys', NEW.lookup);
        END IF;
    END IF;
    IF TG_OP = 'INSERT' THEN
        PERFORM pg_notify('charon_keys', NEW.lookup);
    ELSE
        PERFORM pg_notify('charon_keys', OLD.lookup);
    END IF;
    RETURN NULL;
END
$$
"""
_TRIGGER = """
CREATE TRIGGER charon_api_keys_announce AFTER INSERT OR UPDATE OR DELETE ON charon_api_keys
FOR EACH ROW EXECUTE FUNCTION charon_announce_key()
"""


def upgrade() -> None:
    """Adds to keys and runs."""
    _keys()
    _runs()


def _keys() -> None:
    # Keys made before scopes had every right.
    op.add_column(
        "charon_api_keys",
        sa.Column("scopes", sa.Text, nullable=False, server_default="ingest,read,admin"),
    )
    op.add_column("charon_api_keys", sa.Column("last_used_at_ms", sa.BigInteger))
    op.add_column("charon_api_keys", sa.Column("rotated_from", sa.Text))
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_ANNOUNCE)
        op.execute(_TRIGGER)


def _runs() -> None:
    op.create_table(
        "charon_run_triggers",
        sa.Column("id", _NUMBER, nullable=False, autoincrement=True),
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("actor", sa.Text),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("consumed_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="charon_run_triggers_pk"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["charon_runs.id"], name="charon_run_triggers_run_id_fk"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("charon_run_triggers_run_id_ix", "charon_run_triggers", ["run_id"])
    op.create_table(
        "charon_model_graphs",
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("graph", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "digest", name="charon_model_graphs_pk"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["charon_runs.id"], name="charon_model_graphs_run_id_fk"
        ),
    )
