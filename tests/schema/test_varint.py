import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.varint import read_varint, split_texts, text, text_content, varint

WORDS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.integers(0, 2**64 - 1))
def test_a_number_comes_back(number):
    assert read_varint(b"x" + varint(number) + b"y", 1) == (number, 1 + len(varint(number)))


@pytest.mark.parametrize(
    ("number", "golden"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**64 - 1, "ff" * 9 + "01")],
)
def test_numbers_have_the_bytes_of_leb128(number, golden):
    assert varint(number).hex() == golden


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 10, b"\xff" * 9 + b"\x02"])
def test_a_number_that_does_not_end_or_is_too_large_is_refused(data):
    with pytest.raises(ValueError, match="no varint"):
        read_varint(data, 0)


@given(st.lists(WORDS))
def test_strings_come_back_in_order(words):
    data = b"".join(map(text, words))
    pieces, end = split_texts(data, len(words))
    assert end == len(data)
    assert [text_content(piece).decode() for piece in pieces] == words


@pytest.mark.parametrize("length", [0, 127, 128, 16_383, 16_384])
def test_strings_at_the_edges_of_their_length_come_back(length):
    data = text("x" * length)
    [piece], end = split_texts(data, 1)
    assert (end, text_content(piece)) == (len(data), b"x" * length)


@given(st.binary(max_size=40), st.integers(0, 2**40))
def test_garbage_is_refused_or_taken_but_never_allocated_for(data, count):
    try:
        pieces, end = split_texts(data, count)
    except ValueError:
        return
    assert len(pieces) == count
    assert end <= len(data)
