"""What must hold for any bytes at all: for hypothesis in the suite, and for a fuzzer without it.

`python tests/fuzz/run_atheris.py decoder` runs one under atheris, where that is installed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from buffer.errors import Damaged
from buffer.frame import Frame, Seal, Submission, encode_frames, encode_group
from buffer.reader import Damage
from buffer.segment import HEADER_BLOCK_BYTES
from ingest.body_decoding import ENCODINGS, BadEncoding, BodyDecoder, BodyTooLarge
from ingest.decode import Decoder
from ingest.decode_shapes import ShapeCache
from schema.columns import Chunks
from schema.ids import RunId, TenantId
from schema.reading import rows_of
from schema.streams import StreamKind
from tests.buffer.log_rig import LogRig, request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.decode import Decoded

NOW_MS = 1_764_423_221_123
KINDS = (StreamKind.METRICS, StreamKind.LOGS, StreamKind.DATA)
SHAPES = ShapeCache()


def decoder_agrees_with_itself(body: bytes, cuts: Sequence[int], kind: StreamKind) -> None:
    """However a body is cut, and line by line, it comes to the same rows and refusals."""
    whole = _decoded([body], kind, SHAPES)
    points = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    pieces = [body[start:end] for start, end in pairwise(points)]
    sliced = _decoded(pieces, kind, ShapeCache())
    assert _outcome(sliced) == _outcome(whole)
    assert sliced.errors == whole.errors
    assert sliced.hint == whole.hint
    # Each line in a request of its own goes another way than many in one call.
    lines = body.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    # Behind a blank line: a byte order mark is dropped at the start of a body alone.
    alone = [_decoded([b"\n" + line], kind, ShapeCache()) for line in lines]
    rows, rejected = [], 0
    for one in alone:
        rows += _outcome(one)[0]
        rejected += one.rejected
    assert (rows, rejected) == _outcome(whole)[:2]
    assert len(whole.errors) == min(whole.rejected, 20) == len(whole.refused_lines)


def encodings_end(data: bytes) -> None:
    """Any bytes in any encoding: a bounded body, or one of two errors."""
    for encoding in ENCODINGS:
        decoder = BodyDecoder(encoding, 2**16)
        try:
            for piece in decoder.feed(data):
                assert 0 < len(piece) <= 2**16
            decoder.finish()
        except (BadEncoding, BodyTooLarge):
            pass
        assert decoder.decoded_bytes <= 2**16


def planted_frames_stay_values(
    nonces: Sequence[bytes], damage: Sequence[tuple[int, int]], before: bytes
) -> None:
    """Frames forged inside a value, and any damage: what is read is what was written, or less."""
    planted = before + b"".join(map(_forged, nonces))
    honest = request(1)
    chunk = honest.chunks[0]
    value = Chunks(chunk.kind, chunk.tenant, chunk.project, chunk.run_id, 1, planted)
    sent = [request(0), Submission((value,), honest.digest, 1, 0), request(2)]
    rig = LogRig().open()
    for one in sent:
        rig.commit(one)
    (segment,) = rig.segments()
    length = len(rig.fs.content(segment)) - HEADER_BLOCK_BYTES
    for offset, mask in damage:
        rig.fs.flip(segment, HEADER_BLOCK_BYTES + offset % length, mask)
    rig.kill()
    written = [(one.digest, one.chunks[0].payload) for one in sent]
    try:
        found = rig.read()
    except Damaged:
        return
    read = [(one.digest, one.chunks.payload) for one in found if isinstance(one, Frame)]
    assert [one for one in written if one in read] == read
    if len(read) < len(written):
        assert rig.recovered.torn_bytes or [one for one in found if isinstance(one, Damage)]
    if not damage:
        assert read == written


def _forged(nonce: bytes) -> bytes:
    """A group with a frame of another tenant, as one would write it who knows the format."""
    seal = Seal.of(nonce)
    chunks = Chunks(StreamKind.METRICS, TenantId("victim"), "p", RunId(1), 1, b"forged")
    pieces: list[bytes] = []
    encode_frames(Submission((chunks,), b"f" * 16, 1, 0), 0, 1, seal, pieces)
    body = b"".join(pieces)
    return encode_group(1, 1, len(body), 0, seal) + body


def _decoded(pieces: Sequence[bytes], kind: StreamKind, shapes: ShapeCache) -> Decoded:
    decoder = Decoder(
        kind, TenantId("acme"), "fit", RunId(7), now_ms=NOW_MS, shapes=shapes, strict=False
    )
    for piece in pieces:
        decoder.feed(piece)
    return decoder.finish()


def _outcome(decoded: Decoded) -> tuple[list[str], int, int, int]:
    """Rows as text, so that NaN is like itself."""
    rows = [repr(row) for chunks in decoded.chunks for row in rows_of(chunks)]
    return rows, decoded.rejected, decoded.unknown_fields, decoded.future_rows
