"""Reserving the port that the workers share, so that a taken one is an error."""

from __future__ import annotations

import errno
import socket


class PortUnusable(Exception):
    """The address cannot be listened on; says which, why and what to do."""


class Reservation:
    """A port that is ours for as long as this lives. Made by `reserve`.

    Workers share the port with SO_REUSEPORT, and so would a second server of the same user: each
    would silently get a part of the connections. So the port is first bound without it, which
    fails when anyone listens; then sockets that never listen hold it, so that no other program
    takes it while all workers are being restarted. They receive no connection.
    """

    def __init__(self, port: int, sockets: list[socket.socket]) -> None:
        self.port = port
        self._sockets = sockets

    def close(self) -> None:
        """Let others have the port."""
        for held in self._sockets:
            held.close()


def reserve(host: str, port: int) -> Reservation:
    """Reserve the port on every address of the host; 0 takes a free one.

    Raises:
        PortUnusable: taken, not allowed, or the host is not one of ours.
    """
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise PortUnusable(f"host {host!r} is no address: {error.strerror}") from error
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    held: list[socket.socket] = []
    try:
        for family, address in addresses:
            with _bound(family, (address[0], port, *address[2:])) as probe:
                port = probe.getsockname()[1]
            held.append(_hold(family, (address[0], port, *address[2:])))
    except OSError as error:
        for one in held:
            one.close()
        raise PortUnusable(_advice(error, host, port)) from error
    return Reservation(port, held)


def is_free(host: str, port: int) -> bool:
    """Whether the port could be listened on just now."""
    try:
        reserve(host, port).close()
    except PortUnusable:
        return False
    return True


def _bound(family: int, address: tuple[object, ...], *, shared: bool = False) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        else:
            # As servers do: connections of a former server that have not timed out are no obstacle.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(address)
    except BaseException:
        one.close()
        raise
    return one


def _hold(family: int, address: tuple[object, ...]) -> socket.socket:
    try:
        return _bound(family, address, shared=True)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        # Old connections of a server that did not share: hold it the weaker way.
        return _bound(family, address)


def _advice(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {port} on {host} is taken by another program: stop it, or choose another "
                "with --port or CHARON_PORT (0 takes a free one); "
                f"`ss -ltnp 'sport = :{port}'` shows who has it"
            )
        case errno.EACCES:
            return (
                f"port {port} may only be used by root: "
                "choose one above 1023 with --port or CHARON_PORT"
            )
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine: choose another with --host"
        case _:
            return f"cannot listen on {host}, port {port}: {error.strerror}"
