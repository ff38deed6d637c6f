"""What pages state as facts is so: numbers, settings and their defaults, routes, codes, files."""

import re
from pathlib import Path

import pytest

from buffer.metrics import MetricKind
from catalog import alerts, documents, log_names, model_graphs, runs, tags
from catalog.names import NAME_LENGTH_MAX
from ingest import api_bodies, api_calls
from ingest.answers import STATUS
from ingest.api_runs import endpoints
from ingest.metric_names import KNOWN
from ingest.routes import routes
from ingest.settings import CONFIG_VARIABLE, Settings, variables_of
from schema.migrations import LEDGER
from tests.pages import PAGES, ROOT
from tests.test_docs import COMMANDS

EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
OUR_FOLDERS = r"(?:tests|ingest|buffer|schema|catalog|loadtest|deploy)"
UNITS = {
    "": 1,
    "s": 1,
    "minutes": 60,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
DEFAULT = re.compile(
    r"`(?P<name>[a-z_]+)` \((?P<number>[0-9][0-9,.]*) ?(?P<unit>[A-Za-z]*)\)"
    r"|(?<![-0-9])(?P<number2>[0-9][0-9,.]*) ?(?P<unit2>[A-Za-z]*) \(`(?P<name2>[a-z_]+)`\)"
)


@EACH_PAGE
def test_every_number_to_watch_that_a_page_names_is_exported(page):
    exported = {
        f"charon_{metric.name}" + ("_total" if metric.kind is MetricKind.COUNTER else "")
        for metric in KNOWN.values()
    }
    named = set(re.findall(r"`(charon_[a-z_]+)(?:\{\w+\})?`", page.read_text()))
    assert named - {LEDGER} <= exported


@EACH_PAGE
def test_every_variable_that_a_page_names_sets_something(page):
    known = {CONFIG_VARIABLE, *(v for name in Settings.model_fields for v in variables_of(name))}
    assert set(re.findall(r"\bCHARON_[A-Z_]*[A-Z]\b", page.read_text())) <= known


@EACH_PAGE
def test_a_default_that_a_page_repeats_is_the_default(page):
    wrong = []
    for found in DEFAULT.finditer(page.read_text()):
        name = found["name"] or found["name2"]
        unit = UNITS.get(found["unit"] or found["unit2"] or "")
        if name not in Settings.model_fields or unit is None:
            continue
        number = float((found["number"] or found["number2"]).replace(",", "")) * unit
        if number != Settings.model_fields[name].get_default():
            wrong.append(found[0])
    assert not wrong


def test_a_default_that_is_a_word_is_the_default():
    text = (ROOT / "docs" / "configuration.md").read_text()
    for name, field in Settings.model_fields.items():
        default = field.get_default()
        if isinstance(default, str | bool | Path):
            assert f"\n| `{name}` | {str(default).lower()} |" in text


def test_a_default_that_help_tells_is_the_default():
    told = {
        param.name: found[1].removeprefix("./")
        for param in COMMANDS["serve",].params
        if (found := re.search(r"\[default: ([^\]]*)\]", getattr(param, "help", None) or ""))
    }
    wrong = {
        name: text
        for name, text in told.items()
        if name in Settings.model_fields
        and (default := Settings.model_fields[name].get_default()) is not None
        and text not in {str(default), str(default).removesuffix(".0")}
    }
    assert len(told) > 8
    assert not wrong


@EACH_PAGE
def test_every_file_of_ours_that_a_page_names_is_there(page):
    text = page.read_text()
    paths = re.findall(rf"`({OUR_FOLDERS}/[\w./*-]+)", text)
    paths += re.findall(rf"-[fm] ({OUR_FOLDERS}/[\w./-]+)", text)
    assert not [path for path in paths if not list(ROOT.glob(path.rstrip("/.")))]
    modules = re.findall(rf"python -m ({OUR_FOLDERS}(?:\.\w+)*)", text)
    for module in modules:
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    for path, word in re.findall(r"`(tests/[\w/]+\.py) -k (\w+)`", text):
        assert word.lower() in (ROOT / path).read_text().lower(), (path, word)  # as pytest compares


@EACH_PAGE
def test_every_make_target_that_a_page_names_is_one(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:`|^|&& |\$ )make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE)
    assert set(named) <= targets


def test_every_make_target_is_told_by_make_help():
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()
    told = re.findall(r'^\t@echo "make ([a-z-]+)', text, re.MULTILINE)
    assert set(phony) - {"help"} == set(told)


def test_every_route_is_on_a_page_and_every_one_on_a_page_is_served():
    served = {(route.method, route.path) for route in routes()}
    served |= {(endpoint.method, endpoint.path) for endpoint in endpoints()}
    text = "".join((ROOT / "docs" / name).read_text() for name in ("ingest-api.md", "run-api.md"))
    paths = set(re.findall(r"(/[\w/{}.-]*[\w}])", text))
    assert {path for _, path in served} <= paths
    named = {
        (method, path) for method, path in re.findall(r"\b(GET|POST) (/[\w/{}.-]+[\w}])", text)
    }
    assert named <= served


def test_every_code_of_an_answer_is_on_the_page_with_its_status():
    text = (ROOT / "docs" / "ingest-api.md").read_text()
    rows = re.findall(r"^\| (\d{3}) \| `([A-Z_]+)` \|", text, re.MULTILINE)
    assert {(int(status), code) for status, code in rows} == {
        (status, code.value) for code, status in STATUS.items()
    }


def test_the_limits_of_the_run_api_are_those_that_hold():
    text = (ROOT / "docs" / "run-api.md").read_text()
    size, values = documents.DOCUMENT_BYTES_MAX >> 20, documents.DOCUMENT_VALUES_MAX
    name, kind = log_names.LOG_NAME_BYTES_MAX, log_names.LOG_TYPE_LENGTH_MAX
    for row in (
        f"| body | {api_calls.BODY_BYTES_MAX >> 20} MiB; {api_calls.BODY_VALUES_MAX:,} JSON values",
        f"| document | {size} MiB, {values:,} values",
        f"| names of runs and projects, external ids | {NAME_LENGTH_MAX} characters",
        f"| tags | {tags.TAGS_MAX}, of {tags.TAG_LENGTH_MAX:,} characters",
        f"| notes | {runs.NOTES_LENGTH_MAX:,} characters",
        f"| log name, log type | {name:,} bytes of UTF-8, {kind} characters; ",
        f"; {api_bodies.LOG_NAMES_MAX:,} names a call |",
        f"| alert | {alerts.TEXT_LENGTH_MAX:,} characters each",
        f"| model graphs | {model_graphs.GRAPHS_MAX} a run",
        f"| times | 0 to {api_bodies.TIME_MS_MAX / 1e15:.2f}e15 ms",
    ):
        assert row in text
