"""docs/operations.md agrees with the commands that it speaks of, and leaves none out."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from ingest.cli import app
from ingest.metric_names import KNOWN

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
EXAMPLES = re.findall(r"^\$ charon (.*)$", PAGE, re.MULTILINE)
GROUPS = ("wal", "quarantine")


def commands():
    """Every command of the page's kind, by its words."""
    root = typer.main.get_command(app)
    found = {("reconcile",): root.commands["reconcile"]}
    for group in GROUPS:
        for name, command in root.commands[group].commands.items():
            found[group, name] = command
    return found


def words_of(example):
    parts = shlex.split(example)
    return tuple(parts[: 2 if parts[0] in GROUPS else 1])


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_can_be_typed(example):
    words = words_of(example)
    command = commands()[words]
    command.make_context(" ".join(words), shlex.split(example)[len(words) :])


def test_every_command_is_in_the_table_and_has_an_example():
    for words in commands():
        assert f"| `charon {' '.join(words)}` |" in PAGE
    # What `ls` of the log shows is told in prose.
    assert {words_of(example) for example in EXAMPLES} >= set(commands()) - {("wal", "ls")}


def test_every_option_is_spoken_of_somewhere():
    shared = {"--data-dir", "--json", "--help"}
    reaching = {f"--clickhouse-{name}" for name in ("url", "user", "database", "ca")}
    for words, command in commands().items():
        for option in command.params:
            for name in option.opts:
                if name.startswith("--") and name not in shared | reaching:
                    assert name in PAGE, f"charon {' '.join(words)} {name}"
        assert {"--json", "--data-dir"} <= {name for one in command.params for name in one.opts}


def test_the_metrics_that_it_names_exist():
    for name in re.findall(r"`charon_(\w+?)(?:_total)?`", PAGE):
        assert name in KNOWN, name
