"""What every test leaves as it found it."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest
import structlog

from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures, for all

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def process_as_found() -> Iterator[None]:
    """Environment and logging are the process's: a command run in this one must not leave its own.

    A logger left behind writes to a captured stream that is closed by then, tests later.
    """
    environment = dict(os.environ)
    logs, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**logs)
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
