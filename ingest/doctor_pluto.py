"""What `charon doctor` says of an existing Pluto's keys, where the role is `ingest`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.cli_access import catalogue_url
from ingest.diagnosis import ERROR, NOTE, OK, WARNING, Diagnosis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ingest.settings import Settings

SUBJECT = "catalogue"


async def examine_pluto(settings: Settings) -> AsyncIterator[Diagnosis]:
    """Look at its table of keys, by the same queries that a worker makes."""
    from catalog.errors import Unavailable  # noqa: PLC0415 - SQLAlchemy, 0.3 s
    from catalog.keys_pluto import PlutoKeys  # noqa: PLC0415

    keys = PlutoKeys(catalogue_url(settings))
    try:
        await keys.find("")
        count, role, may_write = await keys.look()
    except Unavailable as error:
        yield Diagnosis(
            SUBJECT,
            ERROR,
            str(error),
            "see that CHARON_DATABASE_URL (or DATABASE_URL) is that Pluto's Postgres, and runs, "
            'and that its user may read the table "api_key"',
        )
        return
    finally:
        await keys.close()
    found = (
        f'role ingest: {count} valid key{"" if count == 1 else "s"} in "api_key", read as {role}'
    )
    if count == 0:
        yield Diagnosis(SUBJECT, WARNING, found, "make one in Pluto; every request is refused now")
    else:
        yield Diagnosis(SUBJECT, OK, found)
    if may_write:
        yield Diagnosis(
            SUBJECT,
            NOTE,
            f'{role} may write to "api_key"; Charon only reads it, in READ ONLY transactions',
            "give Charon a role of its own with no right but SELECT on that table",
        )
