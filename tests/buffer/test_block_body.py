"""A block's body: the same bytes, in writes that are worth a system call and hold up nobody."""

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from buffer.block_body import PIECE_BYTES_MAX, SMALL_BYTES, BlockBody
from schema.block import Block

SIZES = st.one_of(
    st.integers(0, 40),
    st.integers(SMALL_BYTES - 2, SMALL_BYTES + 2),
    st.integers(PIECE_BYTES_MAX - 2, PIECE_BYTES_MAX + 2),
    st.integers(0, 3 * PIECE_BYTES_MAX),
)


class Writer:
    """Takes all at once, as a socket does whose other end reads fast."""

    def __init__(self):
        self.writes = []

    async def write(self, piece):
        self.writes.append(piece)


def block_of(sizes):
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    return Block(1, pieces, sum(sizes))


@given(st.lists(SIZES, max_size=12))
def test_the_bytes_are_the_blocks_and_no_write_is_huge_or_needlessly_small(sizes):
    block, writer = block_of(sizes), Writer()
    body = BlockBody(block)
    asyncio.run(body.write(writer))
    assert b"".join(writer.writes) == b"".join(block.pieces)
    assert body.size == block.size
    written = list(map(len, writer.writes))
    assert all(0 < size <= PIECE_BYTES_MAX for size in written)
    if max(sizes, default=0) <= PIECE_BYTES_MAX:  # what is cut leaves rests
        assert all(left + right >= SMALL_BYTES for left, right in pairwise(written))


def test_large_pieces_are_not_copied():
    block, writer = block_of([10, SMALL_BYTES, 2 * PIECE_BYTES_MAX]), Writer()
    asyncio.run(BlockBody(block).write(writer))
    assert writer.writes[1] is block.pieces[1]
    assert all(view.obj is block.pieces[2] for view in writer.writes[2:])


def test_the_loop_has_its_turns_though_the_socket_never_waits():
    block, writer, turns = block_of([SMALL_BYTES] * 100), Writer(), []

    async def main():
        sending = asyncio.create_task(BlockBody(block).write(writer))
        while not sending.done():
            turns.append(sum(map(len, writer.writes)))
            await asyncio.sleep(0)

    asyncio.run(main())
    steps = [after - before for before, after in pairwise([*turns, block.size])]
    assert max(steps) <= PIECE_BYTES_MAX
