"""How the running Python was built: a request costs a good deal more where it was done plainly.

The standard library alone, and a program too: `.ci/venv` runs this file with every Python that it
finds, before anything is installed. Where that one is not optimised, it says so and fails.
"""

from __future__ import annotations

import platform
import shlex
import sys
import sysconfig

OPTIMISED = "--enable-optimizations"
"""Guided by a profile: what compilers of CPython are advised to give, and pyenv does not."""
PLAIN = frozenset({"--disable-optimizations", "--with-pydebug"})
DISTRIBUTION_PREFIX = "/usr"
COST = "10 to 25 % more CPU a request"
"""Measured: CPython 3.11 by pyenv's defaults, against Debian's."""
REMEDY = f"quicker is a distribution's Python, or one built with {OPTIMISED} --with-lto"


def is_optimised(configured: str | None = None, prefix: str = sys.base_prefix) -> bool:
    """Whether a Python was built with optimisation, as far as it can be known.

    A distribution's own counts unless it says otherwise: Debian's rules optimise by themselves, and
    nothing that it was configured with tells. What else says nothing was built plainly.

    Args:
        configured: the arguments of its `configure`, for a shell; by default the running one's.
        prefix: where it is installed, beneath any virtual environment.
    """
    if configured is None:
        configured = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    try:
        arguments = set(shlex.split(configured))
    except ValueError:  # an unbalanced quote, of whoever built it
        arguments = set(configured.split())
    if arguments & PLAIN:
        return False
    return OPTIMISED in arguments or prefix == DISTRIBUTION_PREFIX


def describe() -> str:
    """Version and build, as `3.11.2 (optimised)`."""
    return f"{platform.python_version()} ({'optimised' if is_optimised() else 'not optimised'})"


if __name__ == "__main__":
    if not is_optimised():
        print(f"Python {describe()}: {COST}; {REMEDY}")
        sys.exit(1)
