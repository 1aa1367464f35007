"""The sessions of a journal, with what a list says of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from twofold.exceptions import TwofoldError
from twofold.fold import SETUP, Revision, Transcript
from twofold.journal import Journal, SessionInfo
from twofold.journal._folding import Folding
from twofold.plaintext import visible_line
from twofold.view import footer

__all__ = ["Entry", "Sessions"]

LIVE: Final = 15.0
"""Seconds since the last record within which a session is live whatever it says."""

SILENT: Final = 300.0
"""Seconds without a record after which a session that says it is at work is so no longer."""

PATIENCE: Final = 0.4
"""Seconds that the list waits for what is not known yet. What comes later is there when it is asked for again."""

Activity: TypeAlias = Literal["live", "asks", "silent", ""]
"""Live; waits for a permission; was at work when it was last heard of, long ago; idle."""


class About(Struct, frozen=True):
    """What is said of a session in a list, all safe to show."""

    title: str = ""
    cwd: str = ""
    state: str = ""
    footer: str = ""


class Entry(Struct, frozen=True):
    """A session in the list."""

    info: SessionInfo
    about: About
    activity: Activity


class _Known(Struct):
    info: SessionInfo
    about: About
    folding: Folding | None = None
    """What it was folded with, to go on from there, if it was heard of lately."""


class Sessions:
    """Keeps what is known of the sessions. They are folded for that, one by one, as far as they have changed."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, _Known] = {}
        self._infos: Sequence[SessionInfo] = ()
        self._looking: asyncio.Task[None] | None = None

    async def now(self) -> list[Entry]:
        """Give the sessions, the one heard of last first."""
        self._infos = await asyncio.to_thread(self._journal.sessions)
        names = {info.session for info in self._infos}
        self._known = {session: known for session, known in self._known.items() if session in names}
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        await asyncio.wait({self._looking}, timeout=PATIENCE)
        now = time.time()
        entries: list[Entry] = []
        for info in self._infos:
            known = self._known.get(info.session)
            about = About() if known is None else known.about
            entries.append(Entry(info, about, _activity(about, now - info.updated_at)))
        return entries

    async def close(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking

    async def _look(self) -> None:
        for info in self._infos:
            known = self._known.get(info.session)
            if known is not None and _same(known.info, info):
                if known.folding is not None and time.time() - info.updated_at > SILENT:
                    known.folding = None
                continue
            with suppress(TwofoldError):
                self._known[info.session] = await asyncio.to_thread(self._looked, info, known)

    def _looked(self, info: SessionInfo, known: _Known | None) -> _Known:
        goes_on = known is not None and known.info.created_at == info.created_at
        folding = known.folding if known is not None and goes_on else None
        if folding is None or folding.position > info.position:
            folding = Folding(info.session, Revision(info.revision))
        for record in self._journal._tolerant(info.session, folding.position):
            folding.add(record)
        return _Known(info, _about(folding.transcript), folding)


def _same(one: SessionInfo, other: SessionInfo) -> bool:
    return (one.position, one.created_at) == (other.position, other.created_at)


def _activity(about: About, silence: float) -> Activity:
    if about.state == "requires_action":
        return "asks"
    if silence < LIVE:
        return "live"
    if about.state in ("", "idle"):
        return ""
    return "live" if silence < SILENT else "silent"


def _about(transcript: Transcript) -> About:
    title, state = transcript.session_info.title, transcript.state
    if not isinstance(title, str) or not title:
        first = next((message for message in transcript.messages if message.type == "user_message"), None)
        title = "" if first is None else first.text.strip().partition("\n")[0][:120]
    places = [update.fields.get("cwd") for update in transcript.other if update.kind == SETUP]
    place = next((place for place in reversed(places) if isinstance(place, str)), "")
    return About(
        visible_line(title), visible_line(place), "" if state is None else visible_line(state.state), footer(transcript)
    )
