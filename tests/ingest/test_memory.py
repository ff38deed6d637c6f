"""Memory that is given back is there for the next block, and not cleared anew by the kernel."""

import platform
import subprocess
import sys

import pytest

BLOCKS = """
import resource, sys
from ingest.memory import keep_memory
if "kept" in sys.argv:
    keep_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def block():
    for piece in [bytes([number]) * 2**17 for number in range(70)]:
        assert piece
for _ in range(3):
    block()
before = faults()
for _ in range(20):
    block()
print(faults() - before)
"""


def page_faults(*arguments):
    run = subprocess.run(
        [sys.executable, "-c", BLOCKS, *arguments], capture_output=True, text=True, check=True
    )
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of another C library nothing is set")
def test_blocks_that_come_and_go_are_made_in_the_same_memory():
    assert page_faults("kept") < 500 < page_faults()
