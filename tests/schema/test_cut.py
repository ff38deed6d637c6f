import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.columns import Encoding, parse_chunks
from schema.cut import cut
from schema.reading import rows_of
from tests.schema.frames import FRAMES, bits, training_frame


@given(FRAMES, st.data())
def test_a_cut_has_the_rows_asked_for_and_no_others(frame, draw):
    chunks = frame[0].finish()
    wanted = draw.draw(
        st.sets(st.integers(0, chunks.row_count - 1)) if chunks.row_count else st.just(set())
    )
    rows = sorted(wanted)
    expected = [bits(rows_of(chunks))[row] for row in rows]
    once = cut(chunks, rows)
    assert bits(rows_of(once)) == expected
    assert bits(rows_of(cut(once, range(len(rows))))) == expected, "a cut can be cut again"


def test_a_cut_of_whole_lines_stays_dense():
    chunks = training_frame(lines=100)
    half = cut(chunks, range(1_000))
    parsed = parse_chunks(half)
    assert parsed.columns["logName"].encoding is Encoding.SHAPES
    assert len(half.payload) < 0.55 * len(chunks.payload)


def test_a_cut_through_a_line_keeps_the_rest_of_it():
    half = cut(training_frame(lines=3), range(5, 45))
    assert list(parse_chunks(half).counts) == [15, 20, 5]


@pytest.mark.parametrize("rows", [[1, 0], [0, 0], [-1], [60], [0, 60]])
def test_rows_out_of_order_or_of_range_are_refused(rows):
    with pytest.raises(ValueError, match="rows"):
        cut(training_frame(lines=3), rows)
