"""`charon keys …`: who may write and read. They work while servers run, and at once."""

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli_options import AsJson, DataDir, WithinOrganisation
from ingest.cli_output import moment, print_json, print_table
from ingest.durations import duration_ms, lifetime_ms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from catalog import Catalog, KeyRecord

keys = typer.Typer(no_args_is_help=True, help="API keys: who may write and read.")

Which = Annotated[str, typer.Argument(help="Its id, name, prefix, or itself.")]


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What the key is for; shown in lists.")],
    organisation: Annotated[
        str | None,
        typer.Option(
            "--organisation",
            "--org",
            help="Id, slug or name of the organisation.  \\[default: the only one]",
        ),
    ] = None,
    scopes: Annotated[
        str,
        typer.Option(help="What it may do, with commas: ingest, read, admin."),
    ] = "ingest,read",
    expires_in: Annotated[
        int | None,
        typer.Option(
            parser=lifetime_ms,
            metavar="DURATION",
            help="Ends by itself, like 12h or 90d.  \\[default: never]",
        ),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make an API key and show it, once. The first needs no organisation: one is made."""

    async def work() -> dict[str, Any]:
        async with _catalogue(data_dir, make=True) as catalog:
            owner = await catalog.organisations.resolve(organisation)
            new = await catalog.keys.create(
                name, owner.id, expires_at_ms=_after(expires_in), scopes=_words(scopes)
            )
            return {"key": new.secret, **_key(new.record), "organisation": owner.slug}

    made = asyncio.run(work())
    if as_json:
        print_json(made)
    else:
        print(f"key {made['name']} of organisation {made['organisation']}, shown this once:\n")
        print(f"export PLUTO_API_KEY={made['key']}")


@keys.command("ls")
@keys.command("list", hidden=True)
def list_keys(
    organisation: WithinOrganisation = None, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Show all keys, expired and revoked ones too; never the keys themselves."""

    async def work() -> list[dict[str, Any]]:
        async with _catalogue(data_dir) as catalog:
            owner = await _owner(catalog, organisation)
            slugs = {one.id: one.slug for one in await catalog.organisations.list()}
            return [
                {**_key(record), "organisation": slugs.get(record.tenant, record.tenant)}
                for record in await catalog.keys.list(owner)
            ]

    found = asyncio.run(work())
    if as_json:
        print_json(found)
        return
    print_table(
        ["name", "prefix", "organisation", "state", "scopes", "made", "expires", "last used", "id"],
        [
            (
                one["name"],
                one["prefix"],
                one["organisation"],
                one["state"],
                " ".join(one["scopes"]),
                one["created_at"],
                one["expires_at"] or "never",
                one["last_used_at"] or "never",
                one["id"],
            )
            for one in found
        ],
    )


@keys.command("show")
def show_key(
    which: Which,
    organisation: WithinOrganisation = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of one key; not the key itself, which nobody knows."""

    async def work() -> dict[str, Any]:
        async with _catalogue(data_dir) as catalog:
            record = await catalog.keys.get(which, await _owner(catalog, organisation))
            owner = await catalog.organisations.find(record.tenant)
            return {
                **_key(record),
                "organisation": record.tenant if owner is None else owner.slug,
            }

    found = asyncio.run(work())
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        text = " ".join(value) if isinstance(value, list) else value
        print(f"{name.replace('_', ' '):<13} {'-' if text is None else text}")


@keys.command("rotate")
def rotate_key(
    which: Which,
    overlap: Annotated[
        int,
        typer.Option(
            parser=duration_ms, metavar="DURATION", help="How long the old key works still."
        ),
    ] = "24h",  # type: ignore[assignment] # the parser reads the default too, and help shows it
    expires_in: Annotated[
        int | None,
        typer.Option(
            parser=lifetime_ms,
            metavar="DURATION",
            help="When the new one ends.  \\[default: after as long as the old one was given]",
        ),
    ] = None,
    organisation: WithinOrganisation = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a key that takes another's place, with its name and scopes, and show it once.

    The old one ends after the overlap, or sooner if it would have ended sooner by itself.
    """

    async def work() -> tuple[dict[str, Any], dict[str, Any]]:
        async with _catalogue(data_dir) as catalog:
            new, old = await catalog.keys.rotate(
                which,
                overlap_ms=overlap,
                expires_at_ms=_after(expires_in),
                organisation_id=await _owner(catalog, organisation),
            )
            return {"key": new.secret, **_key(new.record)}, _key(old)

    made, old = asyncio.run(work())
    if as_json:
        print_json({**made, "replaces": old})
    else:
        print(f"key {made['name']}, shown this once; {old['prefix']}… ends {old['expires_at']}:\n")
        print(f"export PLUTO_API_KEY={made['key']}")


@keys.command("expire")
def expire_key(
    which: Which,
    after: Annotated[
        int,
        typer.Option(
            "--in", parser=duration_ms, metavar="DURATION", help="From now on; 0s is at once."
        ),
    ] = "0s",  # type: ignore[assignment] # as above
    never: Annotated[bool, typer.Option("--never", help="It shall not end by itself.")] = False,
    organisation: WithinOrganisation = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Set when a key ends, sooner or later than before. Unlike a revocation it can be undone."""

    async def work() -> "KeyRecord":
        async with _catalogue(data_dir) as catalog:
            # "Now" has to be over when it is looked at next, in this very millisecond too.
            ends = None if never else (_after(after) or 0) - 1
            return await catalog.keys.expire(which, ends, await _owner(catalog, organisation))

    record = asyncio.run(work())
    if as_json:
        print_json(_key(record))
    else:
        print(
            f"key {record.name} ({record.prefix}…) ends {moment(record.expires_at_ms) or 'never'}"
        )


@keys.command("revoke")
def revoke_key(
    which: Which,
    organisation: WithinOrganisation = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Take a key back; running servers refuse it within two seconds. There is no way back."""

    async def work() -> "KeyRecord":
        async with _catalogue(data_dir) as catalog:
            return await catalog.keys.revoke(which, await _owner(catalog, organisation))

    record = asyncio.run(work())
    if as_json:
        print_json(_key(record))
    else:
        print(f"key {record.name} ({record.prefix}…) is revoked")


@asynccontextmanager
async def _catalogue(data_dir: "Path | None", *, make: bool = False) -> "AsyncIterator[Catalog]":
    from ingest.cli_access import catalogue
    from ingest.settings import load_settings

    async with catalogue(load_settings(data_dir=data_dir), make=make) as catalog:
        yield catalog


async def _owner(catalog: "Catalog", organisation: str | None) -> str | None:
    if organisation is None:
        return None
    return (await catalog.organisations.resolve(organisation)).id


def _after(length_ms: int | None) -> int | None:
    return None if length_ms is None else time.time_ns() // 1_000_000 + length_ms


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _key(record: "KeyRecord") -> dict[str, Any]:
    state = "expired" if record.is_expired(time.time_ns() // 1_000_000) else "valid"
    return {
        "id": record.id,
        "name": record.name,
        "prefix": record.prefix,
        "state": "revoked" if record.is_revoked else state,
        "scopes": sorted(record.scopes),
        "created_at": moment(record.created_at_ms),
        "expires_at": moment(record.expires_at_ms),
        "revoked_at": moment(record.revoked_at_ms),
        "last_used_at": moment(record.last_used_at_ms),
        "rotated_from": record.rotated_from,
    }
