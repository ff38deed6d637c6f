"""`charon runs …`: what runs there are, and stopping one. They work while the server runs."""

import asyncio
import getpass
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli_options import AsJson, DataDir, WithinOrganisation
from ingest.cli_output import moment, print_json, print_table

if TYPE_CHECKING:
    from catalog import Catalog
    from catalog.run_events import RunEvent
    from catalog.run_lists import RunLine
    from catalog.statuses import Status
    from catalog.triggers import Trigger

runs = typer.Typer(no_args_is_help=True, help="Runs: what there is, and stopping one.")

QUIET_MS = 60_000
"""A run that beats every few seconds and was not heard of for so long may not hear of us."""

Which = Annotated[str, typer.Argument(help="Its number, display id (ABC-1) or external id.")]
ProjectOption = Annotated[str | None, typer.Option(help="Only runs of the project of that name.")]


@runs.command("ls")
@runs.command("list", hidden=True)
def list_runs(
    project: ProjectOption = None,
    status: Annotated[
        list[str] | None,
        typer.Option(help="Only runs of that status, such as RUNNING; may be given repeatedly."),
    ] = None,
    organisation: WithinOrganisation = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="So many at most.")] = 50,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show runs, newest first: of all organisations, unless one is named."""
    from catalog.run_lists import RunLists
    from ingest.cli_access import catalogue
    from ingest.settings import load_settings

    statuses = [_status(text) for text in status or ()]

    async def work() -> "list[RunLine]":
        async with catalogue(load_settings(data_dir=data_dir), make=False) as catalog:
            tenant = await _tenant(catalog, organisation)
            lists = RunLists(catalog.database)
            return await lists.newest(
                tenant=tenant, project=project, statuses=statuses, limit=limit
            )

    found = [_line(run) for run in asyncio.run(work())]
    if as_json:
        print_json(found)
        return
    columns = ["id", "display_id", "status", "project", "name", "created_at", "heartbeat_at"]
    headings = ["id", "run", "status", "project", "name", "made", "last heartbeat", "organisation"]
    print_table(
        headings,
        [[one[column] or "" for column in columns] + [one["organisation"]] for one in found],
        numbers=[0],
    )
    if len(found) == limit:
        print(f"the newest {limit}; --limit shows more")


@runs.command("show")
def show_run(
    which: Which,
    project: ProjectOption = None,
    organisation: WithinOrganisation = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show a run, the history of its status, and what was asked of it."""
    from catalog.errors import NotFound
    from catalog.run_lists import RunLists
    from ingest.cli_access import catalogue
    from ingest.settings import load_settings

    async def work() -> dict[str, Any]:
        async with catalogue(load_settings(data_dir=data_dir), make=False) as catalog:
            tenant = await _tenant(catalog, organisation)
            line = await RunLists(catalog.database).find(which, tenant=tenant, project=project)
            run = await catalog.runs.find(line.tenant, line.id)
            if run is None:
                raise NotFound(f"run {line.id} was deleted just now")
            return _line(line) | {
                "status_updated_at": moment(line.status_updated_at_ms),
                "rows_received_at": moment(line.rows_received_at_ms),
                "forked_from": run.forked_from_run_id,
                "fork_step": run.fork_step,
                "tags": run.tags,
                "notes": run.notes,
                "config": _document(run.config),
                "history": [_event(e) for e in await catalog.runs.history(line.tenant, line.id)],
                "requests": [_request(t) for t in await catalog.triggers.of_run(line.id)],
            }

    found = asyncio.run(work())
    if as_json:
        print_json(found)
        return
    history, requests = found.pop("history"), found.pop("requests")
    print_table(
        ["what", "value"],
        [
            (name, json.dumps(value) if isinstance(value, (dict, list)) else value)
            for name, value in found.items()
            if value not in (None, [], "")
        ],
    )
    print_table(
        ["when", "from", "to", "by", "because"],
        [
            (
                event["at"],
                event["from"] or "",
                event["to"],
                event["actor"] or event["source"],
                "" if event["metadata"] is None else json.dumps(event["metadata"]),
            )
            for event in history
        ],
    )
    for request in requests:
        if request["done_at"] is None:
            print(f"asked to stop at {request['at']} by {request['actor']}: not heard yet")


@runs.command("cancel")
def cancel_run(
    which: Which,
    reason: Annotated[
        str | None, typer.Option(help="Kept in the history of the run's status.")
    ] = None,
    project: ProjectOption = None,
    organisation: WithinOrganisation = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Stop a run: its process hears of it with its next heartbeat, and exits with status 2."""
    import time

    from catalog.run_lists import RunLists
    from ingest.cli_access import catalogue
    from ingest.settings import load_settings

    async def work() -> "tuple[RunLine, Trigger]":
        async with catalogue(load_settings(data_dir=data_dir), make=False) as catalog:
            tenant = await _tenant(catalog, organisation)
            line = await RunLists(catalog.database).find(which, tenant=tenant, project=project)
            asked = await catalog.triggers.ask_cancel(
                line.tenant, line.id, reason=reason, actor=_actor()
            )
            return line, asked

    run, asked = asyncio.run(work())
    heard_ms = run.heartbeat_at_ms
    is_quiet = heard_ms is None or time.time_ns() // 1_000_000 - heard_ms > QUIET_MS
    if as_json:
        print_json(_line(run) | {"request": _request(asked), "is_quiet": is_quiet})
        return
    print(f"run {run.id} ({run.display_id}, {run.name}) is asked to stop")
    if not is_quiet:
        print("it becomes CANCELLED with its next heartbeat, within seconds")
    else:
        heard = "no heartbeat of it was ever seen" if heard_ms is None else moment(heard_ms)
        print(
            f"its last heartbeat: {heard}. Nothing may be left to stop: a run that stays silent is "
            "marked FAILED by itself"
        )


async def _tenant(catalog: "Catalog", organisation: str | None) -> str | None:
    if organisation is None:
        return None
    return (await catalog.organisations.resolve(organisation)).id


def _status(text: str) -> "Status":
    from catalog.statuses import Status

    try:
        return Status(text.upper())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no status: {', '.join(Status)}", param_hint="--status"
        ) from None


def _actor() -> str:
    """Who runs this command, for the history."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name
        return "cli"


def _line(run: "RunLine") -> dict[str, Any]:
    return {
        "id": run.id,
        "display_id": run.display_id,
        "external_id": run.external_id,
        "organisation": run.organisation_slug,
        "project": run.project,
        "name": run.name,
        "status": run.status.value,
        "created_at": moment(run.created_at_ms),
        "heartbeat_at": moment(run.heartbeat_at_ms),
    }


def _event(event: "RunEvent") -> dict[str, Any]:
    return {
        "at": moment(event.created_at_ms),
        "from": event.from_status,
        "to": event.to_status,
        "source": event.source,
        "actor": event.actor_id,
        "metadata": _document(event.metadata),
    }


def _request(trigger: "Trigger") -> dict[str, Any]:
    return {
        "kind": trigger.kind,
        "reason": trigger.reason,
        "actor": trigger.actor,
        "at": moment(trigger.created_at_ms),
        "done_at": moment(trigger.consumed_at_ms),
    }


def _document(text: str | None) -> Any:  # noqa: ANN401 - JSON
    return None if text is None else json.loads(text)
