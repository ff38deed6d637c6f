"""`charon orgs …` and `charon keys …`: who may write. They work while the server runs, at once."""

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli_options import AsJson, DataDir
from ingest.cli_output import moment, print_json, print_table

if TYPE_CHECKING:
    from catalog import KeyRecord, Organisation

orgs = typer.Typer(no_args_is_help=True, help="Organisations: each key and each run has one.")
keys = typer.Typer(no_args_is_help=True, help="API keys: who may write.")

DAY_MS = 24 * 3600 * 1000

OrganisationOption = Annotated[
    str | None,
    typer.Option(
        "--organisation",
        "--org",
        help="Id, slug or name of the organisation.  \\[default: the only one]",
    ),
]


@orgs.command("create")
def create_organisation(
    name: str,
    slug: Annotated[
        str | None, typer.Option(help="What addresses show.  \\[default: from the name]")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make an organisation."""
    from ingest.cli_access import catalogue
    from ingest.settings import load_settings

    async def work() -> "Organisation":
        async with catalogue(load_settings(data_dir=data_dir), make=True) as catalog:
            return await catalog.organisations.create(name, slug)

    made = asyncio.run(work())
    if as_json:
        print_json(_organisation(made))
    else:
        print(f"organisation {made.slug} ({made.id})")


@orgs.command("list")
def list_organisations(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show all organisations."""
    from ingest.cli_access import catalogue
    from ingest.settings import load_settings

    async def work() -> "list[Organisation]":
        async with catalogue(load_settings(data_dir=data_dir), make=False) as catalog:
            return await catalog.organisations.list()

    found = [_organisation(one) for one in asyncio.run(work())]
    if as_json:
        print_json(found)
    else:
        print_table(
            ["slug", "name", "id", "made"],
            [(one["slug"], one["name"], one["id"], one["created_at"]) for one in found],
        )


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What the key is for; shown in lists.")],
    organisation: OrganisationOption = None,
    expires_in_days: Annotated[
        int | None, typer.Option(min=1, max=36_500, help="Ends by itself.  \\[default: never]")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make an API key and show it, once. The first needs no organisation: one is made."""
    from ingest.cli_access import catalogue
    from ingest.settings import load_settings

    async def work() -> dict[str, Any]:
        async with catalogue(load_settings(data_dir=data_dir), make=True) as catalog:
            owner = await catalog.organisations.resolve(organisation)
            expiry = None
            if expires_in_days is not None:
                expiry = time.time_ns() // 1_000_000 + expires_in_days * DAY_MS
            new = await catalog.keys.create(name, owner.id, expires_at_ms=expiry)
            return {"key": new.secret, **_key(new.record), "organisation": owner.slug}

    made = asyncio.run(work())
    if as_json:
        print_json(made)
    else:
        print(f"key {made['name']} of organisation {made['organisation']}, shown this once:\n")
        print(f"export PLUTO_API_KEY={made['key']}")


@keys.command("list")
def list_keys(
    organisation: OrganisationOption = None, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Show all keys, expired and revoked ones too; never the keys themselves."""
    from ingest.cli_access import catalogue
    from ingest.settings import load_settings

    async def work() -> list[dict[str, Any]]:
        async with catalogue(load_settings(data_dir=data_dir), make=False) as catalog:
            owner = None
            if organisation is not None:
                owner = (await catalog.organisations.resolve(organisation)).id
            slugs = {one.id: one.slug for one in await catalog.organisations.list()}
            return [
                {**_key(record), "organisation": slugs.get(record.tenant, record.tenant)}
                for record in await catalog.keys.list(owner)
            ]

    found = asyncio.run(work())
    if as_json:
        print_json(found)
    else:
        columns = ["name", "prefix", "organisation", "state", "made", "expires", "id"]
        print_table(
            columns,
            [
                (
                    one["name"],
                    one["prefix"],
                    one["organisation"],
                    one["state"],
                    one["created_at"],
                    one["expires_at"] or "never",
                    one["id"],
                )
                for one in found
            ],
        )


@keys.command("revoke")
def revoke_key(
    which: Annotated[str, typer.Argument(help="Its id, name or prefix.")],
    organisation: OrganisationOption = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Take a key back; running servers refuse it within seconds. There is no way back."""
    from ingest.cli_access import catalogue
    from ingest.settings import load_settings

    async def work() -> "KeyRecord":
        async with catalogue(load_settings(data_dir=data_dir), make=False) as catalog:
            owner = None
            if organisation is not None:
                owner = (await catalog.organisations.resolve(organisation)).id
            return await catalog.keys.revoke(which, owner)

    record = asyncio.run(work())
    if as_json:
        print_json(_key(record))
    else:
        print(f"key {record.name} ({record.prefix}…) is revoked")


def _organisation(one: "Organisation") -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "slug": one.slug,
        "created_at": moment(one.created_at_ms),
    }


def _key(record: "KeyRecord") -> dict[str, Any]:
    now_ms = time.time_ns() // 1_000_000
    state = "expired" if record.is_expired(now_ms) else "valid"
    return {
        "id": record.id,
        "name": record.name,
        "prefix": record.prefix,
        "state": "revoked" if record.is_revoked else state,
        "created_at": moment(record.created_at_ms),
        "expires_at": moment(record.expires_at_ms),
        "revoked_at": moment(record.revoked_at_ms),
    }
