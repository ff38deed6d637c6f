from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadtest import target
from loadtest.throwaway import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtest.target import Target


@pytest.fixture(scope="module")
def where(tmp_path_factory) -> Iterator[Target]:
    """A real server to load, one for all tests of a module."""
    server = Server(tmp_path_factory.mktemp("loaded") / "data")
    server.start()
    yield target.of_server(server)
    if server.process.poll() is None:
        server.stop()
