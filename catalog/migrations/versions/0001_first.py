"""Organisations, keys, projects, runs and what belongs to a run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Makes all tables."""
    _people()
    _work()
    _details()


def _people() -> None:
    op.create_table(
        "charon_organisations",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="charon_organisations_pk"),
        sa.UniqueConstraint("slug", name="charon_organisations_slug_uq"),
    )
    op.create_table(
        "charon_api_keys",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("lookup", sa.Text, nullable=False),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("organisation_id", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger),
        sa.Column("revoked_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="charon_api_keys_pk"),
        sa.UniqueConstraint("lookup", name="charon_api_keys_lookup_uq"),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["charon_organisations.id"],
            name="charon_api_keys_organisation_id_fk",
        ),
    )
    op.create_index("charon_api_keys_organisation_id_ix", "charon_api_keys", ["organisation_id"])


def _work() -> None:
    op.create_table(
        "charon_projects",
        sa.Column("id", _NUMBER, nullable=False, autoincrement=True),
        sa.Column("organisation_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("run_number_last", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="charon_projects_pk"),
        sa.UniqueConstraint(
            "organisation_id", "name", name="charon_projects_organisation_id_name_uq"
        ),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["charon_organisations.id"],
            name="charon_projects_organisation_id_fk",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "charon_projects_organisation_id_prefix_ix",
        "charon_projects",
        ["organisation_id", "prefix"],
    )
    op.create_table(
        "charon_runs",
        sa.Column("id", _NUMBER, nullable=False, autoincrement=True),
        sa.Column("organisation_id", sa.Text, nullable=False),
        sa.Column("project_id", sa.BigInteger, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("external_id", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("status_updated_at_ms", sa.BigInteger),
        sa.Column("status_metadata", sa.Text),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("config", sa.Text),
        sa.Column("system_metadata", sa.Text),
        sa.Column("logger_settings", sa.Text),
        sa.Column("notes", sa.Text),
        sa.Column("forked_from_run_id", sa.BigInteger),
        sa.Column("fork_step", sa.Double),
        sa.Column("api_key_id", sa.Text),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="charon_runs_pk"),
        sa.UniqueConstraint(
            "project_id", "external_id", name="charon_runs_project_id_external_id_uq"
        ),
        sa.UniqueConstraint("project_id", "number", name="charon_runs_project_id_number_uq"),
        sa.ForeignKeyConstraint(
            ["organisation_id"], ["charon_organisations.id"], name="charon_runs_organisation_id_fk"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["charon_projects.id"], name="charon_runs_project_id_fk"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("charon_runs_organisation_id_id_ix", "charon_runs", ["organisation_id", "id"])
    op.create_index("charon_runs_status_id_ix", "charon_runs", ["status", "id"])


def _details() -> None:
    op.create_table(
        "charon_run_events",
        sa.Column("id", _NUMBER, nullable=False, autoincrement=True),
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.Column("from_status", sa.Text),
        sa.Column("to_status", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text),
        sa.Column("actor_id", sa.Text),
        sa.Column("api_key_id", sa.Text),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="charon_run_events_pk"),
        sa.ForeignKeyConstraint(["run_id"], ["charon_runs.id"], name="charon_run_events_run_id_fk"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "charon_run_events_run_id_created_at_ms_id_ix",
        "charon_run_events",
        ["run_id", "created_at_ms", "id"],
    )
    op.create_table(
        "charon_log_names",
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.Column("log_name", sa.Text, nullable=False),
        sa.Column("log_group", sa.Text, nullable=False),
        sa.Column("log_type", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "log_name", name="charon_log_names_pk"),
        sa.ForeignKeyConstraint(["run_id"], ["charon_runs.id"], name="charon_log_names_run_id_fk"),
    )
    op.create_table(
        "charon_heartbeats",
        sa.Column("run_id", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("last_seen_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="charon_heartbeats_pk"),
        sa.ForeignKeyConstraint(["run_id"], ["charon_runs.id"], name="charon_heartbeats_run_id_fk"),
    )
    op.create_table(
        "charon_alerts",
        sa.Column("id", _NUMBER, nullable=False, autoincrement=True),
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("url", sa.Text),
        sa.Column("wants_mail", sa.Boolean, nullable=False),
        sa.Column("raised_at_ms", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="charon_alerts_pk"),
        sa.ForeignKeyConstraint(["run_id"], ["charon_runs.id"], name="charon_alerts_run_id_fk"),
        sqlite_autoincrement=True,
    )
    op.create_index("charon_alerts_run_id_ix", "charon_alerts", ["run_id"])
