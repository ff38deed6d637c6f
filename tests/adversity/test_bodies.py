"""Bodies that are small on the wire and not inside: bombs, costly lines, hostile JSON documents."""

from __future__ import annotations

import asyncio
import gzip
import sys
import zlib
from collections import Counter
from io import BytesIO
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.adversity.bystander import TIME_MS, headers, undisturbed

if TYPE_CHECKING:
    from loadtest.throwaway import Server

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.slow

ZEROS = b"\0" * (200 * 2**20)
SIZE = 12 * 2**20
START = b'{"time":%d,"data":{"b":1},"a":[' % TIME_MS


async def at_once(server: Server, body: bytes, encoding: str, count: int = 20) -> Counter[int]:
    async def one(client: aiohttp.ClientSession, run: int) -> int:
        async with client.post(
            server.url + "/ingest/metrics",
            data=BytesIO(body),
            headers=headers(server, run, Content_Encoding=encoding),
        ) as answer:
            await answer.read()
            return answer.status

    async with aiohttp.ClientSession() as client:
        return Counter(await asyncio.gather(*(one(client, 100 + n) for n in range(count))))


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstd.compress)],
    ids=["gzip", "deflate", "zstd"],
)
async def test_f14_twenty_bombs_at_once_are_refused_at_the_bound(
    server: Server, encoding: str, compress
) -> None:
    async with undisturbed(server):
        found = await at_once(server, compress(ZEROS), encoding)
    # Those that got memory were refused at the bound, the others told to come again.
    assert found.keys() <= {413, 503}
    assert found[413] >= 1


@pytest.mark.parametrize(
    "body",
    [
        b"{}\n" * (SIZE // 3),
        b"[]\n" * (SIZE // 3),
        b"\n" * SIZE,
        b'{"time":1e11,"data":{}}\n' * (SIZE // 72),
        b'{"time":1e11,"data":{{}}\n' * (SIZE // 150),
        START + b",".join([b"[]"] * 2_700_000) + b"]}\n",
        START + b",".join([b'{"a":0}'] * 1_000_000) + b"]}\n",
        b'{"time":%d,"data":{' % TIME_MS
        + b",".join(b'"a%d":[]' % n for n in range(60_000))
        + b"}}",
    ],
    ids=["objects", "lists", "newlines", "no rows", "no JSON", "line of lists", "of dicts", "wide"],
)
async def test_costly_lines_hold_nobody_up(server: Server, body: bytes) -> None:
    async with undisturbed(server):
        found = await at_once(server, zstd.compress(body), "zstd", count=4)
    assert found.keys() <= {200, 503}
    assert found[200] >= 1


HOSTILE = 40 * 2**20 - 100
RUN = b'{"runName":"r","projectName":"p",'


@pytest.mark.parametrize(
    "body",
    [
        RUN + b'"x":[' + b"[]," * (HOSTILE // 3 - 20) + b"0]}",
        RUN + b'"x":[' + b'{"a":0},' * (HOSTILE // 8 - 20) + b"NaN]}",
        RUN + b'"tags":[' + b'"ab",' * (HOSTILE // 5 - 20) + b'""]}',
        RUN + b'"config":"[' + b"[]," * 5_000_000 + b'0]"}',
        RUN + b'"config":"{' + b'\\"\\":0,' * 2_000_000 + b'\\"a\\":NaN}"}',
        b"[" * 2**20,
        RUN + b'"x":"' + b'\\"' * (HOSTILE // 2 - 40) + b"[,{" * 10,
        b'"' * HOSTILE,
    ],
    ids=["lists", "dicts", "strings", "config", "config NaN", "deep", "open string", "quotes"],
)
async def test_json_of_many_megabytes_is_refused_before_it_is_parsed(
    server: Server, body: bytes
) -> None:
    async with undisturbed(server):
        status, text = await post(server, "/api/runs/create", body)
    assert status in {400, 413}, text[:500]
    assert len(text) < 1_000


async def test_a_hundred_thousand_mistakes_make_a_short_answer(server: Server) -> None:
    body = b'{"runId":1,"logType":"M","logName":[' + b"1," * 99_000 + b"1]}"
    async with undisturbed(server):
        status, text = await post(server, "/api/runs/logName/add", body)
    assert status == 400
    assert len(text) < 1_000


async def test_a_document_of_16_mib_in_few_values_is_taken(server: Server) -> None:
    body = RUN + b'"config":"{\\"a\\":\\"' + b"x" * (16 * 2**20 - 10) + b'\\"}"}'
    async with undisturbed(server):
        status, text = await post(server, "/api/runs/create", body)
    assert status == 200, text[:500]


async def post(server: Server, path: str, body: bytes) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as client,
        client.post(server.url + path, data=BytesIO(body), headers=headers(server)) as answer,
    ):
        return answer.status, await answer.read()
