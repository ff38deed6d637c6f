"""The pages and the program agree: every command and option that a page names exists, and back."""

import re

import pytest
import typer.main

from ingest.cli import app
from ingest.embedded_body import DATA_BYTES_MAX
from ingest.embedded_config import EngineLimits
from ingest.embedded_http import READS_MAX
from ingest.embedded_sessions import SESSIONS_MAX
from ingest.embedded_statement import QUERY_CHARS_MAX
from tests.pages import PAGES, ROOT

# A call of the program: in a fenced block at a line's start or after `&&`, elsewhere in backticks.
CALL = re.compile(r"(?:^|&& |\$ |`|bin/)charon ((?:[a-z-]+)(?: [^`#\n]*)?)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def commands(group, path=()):
    """Every command below, by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))
OPTIONS = {
    words: {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    | {"--help"}
    for words, command in COMMANDS.items()
}


def calls(page):
    """(words of the command or group, the rest) of each call that a page shows."""
    for text in CALL.findall(page.read_text()):
        words = tuple(re.match(r"[a-z-]+(?: [a-z-]+)?", text)[0].split())
        yield words, text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_call_that_a_page_shows_can_be_made(page):
    groups = {words[0] for words in COMMANDS if len(words) > 1}
    wrong = []
    for words, text in calls(page):
        command = words if words in COMMANDS else words[:1]
        if command not in COMMANDS:
            # `charon wal ls|stat|show`, or a group by itself
            named = re.match(r"[a-z-]+ ([a-z|/]+)", text)
            each = [] if named is None else re.split(r"[|/]", named[1])
            if words[0] not in groups or any((words[0], one) not in COMMANDS for one in each):
                wrong.append(text)
            continue
        wrong += [
            f"{text}: {option}"
            for option in OPTION.findall(text.split(" && ")[0])
            if option not in OPTIONS[command]
        ]
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_option_that_a_page_names_is_one_of_some_command(page):
    known = set().union(*OPTIONS.values())
    others = {
        "CONTRIBUTING.md": {"--verbose"},  # of another program
        "benchmarks.md": {
            *("--worker", "--master-host", "--master", "--headless", "--expect-workers", "--host"),
            "--ntasks",
        },  # of locust and srun
        "ingest-api.md": {"--data-binary"},  # of curl
        "operations.md": {
            "--detach",
            "--wait",
            "--rm",
            "--no-deps",
            "--system",
            "--home-dir",
            "--now",
            "--enable-optimizations",
            "--with-lto",
        },  # of others
        "reliability.md": {"--seed", "--mutation"},  # of python -m tests.simulation
    }.get(page.name, set())
    assert set(OPTION.findall(page.read_text())) - known - others == set()


def test_every_command_is_in_the_readme():
    text = (ROOT / "README.md").read_text()
    missing = [
        words
        for words, command in COMMANDS.items()
        if not command.hidden
        and not re.search(rf"\b{words[0]}\b.*\b{words[-1]}\b" if len(words) > 1 else words[0], text)
    ]
    assert not missing


def anchors(page):
    """The places within a page that a link may name, as GitHub makes them of its headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_place_in_a_page_that_a_link_names_is_there(page):
    for target, anchor in re.findall(r"\]\(([\w./-]*)#([^)]+)\)", page.read_text()):
        there = set(anchors(page.parent / target if target else page))
        assert anchor in there, (target, anchor)


def test_every_page_is_linked_from_the_readme_and_every_link_leads_somewhere():
    readme = (ROOT / "README.md").read_text()
    for page in PAGES:
        text = page.read_text()
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", text):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
        if page.parent.name == "docs":
            assert f"](docs/{page.name})" in readme, f"{page.name} is not linked from README.md"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_and_option_says_what_it_does(words):
    command = COMMANDS[words]
    assert command.help
    for param in command.params:
        if param.param_type_name == "option":
            assert getattr(param, "help", None), f"{words}: {param.opts}"
    assert ("--json" in OPTIONS[words]) == (words != ("serve",))


def test_every_test_that_a_page_names_exists():
    there = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for page in PAGES:
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert f"def {name}(" in there, (page.name, name)


def test_the_bounds_of_the_embedded_engine_are_those_that_hold():
    text = (ROOT / "docs" / "embedded-engine.md").read_text()
    limits = EngineLimits(1, 1)
    assert f"| {limits.read_seconds} s; `max_execution_time`" in text
    assert limits.read_seconds_max == 3_600
    assert f"| {limits.threads_max}; `max_threads` may say {2 * limits.threads_max} |" in text
    assert f"| {READS_MAX}, then code 202 |" in text
    assert f"| {SESSIONS_MAX}; " in text
    assert f"| {QUERY_CHARS_MAX >> 10} KiB |" in text
    assert f"| {DATA_BYTES_MAX >> 30} GiB |" in text
