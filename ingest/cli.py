"""The command `charon`. Commands load what they need when they run, so each answers at once."""

import inspect
import sys
from typing import Annotated

import typer

from ingest.cli_bench import bench
from ingest.cli_clickhouse import clickhouse
from ingest.cli_doctor import doctor
from ingest.cli_keys import keys
from ingest.cli_options import AsJson
from ingest.cli_orgs import orgs
from ingest.cli_output import print_json
from ingest.cli_quarantine import quarantine
from ingest.cli_reconcile import reconcile
from ingest.cli_runs import runs
from ingest.cli_serve import serve
from ingest.cli_tables import migrate, sql
from ingest.cli_wal import wal

app = typer.Typer(
    name="charon",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # it shows local variables, and among them keys and passwords
)
app.command()(serve)
app.command()(migrate)
app.command()(clickhouse)
app.add_typer(orgs, name="orgs")
app.add_typer(keys, name="keys")
app.add_typer(runs, name="runs")
app.command()(sql)
app.command()(doctor)
app.command()(bench)
app.command()(reconcile)
app.add_typer(wal, name="wal")
app.add_typer(quarantine, name="quarantine")


def _let_paragraphs_flow(typer_app: typer.Typer) -> None:
    """Typer keeps the line ends of a docstring's later paragraphs, wherever the terminal ends."""
    for command in typer_app.registered_commands:
        text = inspect.getdoc(command.callback) or ""
        command.help = "\n\n".join(part.replace("\n", " ") for part in text.split("\n\n"))
    for group in typer_app.registered_groups:
        if group.typer_instance is not None:
            _let_paragraphs_flow(group.typer_instance)


def _version_asked(is_asked: bool) -> None:
    if is_asked:
        version()
        raise typer.Exit


@app.callback()
def charon(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_version_asked, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Durable metric ingestion for ML experiment tracking, into ClickHouse, exactly once."""


@app.command()
def version(as_json: AsJson = False) -> None:
    """Show the version."""
    import platform
    from importlib import metadata

    versions = {"charon": charon_version(), "python": platform.python_version()}
    try:
        versions["clickhouse"] = metadata.version("chdb-core")
    except metadata.PackageNotFoundError:
        versions["clickhouse"] = "not installed"
    if as_json:
        print_json(versions)
    else:
        print(
            f"charon {versions['charon']} (Python {versions['python']}, "
            f"embedded ClickHouse: chdb-core {versions['clickhouse']})"
        )


def charon_version() -> str:
    """The installed version; of a tree that is not installed, the one it would have."""
    import tomllib
    from importlib import metadata
    from pathlib import Path

    try:
        return metadata.version("charon")
    except metadata.PackageNotFoundError:
        project = Path(__file__).resolve().parent.parent / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


_let_paragraphs_flow(app)


def main() -> None:
    """Run a command. Exit status: 0, 1 for what went wrong, 2 for wrong usage, 130 for Ctrl-C."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not _is_expected(error):
            raise
        print(f"charon: {error}", file=sys.stderr)
        sys.exit(1)


def _is_expected(error: Exception) -> bool:
    """Whether the message is all that a user needs. Anything else is a bug, shown as one."""
    # By name: the packages that these come from are loaded only by the commands that need them.
    return isinstance(error, OSError) or any(
        f"{kind.__module__}.{kind.__qualname__}" in _EXPECTED for kind in type(error).__mro__
    )


_EXPECTED = {
    "ingest.settings.SettingsError",
    "ingest.data_dir.DataDirUnusable",
    "ingest.ports.PortUnusable",
    "ingest.supervisor.StartFailed",
    "ingest.cli_access.NotThere",
    "ingest.clickhouse_query.QueryFailed",
    "ingest.embedded_errors.EngineError",
    "ingest.embedded_lock.PathTaken",
    "catalog.errors.CatalogFailure",
    "buffer.errors.BufferFailure",
    "schema.errors.MigrationChanged",
}


if __name__ == "__main__":
    main()
