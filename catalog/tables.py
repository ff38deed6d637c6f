"""The catalogue's tables, as queries see them; `migrations/` is what makes them.

Names carry a prefix of ours, so that the tables can stand in a Postgres that already holds another
product's `api_key` or `runs`. Times are integer milliseconds since 1970 UTC: no engine's or
session's time zone can bend them. JSON is kept as the text that came: Postgres' jsonb refuses the
NaN that configurations hold, and a document of megabytes is stored without being built twice.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_N_name)s_fk",
        "uq": "%(table_name)s_%(column_0_N_name)s_uq",
        "ix": "%(table_name)s_%(column_0_N_name)s_ix",
    }
)

# SQLite counts (AUTOINCREMENT) only in a column declared exactly INTEGER PRIMARY KEY, which there
# holds 64 bits.
BigNumber = BigInteger().with_variant(Integer(), "sqlite")

organisations = Table(
    "charon_organisations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("slug", Text, nullable=False, unique=True),
    Column("created_at_ms", BigInteger, nullable=False),
)

api_keys = Table(
    "charon_api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column(
        "lookup", Text, nullable=False, unique=True
    ),  # SHA-256 in hex; the key itself for old mlpi_ keys
    Column("prefix", Text, nullable=False),  # its first 8 characters, to tell keys apart in a list
    Column("name", Text, nullable=False),
    Column(
        "organisation_id", Text, ForeignKey("charon_organisations.id"), nullable=False, index=True
    ),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger),
    Column("revoked_at_ms", BigInteger),
    Column(
        "scopes", Text, nullable=False, server_default="ingest,read,admin"
    ),  # sorted, with commas
    Column("last_used_at_ms", BigInteger),
    Column("rotated_from", Text),  # id of the key that it replaces
)

projects = Table(
    "charon_projects",
    metadata,
    Column("id", BigNumber, primary_key=True, autoincrement=True),
    Column("organisation_id", Text, ForeignKey("charon_organisations.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False),
    Column(
        "run_number_last", BigInteger, nullable=False
    ),  # the number given last; 0 before the first run
    Column("created_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    UniqueConstraint("organisation_id", "name"),
    Index("charon_projects_organisation_id_prefix_ix", "organisation_id", "prefix"),
    sqlite_autoincrement=True,
)

runs = Table(
    "charon_runs",
    metadata,
    Column(
        "id", BigNumber, primary_key=True, autoincrement=True
    ),  # never given twice, whatever is deleted
    Column("organisation_id", Text, ForeignKey("charon_organisations.id"), nullable=False),
    Column("project_id", BigInteger, ForeignKey("charon_projects.id"), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("external_id", Text),
    Column("status", Text, nullable=False),
    Column("status_updated_at_ms", BigInteger),
    Column("status_metadata", Text),
    Column("tags", Text, nullable=False),
    Column("config", Text),
    Column("system_metadata", Text),
    Column("logger_settings", Text),
    Column("notes", Text),
    Column("forked_from_run_id", BigInteger),
    Column("fork_step", Double),
    Column("api_key_id", Text),  # that it was made with
    Column("created_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    UniqueConstraint("project_id", "external_id"),
    UniqueConstraint("project_id", "number"),
    Index("charon_runs_organisation_id_id_ix", "organisation_id", "id"),
    Index("charon_runs_status_id_ix", "status", "id"),
    sqlite_autoincrement=True,
)

run_events = Table(
    "charon_run_events",
    metadata,
    Column("id", BigNumber, primary_key=True, autoincrement=True),
    Column("run_id", BigInteger, ForeignKey("charon_runs.id"), nullable=False),
    Column("from_status", Text),
    Column("to_status", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("metadata", Text),
    Column("actor_id", Text),
    Column("api_key_id", Text),
    Column("created_at_ms", BigInteger, nullable=False),
    Index("charon_run_events_run_id_created_at_ms_id_ix", "run_id", "created_at_ms", "id"),
    sqlite_autoincrement=True,
)

log_names = Table(
    "charon_log_names",
    metadata,
    Column("run_id", BigInteger, ForeignKey("charon_runs.id"), primary_key=True),
    Column("log_name", Text, primary_key=True),
    Column("log_group", Text, nullable=False),
    Column("log_type", Text, nullable=False),
)

heartbeats = Table(
    "charon_heartbeats",  # apart from runs: a row that changes all the time stays small
    metadata,
    Column(
        "run_id", BigInteger, ForeignKey("charon_runs.id"), primary_key=True, autoincrement=False
    ),
    Column("last_seen_at_ms", BigInteger, nullable=False),
)

arrivals = Table(
    "charon_arrivals",  # of rows, by our clock; a run may send them and no heartbeats
    metadata,
    Column(
        "run_id", BigInteger, ForeignKey("charon_runs.id"), primary_key=True, autoincrement=False
    ),
    Column("last_received_at_ms", BigInteger, nullable=False),
)

alerts = Table(
    "charon_alerts",
    metadata,
    Column("id", BigNumber, primary_key=True, autoincrement=True),
    Column("run_id", BigInteger, ForeignKey("charon_runs.id"), nullable=False, index=True),
    Column("level", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("url", Text),
    Column("wants_mail", Boolean, nullable=False),
    Column("raised_at_ms", BigInteger, nullable=False),  # as the client says
    Column("created_at_ms", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

run_triggers = Table(
    "charon_run_triggers",  # what was asked of a run from outside, until its process hears of it
    metadata,
    Column("id", BigNumber, primary_key=True, autoincrement=True),
    Column("run_id", BigInteger, ForeignKey("charon_runs.id"), nullable=False, index=True),
    Column("kind", Text, nullable=False),  # CANCEL
    Column("reason", Text),
    Column("actor", Text),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("consumed_at_ms", BigInteger),
    sqlite_autoincrement=True,
)

model_graphs = Table(
    "charon_model_graphs",
    metadata,
    Column("run_id", BigInteger, ForeignKey("charon_runs.id"), primary_key=True),
    Column("digest", Text, primary_key=True),  # of the graph: one that is sent again is there
    Column("graph", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)
