"""Clients' sessions: one connection each, for SET, USE and temporary tables, closed when idle."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ingest.embedded_connection import SessionConnection
from ingest.embedded_errors import refuse

if TYPE_CHECKING:
    from ingest.embedded_engine import Engine

SESSIONS_MAX: Final = 256


class Session:
    """One client's connection and when it may go."""

    def __init__(self, connection: SessionConnection) -> None:
        self.connection = connection
        self.is_busy = False
        self._seconds = 0.0
        self.ends_at = 0.0

    def take(self, seconds: float) -> None:
        """For one request; a session serves one at a time."""
        self.is_busy = True
        self._seconds = seconds

    def release(self) -> None:
        """The request's statement has ended, its client gone or not."""
        self.is_busy = False
        self.ends_at = asyncio.get_running_loop().time() + self._seconds


class Sessions:
    """All of them; owned by the event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sessions: dict[str, Session] = {}

    def find(self, session_id: str, *, must_exist: bool) -> Session:
        """The session of that name, made where there is none and one may be made.

        Raises:
            EngineError: 373 (in use), 372 (asked to exist, and does not), 202 (too many).
        """
        session = self._sessions.get(session_id)
        if session is None:
            if must_exist:
                raise refuse(372, "SESSION_NOT_FOUND", f"Session {session_id} not found")
            if len(self._sessions) >= SESSIONS_MAX:
                self._close_oldest()
            session = Session(SessionConnection(self._engine.connect()))
            self._sessions[session_id] = session
        if session.is_busy:
            raise refuse(
                373, "SESSION_IS_LOCKED", f"Session {session_id} is locked by a concurrent client"
            )
        return session

    def close_idle(self) -> None:
        """Closes sessions past their time; called once a second."""
        now = asyncio.get_running_loop().time()
        for session_id, session in list(self._sessions.items()):
            if not session.is_busy and session.ends_at < now:
                del self._sessions[session_id]
                session.connection.connection.close()

    def close(self) -> None:
        """Closes all that are not in use."""
        for session in self._sessions.values():
            if not session.is_busy:
                session.connection.connection.close()
        self._sessions.clear()

    def _close_oldest(self) -> None:
        idle = [
            (session.ends_at, key) for key, session in self._sessions.items() if not session.is_busy
        ]
        if not idle:
            raise refuse(
                202, "TOO_MANY_SIMULTANEOUS_QUERIES", f"{SESSIONS_MAX} sessions are in use"
            )
        self._sessions.pop(min(idle)[1]).connection.connection.close()
