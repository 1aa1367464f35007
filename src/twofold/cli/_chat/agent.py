"""The agent to talk to: connected, recorded if that is wanted, its sessions, and its failures as sentences."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from twofold import __version__
from twofold.bridge._record import setups
from twofold.exceptions import RequestError, TwofoldError
from twofold.fold import Transcript
from twofold.journal import Journal
from twofold.plaintext import visible_line
from twofold.runtime import StreamTransport
from twofold.runtime.client import Client, ClientSession, PermissionRequest, Turn, connect
from twofold.wire import is_object

if TYPE_CHECKING:
    from twofold.bridge import Bridge

__all__ = ["Line", "Listed", "Unusable", "Wanted", "failed", "reason"]

START: Final = 60.0
"""Seconds until an agent that has said nothing counts as one that does not speak."""

_GRACE: Final = 2.0
"""Seconds that an agent has for each step of ending: the user has left, and its turn was cancelled before."""

_LOGIN: Final = -32000
_NOT_FOUND: Final = (-32002, -32601)
_RECENT: Final = 50
"""Sessions of a journal that are listed, at most: each is loaded for its title."""


class Wanted(Struct):
    """What the user asked for."""

    command: list[str]
    cwd: str
    session: str | None = None
    journal: Journal | None = None
    version: Literal[1, 2] | None = None
    revision: str = "rfd"
    allow: bool = False


class Unusable(Exception):
    """There is no agent to talk to, or no session; the text is a sentence for the user."""


class Listed(Struct):
    """A session that may be resumed."""

    session_id: str
    cwd: str
    title: str = ""
    updated_at: str = ""


class Line:
    """A line to an agent: the client at this end of it, with the bridge between them where there is a journal."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.name = visible_line(os.path.basename(wanted.command[0]))
        self.client: Client
        self._bridge: Bridge | None = None
        self._version = 0  # the agent's own, where the bridge speaks for it

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        wanted: Wanted,
        *,
        on_permission: Callable[[PermissionRequest], Any],
        report: Callable[[str], object],
        stderr: int | None = None,
    ) -> AsyncGenerator[Line, None]:
        """Connect. ``report`` hears sentences about what goes wrong and does not end it. Raises :class:`Unusable`."""
        line = cls(wanted)
        versions = (1, 2) if wanted.version is None else (wanted.version,)
        async with AsyncExitStack() as stack:
            agent: Any = wanted.command
            if wanted.journal is not None:
                agent = await stack.enter_async_context(line._recorded(wanted.journal, report, stderr))
                versions = (2,)  # the bridge speaks it, whatever the agent does
            try:
                line.client = await stack.enter_async_context(
                    connect(
                        agent,
                        stderr=stderr,
                        versions=versions,
                        name="twofold-chat",
                        version=__version__,
                        on_permission=on_permission,
                        on_fault=lambda error: report(f"{line.name} said something wrong: {error}"),
                        revision=wanted.revision,
                        start_timeout=START,
                        grace=_GRACE,
                    )
                )
            except TwofoldError as error:
                raise Unusable(line.why(error)) from None
            yield line

    @asynccontextmanager
    async def _recorded(
        self, journal: Journal, report: Callable[[str], object], stderr: int | None
    ) -> AsyncGenerator[StreamTransport, None]:
        """Run the agent behind the bridge, which records and remembers; give this end of it."""
        from twofold.bridge import Bridge

        def heard(event: str, facts: Mapping[str, Any]) -> None:
            if event == "versions":
                self._version = facts["agent"]
            elif event == "journal":
                loop.call_soon_threadsafe(report, str(facts["words"]))  # it comes from the thread that stores

        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        front = StreamTransport(*await asyncio.open_connection(sock=theirs), name="the chat")
        bridge = self._bridge = Bridge(
            self.wanted.command,
            client=front,
            journal=journal,
            agent_version=self.wanted.version,
            report=heard,
            revision=self.wanted.revision,
            stderr=stderr,
            start_timeout=START,
            drain_timeout=_GRACE,
            grace=_GRACE,
        )
        serving = asyncio.create_task(bridge.run())
        try:
            yield StreamTransport(*await asyncio.open_connection(sock=ours), name=self.name)
        finally:
            await serving

    @property
    def version(self) -> int:
        """The protocol version that the agent speaks."""
        return self._version or self.client.version

    def why(self, error: TwofoldError) -> str:
        """Say what an error means to the user, in one line. The bridge knows more of the agent's end than we do."""
        failure = None if self._bridge is None else self._bridge.failure
        return reason(error) if failure is None else visible_line(failure)

    # Sessions

    async def new(self) -> ClientSession:
        """Begin a session. Raises :class:`Unusable`."""
        try:
            return await self.client.new_session(cwd=self.wanted.cwd)
        except TwofoldError as error:
            raise Unusable(self._no_session(error)) from None

    async def resume(
        self, session_id: str, *, cwd: str | None = None, replay: bool = True
    ) -> tuple[ClientSession, bool]:
        """Resume a session; gives whether its history was replayed. Raises :class:`Unusable`."""
        directory = cwd or self.wanted.cwd
        try:
            try:
                return await self.client.resume(session_id, cwd=directory, replay=replay), replay
            except RequestError as error:
                if not replay or error.code not in (-32601, -32602):
                    raise
            return await self.client.resume(session_id, cwd=directory), False  # it goes on, and cannot show the past
        except TwofoldError as error:
            if isinstance(error, RequestError) and error.code in _NOT_FOUND:
                what = "no such session" if error.code == -32002 else "no way to resume a session"
                raise Unusable(f'cannot resume "{visible_line(session_id)}": the agent has {what}') from None
            raise Unusable(self._no_session(error)) from None

    def _no_session(self, error: TwofoldError) -> str:
        if not isinstance(error, RequestError) or error.code != _LOGIN:
            return self.why(error)
        names = [visible_line(str(one.get("name") or one.get("methodId"))) for one in self.client.auth_methods]
        ways = f" ({', '.join(names)})" if names else ""
        return f"the agent wants to know first who you are{ways}: log in with its own command, then come back"

    async def sessions(self) -> list[Listed]:
        """List the agent's sessions, and those in the journal that it does not know. Raises :class:`Unusable`."""
        found: list[Listed] = []
        try:
            for one in await self.client.list_sessions():
                title = one.title if isinstance(one.title, str) else ""
                updated_at = one.updated_at if isinstance(one.updated_at, str) else ""
                found.append(Listed(one.session_id, one.cwd, title, updated_at))
        except TwofoldError as error:
            if self.wanted.journal is None or not isinstance(error, RequestError):
                cannot = isinstance(error, RequestError) and error.code == -32601
                raise Unusable("the agent does not list its sessions" if cannot else self.why(error)) from None
        if self.wanted.journal is not None:
            kept = await asyncio.to_thread(_kept, self.wanted.journal)
            known = {one.session_id for one in found}
            behind = {name for _, names in kept for name in names}
            found = [one for one in found if one.session_id not in behind]
            found += [one for one, _ in kept if one.session_id not in known]
        return found


def _kept(journal: Journal) -> list[tuple[Listed, list[str]]]:
    """List the sessions of a journal, each with the ids that it has or had at the agent, if they are others."""
    kept: list[tuple[Listed, list[str]]] = []
    for info in journal.sessions()[:_RECENT]:
        cwd = ""
        behind: list[str] = []
        for fields in setups(journal, info.session):
            cwd = fields["cwd"] if isinstance(fields.get("cwd"), str) else cwd
            if isinstance(fields.get("agentSessionId"), str):
                behind.append(fields["agentSessionId"])
        if cwd:
            kept.append((Listed(info.session, cwd, _title(journal.load(info.session).transcript)), behind))
    return kept


def _title(transcript: Transcript) -> str:
    """Give the title of a session, or how it begins."""
    title = transcript.session_info.title
    if isinstance(title, str) and title:
        return title
    return next((message.text for message in transcript.messages if message.type == "user_message"), "")


_PLAIN: Final = ("internal error", "invalid params", "method not found", "invalid request", "parse error")


def reason(error: TwofoldError) -> str:
    """Say an error in one line, with the agent's own words for it where it has any."""
    if not isinstance(error, RequestError):
        return visible_line(str(error))
    return _said_with(str(error), error.message, error.data)


def failed(turn: Turn) -> str:
    """Say that a turn ended with an error, and with which if it is known."""
    words = "the turn ended with an error"
    if turn.error is None:
        return words
    return _said_with(f"{words} ({turn.error.code})", turn.error.message, turn.error.data)


def _said_with(words: str, message: str, data: Any) -> str:
    """Add what the agent says of an error to what we say of it."""
    told: list[Any] = [data.get(name) for name in ("details", "reason", "message")] if is_object(data) else [data]
    own = [one for one in (message, *told) if isinstance(one, str) and one and one.lower() not in _PLAIN]
    return visible_line(": ".join(dict.fromkeys([words, *own])))
