"""The options that commands share. What is not given here comes from environment, file or default.

No option takes a secret: an argument list can be read by every user of the machine.
"""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text for people.")]
DataDir = Annotated[
    Path | None,
    # Our own words say what to do about one that cannot be read.
    typer.Option(readable=False, help="Where everything is kept.  \\[default: ./charon-data]"),
]
ClickHouseUrl = Annotated[
    str | None,
    typer.Option(help="ClickHouse's HTTP interface.  \\[default: the embedded engine]"),
]
ClickHouseUser = Annotated[str | None, typer.Option(help="Its user.")]
ClickHouseDatabase = Annotated[str | None, typer.Option(help="Its database.  \\[default: charon]")]
ClickHouseCa = Annotated[Path | None, typer.Option(help="CA bundle for https.")]
ClickHouseCluster = Annotated[
    str | None, typer.Option(help="Make replicated tables on this cluster.")
]
RetentionDays = Annotated[int | None, typer.Option(help="Rows older than this are deleted.")]
WithinOrganisation = Annotated[
    str | None,
    typer.Option(
        "--organisation",
        "--org",
        help="Look only in that organisation: its id, slug or name.  \\[default: all]",
    ),
]
