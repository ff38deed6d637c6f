"""A block as memory: what is in it, that it cannot change, and that none is left over."""

import asyncio
import fcntl
import os
import threading

import pytest

from buffer import handing
from buffer.handing import HandedBlock, hand
from schema.handing import SEALS, Place


def left_over():
    """Blocks that this process holds open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        found += [target] * ("/memfd:charon-" in target)
    return found


async def test_it_holds_the_pieces_in_their_order_and_cannot_be_changed():
    pieces = [b"%d," % number for number in range(3_000)]
    handed = await hand(pieces)
    place = Place.parse(str(handed.place))
    assert place == handed.place
    assert os.readlink(place.path) == place.target
    with open(place.path, "rb") as reader:
        assert reader.read() == b"".join(pieces)
        assert fcntl.fcntl(reader, fcntl.F_GET_SEALS) & SEALS == SEALS
    with pytest.raises(PermissionError):
        os.write(place.descriptor, b"x")
    handed.close()
    assert not left_over()


async def test_no_two_have_a_name_in_common():
    one, other = await hand([b"1"]), await hand([b"1"])
    assert one.place.name != other.place.name
    one.close()
    other.close()


@pytest.mark.parametrize("call", ["memfd_create", "writev"])
async def test_without_memory_there_is_none_and_nothing_is_left_over(monkeypatch, call):
    def fail(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(handing.os, call, fail)
    assert await hand([b"1"]) is None
    assert not left_over()


async def test_a_short_write_is_no_block(monkeypatch):
    monkeypatch.setattr(handing.os, "writev", lambda *_: 1)
    assert await hand([b"12", b"3"]) is None
    assert not left_over()


async def test_who_is_cancelled_meanwhile_leaves_nothing_over(monkeypatch):
    may_go_on, closed = threading.Event(), asyncio.Event()
    loop, writev, close = asyncio.get_running_loop(), os.writev, HandedBlock.close

    def slow(*arguments):
        may_go_on.wait(5)
        return writev(*arguments)

    def noticed(self):
        close(self)
        loop.call_soon(closed.set)

    monkeypatch.setattr(handing.os, "writev", slow)
    monkeypatch.setattr(HandedBlock, "close", noticed)
    handing_over = asyncio.create_task(hand([b"1"]))
    await asyncio.sleep(0)
    handing_over.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handing_over
    may_go_on.set()
    async with asyncio.timeout(5):
        await closed.wait()
    assert not left_over()
