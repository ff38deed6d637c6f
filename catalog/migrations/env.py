"""Alembic's entry point; `catalog.upgrades` hands it a connection in a transaction."""

from __future__ import annotations

from alembic import context

from catalog.tables import metadata
from catalog.upgrades import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
