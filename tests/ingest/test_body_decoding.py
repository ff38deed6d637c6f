"""Content encodings: decoded under a bound, cut anywhere, and never taken for what they are not."""

from __future__ import annotations

import contextlib
import gzip
import sys
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.body_decoding import (
    EMPTY_MEMBERS_MAX,
    PIECE_BYTES_MAX,
    BadEncoding,
    BodyDecoder,
    BodyTooLarge,
    UnknownEncoding,
    encoding_of,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def raw_deflate(data):
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


ENCODE = {
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}
COMPRESSED = ["gzip", "deflate", "zstd"]


def decoded(encoding, data, *, limit=2**26, slice_bytes=2**16):
    decoder = BodyDecoder(encoding, limit)
    pieces = []
    for start in range(0, len(data), slice_bytes):
        pieces += decoder.feed(data[start : start + slice_bytes])
    decoder.finish()
    assert all(0 < len(piece) <= PIECE_BYTES_MAX for piece in pieces)
    assert decoder.decoded_bytes == sum(map(len, pieces))
    return b"".join(pieces)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([*ENCODE.items(), ("deflate", raw_deflate)]),
    st.binary(max_size=2_000),
    st.integers(1, 300),
)
def test_what_was_encoded_comes_back_however_it_is_cut(encoder, data, slice_bytes):
    encoding, encode = encoder
    assert decoded(encoding, encode(data), slice_bytes=slice_bytes) == data


@pytest.mark.parametrize("encoding", ENCODE)
def test_large_bodies_come_in_pieces(encoding):
    data = bytes(range(256)) * 20_000
    assert decoded(encoding, ENCODE[encoding](data)) == data


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_members_one_after_another_are_one_body(encoding):
    encode = ENCODE[encoding]
    data = encode(b"one ") + encode(b"") + encode(b"two")
    for slice_bytes in (1, 7, 1_000):
        assert decoded(encoding, data, slice_bytes=slice_bytes) == b"one two"


def test_gzip_may_be_padded_with_zeros():
    assert decoded("gzip", gzip.compress(b"one") + b"\0" * 512) == b"one"


def test_zstd_skippable_frames_are_skipped():
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    assert decoded("zstd", skippable + zstd.compress(b"one")) == b"one"


@pytest.mark.parametrize("encoding", ENCODE)
def test_an_empty_body_is_an_empty_body(encoding):
    assert decoded(encoding, b"") == b""


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_a_body_cut_short_is_told(encoding):
    data = ENCODE[encoding](b"some text" * 100)
    for cut in (1, len(data) // 2, len(data) - 1):
        with pytest.raises(BadEncoding, match="ends before"):
            decoded(encoding, data[:cut])


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_bytes_of_another_kind_are_told(encoding):
    for junk in (b"not compressed at all", ENCODE[encoding](b"text") + b"{}"):
        with pytest.raises(BadEncoding, match=r"not valid|bytes follow|ends before"):
            decoded(encoding, junk)


@pytest.mark.parametrize("encoding", COMPRESSED)
@given(data=st.binary(max_size=200))
@settings(deadline=None, max_examples=50)
def test_no_bytes_raise_anything_but_bad_encoding(encoding, data):
    with contextlib.suppress(BadEncoding):
        decoded(encoding, data)


@pytest.mark.parametrize("encoding", ENCODE)
def test_the_bound_holds_to_the_byte(encoding):
    data = b"x" * 5_000
    assert decoded(encoding, ENCODE[encoding](data), limit=5_000) == data
    with pytest.raises(BodyTooLarge, match="4,999"):
        decoded(encoding, ENCODE[encoding](data), limit=4_999)


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_f14_a_bomb_stops_at_the_bound_and_costs_a_piece(encoding):
    bomb = ENCODE[encoding](bytes(200 * 2**20))
    nested = bomb * 2 if encoding != "deflate" else bomb
    for data in (bomb, nested):
        decoder = BodyDecoder(encoding, 8 * 2**20)
        tracemalloc.start()
        try:
            with pytest.raises(BodyTooLarge):
                for _ in decoder.feed(data):
                    pass
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 5 * 2**20
        assert decoder.decoded_bytes == 8 * 2**20


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_of_empty_members_alone_is_refused(encoding):
    empty = ENCODE[encoding](b"")
    assert decoded(encoding, empty * EMPTY_MEMBERS_MAX) == b""
    with pytest.raises(BadEncoding, match="empty"):
        decoded(encoding, empty * (EMPTY_MEMBERS_MAX + 1))


def test_zstd_windows_above_8_mib_are_refused():
    stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    data = stream.compress(b"ab" * 500) + stream.compress(b"x" * 100_000) + stream.flush()
    with pytest.raises(BadEncoding, match="not valid zstd"):
        decoded("zstd", data)


@pytest.mark.parametrize("header", [None, "", "identity", "Identity", " GZIP ", "zstd"])
def test_known_encodings_are_taken_in_any_case(header):
    assert encoding_of(header) in ENCODE


@pytest.mark.parametrize(
    "header", ["br", "gzip, deflate", "gzip,gzip", "compress", "lz4", "x" * 10_000]
)
def test_unknown_and_stacked_encodings_are_refused_with_the_list(header):
    with pytest.raises(UnknownEncoding, match="identity, gzip, x-gzip, deflate, zstd") as caught:
        BodyDecoder(header, 1)
    assert len(str(caught.value)) < 200
