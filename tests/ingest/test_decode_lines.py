"""Bodies in slices: every line once, by its number, and none too long held in memory."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from ingest.decode_lines import Block, LineCutter, LongLine
from schema.limits import LINE_BYTES_MAX
from tests.ingest.bodies import decode, errors, line, points


def cut(slices, line_bytes_max=LINE_BYTES_MAX):
    """Each line by its number; None for one that was too long."""
    cutter = LineCutter(line_bytes_max)
    found = {}
    for number, slice_ in enumerate(slices, 1):
        for block in cutter.cut(slice_, is_last=number == len(slices)):
            if isinstance(block, LongLine):
                assert block.line not in found
                found[block.line] = None
            else:
                assert isinstance(block, Block)
                for line_number, text in enumerate(block.lines, block.first_line):
                    assert line_number not in found
                    found[line_number] = text
    return found


@given(
    st.lists(
        st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r"]), max_size=6).map(b"".join),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 6),
)
def test_every_line_comes_once_with_its_number(slices, line_bytes_max):
    body = b"".join(slices)
    expected = (
        body.splitlines(keepends=True)
        if b"\r" not in body
        else [text + b"\n" for text in body.split(b"\n")]
    )
    if b"\r" in body:
        expected[-1] = expected[-1][:-1]
        expected = expected if expected[-1] else expected[:-1]
    found = cut(slices, line_bytes_max)
    for number, text in enumerate(expected, 1):
        if number not in found:  # a slice of blank lines alone is counted and passed over
            assert not text.strip(b" \t\r\n")
            assert len(text) <= line_bytes_max
        else:
            assert found.pop(number) == (text if len(text) <= line_bytes_max else None)
    assert not found


def test_a_byte_order_mark_at_the_start_is_dropped():
    body = b"\xef\xbb\xbf" + line({"x": 1}).encode()
    for slice_bytes in (1, 2, 3, 1_000):
        assert len(points(decode(body, slice_bytes=slice_bytes))) == 1


def test_carriage_returns_blanks_and_empty_lines_are_no_refusals():
    body = f"\n\r\n  {line({'x': 1})} \t\r\n\n{line({'x': 2})}\r\n\n"
    decoded = decode(body)
    assert (decoded.accepted, decoded.rejected) == (2, 0)


def test_lines_are_numbered_from_one_with_blank_lines_counted():
    assert errors(decode(f"\n{line({'x': 1})}\n\n{{\n")) == [(4, "line")]


def test_a_line_over_the_bound_is_refused_alone_and_not_kept():
    good = line({"x": 1}).encode() + b"\n"
    huge = b'{"time":1764423221123,"data":{"' + b"n" * (9 * 2**20) + b'":1}}\n'
    body = good + huge * 3 + good
    tracemalloc.start()
    decoded = decode(body, slice_bytes=2**16)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (decoded.accepted, errors(decoded)) == (2, [(2, "line"), (3, "line"), (4, "line")])
    assert "longer than 8,388,608 bytes" in decoded.errors[0].error
    assert peak < 20 * 2**20
    assert decode(body, slice_bytes=len(body)).errors == decoded.errors


def test_a_line_at_the_bound_is_taken():
    head, tail = b'{"time":1764423221123,"host":"', b'","data":{"x":1}}\n'
    exact = head + b"h" * (LINE_BYTES_MAX - len(head) - len(tail)) + tail
    assert len(exact) == LINE_BYTES_MAX
    assert decode(exact).accepted == 1
    assert decode(exact[:40] + b"h" + exact[40:]).accepted == 0
