"""The rules of the house that a program can check."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ingest.settings import Settings, variables_of

ROOT = Path(__file__).parent.parent
PACKAGES = ("schema", "buffer", "catalog", "ingest", "loadtest")
SHIPPED = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
LINES_MAX = 400

# What may be called only in the files named, and what to use elsewhere.
BANNED = {
    "time.time": ((), "a Clock, or time.time_ns for a stamp"),
    "datetime.datetime.now": (("ingest/supervisor.py",), "time.time_ns, stored as a number"),
    "datetime.utcnow": ((), "an aware time in UTC"),
    "os.fork": ((), "a program started by exec"),
    "os.system": ((), "asyncio.create_subprocess_exec"),
    "os.fsync": (("buffer/fs.py",), "the FileSystem of buffer.fs"),
    "os.fdatasync": (
        ("buffer/fs.py", "ingest/doctor.py", "loadtest/oracle.py"),
        "the FileSystem of buffer.fs",
    ),
    "multiprocessing.Process": ((), "ingest.processes"),
    "pickle.loads": ((), "a format with lengths and checksums"),
    "asyncio.get_event_loop": ((), "asyncio.get_running_loop"),
    "send_insert": ((), "INSERT … FROM INFILE: chDB's send_insert loses rows without an error"),
}

# Started by name as processes or by a tool, so that no import leads to them.
ENTRANCES = {
    "ingest.cli",
    "ingest.worker",
    "ingest.embedded",
    "ingest.prepare",
    "loadtest.demo",
    "loadtest.heartbeats",
    "loadtest.closed_loop",
    "loadtest.bench",
    "loadtest.bench_all",
    "loadtest.run",
    "loadtest.locustfile",
    "loadtest.sockets",
    "loadtest.stub",
    "loadtest.oracle",  # what tests under load judge by
    "schema.native",  # the general codec: what blocks are tested against, in both directions
}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def dotted(node):
    """`a.b.c` of an attribute chain that starts with a name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def imports_of(path):
    """Every module of ours that a file names in an import, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in found if name.split(".")[0] in PACKAGES}


def test_imports_follow_the_arrows():
    allowed = {
        "schema": {"schema"},
        "catalog": {"catalog"},
        "buffer": {"buffer", "schema"},
        "ingest": {"ingest", "buffer", "schema", "catalog"},
        "loadtest": set(PACKAGES),
    }
    against = [
        f"{module_of(path)} imports {name}"
        for path in SHIPPED
        for name in imports_of(path)
        if name.split(".")[0] not in allowed[module_of(path).split(".")[0]]
    ]
    assert not against


@pytest.mark.parametrize("call", BANNED)
def test_no_banned_call_is_made(call):
    files, instead = BANNED[call]
    guilty = []
    for path in SHIPPED:
        if str(path.relative_to(ROOT)) in files:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and (
                dotted(node) == call or ("." not in call and node.attr == call)
            ):
                guilty.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not guilty, f"{call} is banned; use {instead}"


def test_only_settings_and_processes_look_at_the_environment():
    allowed = {
        "ingest/settings.py",
        "ingest/processes.py",  # hands it on
        "ingest/cli_serve.py",  # names a file, and finds misspelt names
        "ingest/doctor.py",  # finds misspelt names
        "ingest/embedded_engine.py",  # sets TZ, the only way to tell chDB the time zone
    }
    guilty = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SHIPPED
        if path.parts[len(ROOT.parts)] != "loadtest" and str(path.relative_to(ROOT)) not in allowed
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and dotted(node) in {"os.environ", "os.getenv"}
    ]
    assert not guilty


def test_no_file_is_longer_than_its_idea():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in SHIPPED
        if (lines := len(path.read_text().splitlines())) > LINES_MAX
    }
    assert not long, f"over {LINES_MAX} lines: look for the second idea"


def test_no_file_has_a_name_that_says_nothing():
    empty = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
    assert not [path for path in SHIPPED if path.stem in empty]


def test_no_module_is_dead():
    named = set().union(*(imports_of(path) for path in SHIPPED))
    dead = [
        module_of(path)
        for path in SHIPPED
        if path.name != "__init__.py"
        and "migrations" not in path.parts
        and module_of(path) not in named | ENTRANCES
    ]
    assert not dead, "nothing imports these"


def test_every_entrance_exists():
    assert not [name for name in ENTRANCES if not (ROOT / f"{name.replace('.', '/')}.py").exists()]


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_is_loaded_from_our_tree(package):
    module = importlib.import_module(package)
    assert Path(module.__file__).resolve() == ROOT / package / "__init__.py"
    assert module.__doc__
    assert (ROOT / package / "py.typed").exists()


def test_every_package_is_listed_for_the_distribution():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {module_of(path) for path in SHIPPED if path.name == "__init__.py"}
    assert there == set(listed)


def test_every_setting_is_documented_with_its_default():
    text = (ROOT / "docs" / "configuration.md").read_text()
    for name, field in Settings.model_fields.items():
        row = re.search(rf"^\| `{name}` \| ([^|]*) \|", text, re.MULTILINE)
        assert row, f"docs/configuration.md lacks {name}"
        default = field.get_default()
        if isinstance(default, int | float) and not isinstance(default, bool):
            number = row[1].split("(")[0].strip().strip("`").replace(",", "").replace("_", "")
            assert float(number) == default, name
        for variable in variables_of(name)[1:]:
            assert variable in text
    named = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert set(named) == set(Settings.model_fields)


def test_no_page_leads_nowhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    lost = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not lost


def test_nothing_tells_of_the_place_where_it_was_made():
    """Paths of a machine, registries, and marks of unfinished work."""
    words = re.compile(
        r"/home/\w+/|/root/|/tmp/plan|/work/|\.pyenv|files\.pythonhosted|\bTO"
        r"DO\b|\bFIX"
        r"ME\b"
    )
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        [git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    guilty = []
    for name in filter(None, listing.split("\0")):
        path = ROOT / name
        if path == Path(__file__) or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        guilty += [
            f"{name}:{number}"
            for number, line in enumerate(text.splitlines(), 1)
            if words.search(line)
        ]
    assert not guilty


def test_the_supervisor_loads_no_database_and_no_web_library():
    """It lives as long as the server, and each megabyte of it is one that nobody uses."""
    code = (
        "import sys\n"
        "before = set(sys.modules)  # some packages load others as soon as Python starts\n"
        "import ingest.supervisor, ingest.cli_serve, ingest.logs\n"
        "heavy = {'sqlalchemy', 'aiohttp', 'chdb', 'alembic', 'uvloop', 'numpy', 'buffer'}\n"
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
