"""Who may write, and which runs exist: organisations, API keys, projects, runs.

    catalog = await Catalog.open(url)      # a SQLite file, or Postgres
    await catalog.upgrade()                # the supervisor and `charon migrate`; workers do not
    key = await catalog.organisations.first_start()
    run = await catalog.runs.create(tenant, …)
    await catalog.close()

Knows nothing of HTTP. Ingestion needs it only to learn what a key may do, and to find a run's
project; both are cached there, so that the catalogue may be away for a while. SQLAlchemy Core
throughout, no ORM: one set of queries for both engines.
"""

from __future__ import annotations

from catalog.addresses import sqlite_url
from catalog.catalog import Catalog
from catalog.errors import CatalogFailure, Refused, Unavailable
from catalog.key_records import KeyRecord, KeyStore, NewKey, lookup_of
from catalog.organisations import Organisation

__all__ = [
    "Catalog",
    "CatalogFailure",
    "KeyRecord",
    "KeyStore",
    "NewKey",
    "Organisation",
    "Refused",
    "Unavailable",
    "lookup_of",
    "sqlite_url",
]
