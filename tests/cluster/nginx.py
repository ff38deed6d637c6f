"""nginx as `deploy/nginx` sets it up, on loopback, unprivileged, in a directory of its own.

Nothing of the configuration is repeated here: paths, port and addresses are put in their places,
and a place that is not found is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.load import eventually
from tests.postgres import free_port, unprivileged

if TYPE_CHECKING:
    from collections.abc import Iterable

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "nginx"
SERVER = re.compile(r"^    server \S+ resolve (.*);$", re.MULTILINE)
LINE = re.compile(
    r'\S+ \[\S+\] "\S+ (?P<path>\S+)" (?P<status>\d+) \d+ \d+ (?P<seconds>[\d.]+) '
    r'"[^"]*" "(?P<upstream>[^"]*)" .*'
)


@dataclass(frozen=True)
class Passage:
    """One request, as nginx noted it."""

    path: str
    status: int
    seconds: float
    tries: int
    """Replicas that were asked."""
    first_status: str
    """Of the first try; `-` or 502 where it brought no answer."""


class Nginx:
    """One nginx; `upstream` says which replicas it knows, before `start` or at any time later."""

    def __init__(self) -> None:
        # Not below a test's own directory, which a user without rights cannot enter.
        self._kept = tempfile.TemporaryDirectory(prefix="charon-nginx-")
        self._directory = Path(self._kept.name)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        for part in (self._directory, self._directory / "tmp"):
            part.mkdir(exist_ok=True)
            if os.geteuid() == 0:
                shutil.chown(part, "nobody")
        self._write("nginx.conf", self._main())

    def upstream(self, ports: Iterable[int]) -> None:
        """Let it know these replicas, and no others; a running one reloads."""
        text = (DEPLOY / "replicas.conf").read_text()
        options = set(SERVER.findall(text))
        assert len(options) == 1, "every replica is described alike"
        servers = "\n".join(f"    server 127.0.0.1:{port} {min(options)};" for port in ports)
        first, *others = SERVER.finditer(text)
        for other in reversed(others):
            text = text[: other.start()] + text[other.end() + 1 :]
        text = text[: first.start()] + servers + text[first.end() :]
        self._write("replicas.conf", _put(text, "    resolver 127.0.0.11 valid=5s;\n", ""))
        if self._process is not None:
            self.check()
            former = self._workers()
            self._process.send_signal(signal.SIGHUP)
            # The old ones go once what they had is answered, and take connections until told to.
            eventually(lambda: not self._workers() & former, 30, "an end of the former workers")

    def check(self) -> None:
        """`nginx -t`.

        Raises:
            AssertionError: it does not like its configuration, or warns.
        """
        done = subprocess.run(
            [*self._command(), "-t"], capture_output=True, text=True, cwd="/", check=False
        )
        assert done.returncode == 0, done.stderr
        assert "[warn]" not in done.stderr, done.stderr

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.check()
        self._process = subprocess.Popen([*self._command(), "-g", "daemon off;"], cwd="/")
        eventually((self._directory / "tmp" / "nginx.pid").exists, 10, "nginx")
        eventually(self._workers, 10, "a worker of nginx")

    def stop(self) -> None:
        """SIGQUIT: what is under way is answered."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        """Stop it, and remove its directory."""
        self.stop()
        self._kept.cleanup()

    def logs(self) -> dict[str, str]:
        """The end of what it has to say, and the requests that it did not pass on at once."""
        error, access = (self._directory / name for name in ("error.log", "access.log"))
        said = error.read_text() if error.exists() else ""
        lines = access.read_text().splitlines() if access.exists() else []
        odd = [line for line in lines if not re.search(r'" 200 .*"200" \S+$', line)]
        return {"nginx": said[-4_000:], "nginx's odd requests": "\n".join(odd[-40:])}

    def passages(self) -> list[Passage]:
        """Every request to the ingest routes so far; what was answered a second ago is there."""
        found = []
        for line in (self._directory / "access.log").read_text().splitlines():
            match = LINE.fullmatch(line)
            assert match is not None, line
            if match["path"].startswith("/ingest/"):
                statuses = match["upstream"].split(", ")
                found.append(
                    Passage(
                        path=match["path"],
                        status=int(match["status"]),
                        seconds=float(match["seconds"]),
                        tries=len(statuses),
                        first_status=statuses[0],
                    )
                )
        return found

    def _main(self) -> str:
        text = (DEPLOY / "nginx.conf").read_text()
        text = _put(text, " /tmp/", f" {self._directory}/tmp/")
        text = _put(text, "listen 8080 ", f"listen 127.0.0.1:{self.port} ")
        text = _put(text, "access_log /dev/stdout ", f"access_log {self._directory}/access.log ")
        return _put(text, "error_log stderr ", f"error_log {self._directory}/error.log ")

    def _write(self, name: str, text: str) -> None:
        (self._directory / name).write_text(text)

    def _command(self) -> list[str]:
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if program is None:
            pytest.fail("no nginx in PATH or /usr/sbin: apt-get install nginx-light")
        log = f"{self._directory}/error.log"
        return [
            *(*unprivileged(), program, "-p", f"{self._directory}"),
            *("-c", f"{self._directory}/nginx.conf", "-e", log),
        ]

    def _workers(self) -> set[int]:
        assert self._process is not None
        listing = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return set(map(int, listing.read_text().split()))


def _put(text: str, place: str, value: str) -> str:
    assert place in text, f"deploy/nginx has no {place!r} any more"
    return text.replace(place, value)
