"""How commands reach what a server works on: its catalogue, and its ClickHouse."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ingest.clickhouse_query import ClickHouseClient
from ingest.data_dir import holder, make_root, noted_server
from ingest.layout import ENGINE_USER, Layout

if TYPE_CHECKING:
    from catalog import Catalog
    from ingest.settings import Settings


POSTGRES_ADVICE = (
    "see that the Postgres of CHARON_DATABASE_URL runs, and that `charon migrate` has made its "
    "tables"
)


class NotThere(Exception):
    """What a command works on does not exist or does not run; says what to do."""


def layout_of(settings: "Settings") -> Layout:
    """The data directory's paths."""
    return Layout(settings.data_dir.absolute())


@asynccontextmanager
async def catalogue(settings: "Settings", *, make: bool) -> AsyncIterator["Catalog"]:
    """The catalogue, open; the running server uses it at the same time.

    Args:
        settings: say where it is.
        make: make the embedded one where it does not exist, and bring any up to date.

    Raises:
        NotThere: there is none yet, and it is not to be made; its Postgres is away; or the role is
            ingest, which has none.
        CatalogFailure: it cannot be used.
    """
    from catalog import Catalog
    from catalog.errors import Unavailable

    see_own_catalogue(settings)
    layout = layout_of(settings)
    embedded = settings.database_url is None
    if embedded and not layout.catalog.exists():
        if not make:
            raise NotThere(
                f"there is no catalogue in {layout.root} yet: start the server, or make the first "
                f"key with `charon keys create NAME` (or say where the data is with --data-dir)"
            )
        make_root(layout)
    catalog = await Catalog.open(catalogue_url(settings))
    try:
        if make:
            await _upgrade(catalog, settings)
        yield catalog
    except Unavailable as error:
        if embedded:
            raise
        raise NotThere(f"{error}: {POSTGRES_ADVICE}") from error
    finally:
        await catalog.close()


async def _upgrade(catalog: "Catalog", settings: "Settings") -> None:
    """Bring its tables up to date, as the start of a server does."""
    from catalog import Catalog

    direct = catalogue_url(settings, direct=True)
    if direct == catalogue_url(settings):
        await catalog.upgrade()
        return
    past_pooler = await Catalog.open(direct)
    try:
        await past_pooler.upgrade()
    finally:
        await past_pooler.close()


def see_own_catalogue(settings: "Settings") -> None:
    """Raises NotThere where the database is another product's, to which nothing is written."""
    if settings.role == "ingest":
        raise NotThere(
            "role ingest: keys, organisations and runs are those of the Pluto beside it, and are "
            "managed there; Charon makes and changes nothing in its Postgres and its ClickHouse"
        )


def catalogue_url(settings: "Settings", *, direct: bool = False) -> str:
    """The catalogue's address, with its secrets; `direct` goes past a pooler, for migrations."""
    url = (direct and settings.database_direct_url) or settings.database_url
    return layout_of(settings).catalog_url if url is None else url.get_secret_value()


def clickhouse(settings: "Settings") -> ClickHouseClient:
    """The ClickHouse that the server writes to.

    Raises:
        NotThere: it is the embedded one, and the server does not run.
    """
    if settings.clickhouse_url is not None:
        return ClickHouseClient(
            settings.clickhouse_url,
            settings.clickhouse_user,
            settings.clickhouse_password.get_secret_value(),
            settings.clickhouse_database,
            settings.clickhouse_ca,
            settings.clickhouse_timeout_seconds,
        )
    layout = layout_of(settings)
    note, pid = noted_server(layout), holder(layout)
    if note is None and pid is not None:
        raise NotThere(
            f"process {pid} on {layout.root} is starting, or a `charon clickhouse`: look again in "
            f"a moment, or name the address that it shows with --clickhouse-url, and give "
            f"CHARON_CLICKHOUSE_USER and CHARON_CLICKHOUSE_PASSWORD"
        )
    if note is None or pid is None:
        raise NotThere(
            f"no server runs on {layout.root}, and the embedded ClickHouse runs inside it: start "
            f"it with `charon serve` (or say where the data is with --data-dir)"
        )
    if note.get("clickhouse_port") is None:
        raise NotThere(
            f"the server that runs uses {note.get('clickhouse_url')}: name it with "
            f"--clickhouse-url, and give CHARON_CLICKHOUSE_USER and CHARON_CLICKHOUSE_PASSWORD"
        )
    try:
        password = layout.clickhouse_password.read_text(encoding="ascii").strip()
    except OSError as error:
        raise NotThere(
            f"{layout.clickhouse_password} cannot be read ({error.strerror}): it belongs to the "
            f"user that runs the server"
        ) from error
    return ClickHouseClient(
        str(note["clickhouse_url"]), ENGINE_USER, password, settings.clickhouse_database
    )
