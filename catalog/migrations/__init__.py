"""Alembic environment and revisions of the catalogue."""
