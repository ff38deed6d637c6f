"""The variable-length forms of the Native format: LEB128 numbers, and strings that begin with one.

Source: ClickHouse ``src/IO/VarInt.h`` and ``src/DataTypes/Serializations/SerializationString.cpp``.
"""

from __future__ import annotations

VARINT_BYTES_MAX = 10
"""Bytes of the largest 64-bit number."""

_SMALL = tuple(bytes((number,)) for number in range(0x80))


def varint(number: int) -> bytes:
    """The LEB128 form of a number; 0 <= number < 2**64."""
    if number < 0x80:
        return _SMALL[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(value: str) -> bytes:
    """One Native String: its length in UTF-8 bytes, then the bytes. No lone surrogates."""
    raw = value.encode()
    size = len(raw)
    return (_SMALL[size] if size < 0x80 else varint(size)) + raw


def read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """A number and the offset behind it.

    Raises:
        ValueError: the data end inside the number, or it is longer than 64 bits.
    """
    number = shift = 0
    for at in range(offset, min(offset + VARINT_BYTES_MAX, len(data))):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return number, at + 1
        shift += 7
    raise ValueError(f"no varint at byte {offset} of {len(data)}")


def split_texts(data: bytes, count: int, offset: int = 0) -> tuple[list[bytes], int]:
    """So many Native Strings, each with its length in front, and the offset behind the last.

    Raises:
        ValueError: the data end before the last string does.
    """
    pieces: list[bytes] = []
    size = len(data)
    if count > size - offset:  # a string takes a byte at least: checked before anything is made
        raise ValueError(f"{count} strings cannot be in {size - offset} bytes")
    for _ in range(count):
        if offset >= size:
            raise ValueError(f"a string is missing at byte {offset}")
        length = data[offset]
        if length < 0x80:
            end = offset + 1 + length
        else:
            length, start = read_varint(data, offset)
            end = start + length
        if end > size:
            raise ValueError(f"a string of {length} bytes at {offset} passes the end at {size}")
        pieces.append(data[offset:end])
        offset = end
    return pieces, offset


def text_content(piece: bytes) -> bytes:
    """The bytes of one Native String without the length in front."""
    if piece[0] < 0x80:
        return piece[1:]
    return piece[read_varint(piece, 0)[1] :]


def is_text(piece: bytes) -> bool:
    """Whether the bytes are exactly one Native String."""
    try:
        return split_texts(piece, 1)[1] == len(piece)
    except ValueError:
        return False
