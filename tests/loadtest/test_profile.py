"""py-spy's samples as a table."""

from loadtest import profile

RAW = """\
run (asyncio/runners.py:118);quick_metrics (ingest/decode_quick.py:40) 30
<module> (ingest/worker.py);run (asyncio/runners.py:118) 50
_run (threading.py:9);commit (buffer/log.py:186);write (buffer/fs.py:7) 15
_run (threading.py:9);insert_file (aiochclient/client.py:7);dumps (json/encoder.py:200) 5
_run (threading.py:9);_connection_worker_thread (aiosqlite/core.py:55) 1000
"""


def test_samples_belong_to_the_innermost_frame_that_says_something():
    assert profile.areas_of(RAW) == {
        "event loop, sockets and parser, in C": 50.0,
        "decode": 30.0,
        "log: encode, write, sync": 15.0,
        "delivery": 5.0,
    }


def test_functions_are_counted_by_themselves_and_waiting_threads_are_not():
    found = profile.functions_of(RAW, most=2)
    assert found == {
        "run (asyncio/runners.py)": 50.0,
        "quick_metrics (ingest/decode_quick.py)": 30.0,
    }
    assert any("| decode | 30.0 |" in line for line in profile.table(RAW))
