"""Heads that a worker keeps: bounded by their bytes, whoever sends them."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from ingest.lane_heads import Heads
from tests.ingest.test_lane import HEAD


@pytest.mark.parametrize("padding", [b"", b"a" * 200, b"a" * 1_700])
async def test_heads_of_strangers_fill_no_memory(padding):
    heads = Heads(asyncio.get_running_loop())
    start = b"POST /%b HTTP/1.1\r\nHost: a\r\nX-Run-Id: 1\r\nX-Project-Name: p\r\nX-More: %b\r\n"
    rest = b"Authorization: Bearer %d\r\nContent-Length: 1\r\n\r\n"
    tracemalloc.start()
    try:
        for number in range(300):
            for path in (b"ingest/metrics", b"api/runs/trigger"):
                assert heads.find(start % (path, padding) + rest % number).ingest is not None
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(heads) == 600
    assert taken - 100_000 < heads.byte_count, "what is bounded is no less than what is taken"
    assert heads.byte_count < 600 * (2_048 * 2 + 1_000)


async def test_the_oldest_heads_make_room(monkeypatch):
    monkeypatch.setattr("ingest.lane_heads.HEADS_BYTES_MAX", 20_000)
    heads = Heads(asyncio.get_running_loop())
    for number in range(100):
        head = HEAD + b"X-Number: %d\r\nContent-Length: 1\r\n\r\n" % number
        assert heads.find(head).ingest is not None
        assert heads.find(head.replace(b"Length: 1", b"Length: 77")).length == 77
    assert 10 < len(heads) < 25
    assert heads.byte_count <= 20_000


LIKE = HEAD + b"Content-Length: %b\r\nX-More: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (LIKE % b"0", 0),
        (LIKE % b"7" + b"a body", 7),
        (LIKE % b"9999999999", 9_999_999_999),
        (LIKE % b"12345678901", None),
        (LIKE % b"", None),
        (LIKE % b"00", None),
        (LIKE % b"07", None),
        (LIKE % b"+7", None),
        (LIKE % b" 7", None),
        (LIKE % b"7 ", None),
        (LIKE % "\u0667".encode(), None),
        (LIKE.replace(b"More: 1", b"More: 2") % b"7", None),
        (b"G" + LIKE[1:] % b"7", None),
        ((LIKE % b"7")[:-1], None),
        ((LIKE % b"7")[: len(HEAD) + 17], None),
        (LIKE[: len(HEAD) + 5], None),
        (b"", None),
    ],
)
async def test_a_head_like_the_last_one_is_measured_as_it_would_be_found(data, length):
    heads = Heads(asyncio.get_running_loop())
    like = heads.find(LIKE % b"31").like
    assert like is not None
    measured = like.measure(data)
    if length is None:
        assert measured is None
        return
    head = data[: data.find(b"\r\n\r\n") + 4]
    assert measured == (len(head), length)
    found = heads.find(head)
    assert (found.length, found.ingest) == (length, like.ingest)


async def test_nothing_is_like_a_head_that_is_not_kept():
    heads = Heads(asyncio.get_running_loop())
    assert heads.find(b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").like is None
    long = HEAD + b"X-More: %b\r\nContent-Length: 1\r\n\r\n" % (b"a" * 2_048)
    assert heads.find(long).like is None
