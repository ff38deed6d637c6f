"""`charon orgs …`: whose rows and runs are kept apart. They work while the server runs, at once."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli_options import AsJson, DataDir
from ingest.cli_output import moment, print_json, print_table

if TYPE_CHECKING:
    from catalog import Organisation

orgs = typer.Typer(no_args_is_help=True, help="Organisations: each key and each run has one.")


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


@orgs.command("ls")
@orgs.command("list", hidden=True)
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


def _organisation(one: "Organisation") -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "slug": one.slug,
        "created_at": moment(one.created_at_ms),
    }
