"""When a prompt's turn has ended: at the first idle after its insertion, whichever order it is heard of in."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from msgspec import Struct

from twofold.wire import v2

__all__ = ["Turns"]


class _Heard(Struct, frozen=True):
    """A state, and the prompts and user messages that were there before it: an idle is the end of their turns."""

    state: v2.StateUpdate
    prompts: set[Hashable]
    messages: set[str]


class Turns:
    """Follows the prompts that one client sent to a session.

    An agent may report the user message, and even the end of a short turn, before it answers the prompt with the
    message's id. So the sights of user messages are remembered as long as a prompt waits to be inserted.

    While a session is resumed, the last state before the answer is a snapshot: it ends no turn. But an idle after which
    another state comes was live, and so is one that comes where something ran.
    """

    def __init__(self) -> None:
        self.idle = v2.StateUpdate(state="idle")
        """The idle that ended the turns given last."""
        self._waiting: list[Hashable] = []  # sent, not inserted yet, the oldest first
        self._running: dict[Hashable, str | None] = {}  # inserted prompts → their messages
        self._sights: dict[str, v2.StateUpdate | None] = {}  # user messages seen since → the first idle after each
        self._busy = False  # whether the last state was not idle
        self._resumes = 0  # under way
        self._last: _Heard | None = None  # the last state since, which may be the snapshot

    @property
    def open(self) -> bool:
        """Whether any prompt is waiting or running."""
        return bool(self._waiting or self._running)

    @property
    def waiting(self) -> Sequence[Hashable]:
        """The prompts not inserted yet, in order."""
        return self._waiting

    @property
    def running(self) -> bool:
        """Whether the turn of any prompt runs."""
        return bool(self._running)

    def sent(self, prompt: Hashable) -> None:
        """Note that a prompt was sent."""
        self._waiting.append(prompt)

    def failed(self, prompt: Hashable) -> None:
        """Note that a prompt was answered with an error: it has no turn."""
        if prompt in self._waiting:
            self._waiting.remove(prompt)
        self._forget()

    def abandoned(self) -> list[Any]:
        """Give all prompts that are open, and forget them: their turns will not be heard of."""
        prompts = [*self._waiting, *self._running]
        self._waiting.clear()
        self._running.clear()
        self._forget()
        return prompts

    def inserted(self, prompt: Hashable, message_id: str | None) -> v2.StateUpdate | None:
        """Note that a prompt was answered; gives the idle that ended its turn if that was heard of before."""
        if prompt not in self._waiting:  # it was abandoned
            return None
        self._waiting.remove(prompt)
        idle = None if message_id is None else self._sights.get(message_id)
        self._forget()
        if idle is None:
            self._running[prompt] = message_id
        return idle

    def update(self, update: v2.SessionUpdate) -> Sequence[Hashable]:
        """Note an update; gives the prompts whose turn has ended, with :attr:`idle`."""
        if isinstance(update, v2.StateUpdate):
            heard = _Heard(update, set(self._running), {one for one, idle in self._sights.items() if idle is None})
            if not self._resumes:
                return self._settle(heard)
            before, self._last = self._last, heard
            return () if before is None else self._settle(before)
        if self._waiting and isinstance(update, v2.UserMessage | v2.UserMessageChunk):
            self._sights.setdefault(update.message_id, None)
        return ()

    def resumes(self) -> None:
        """Note that the session is about to be resumed."""
        self._resumes += 1

    def resumed(self) -> Sequence[Hashable]:
        """Note that a resume was answered; gives the prompts whose turn has ended meanwhile."""
        self._resumes -= 1
        last = self._last
        if self._resumes or last is None:
            return ()
        self._last = None
        if self._busy:
            return self._settle(last)
        self._busy = last.state.state != "idle"
        return ()

    def _settle(self, heard: _Heard) -> Sequence[Hashable]:
        self._busy = heard.state.state != "idle"
        if self._busy:
            return ()
        self.idle = heard.state
        self._sights |= {
            one: heard.state for one, idle in self._sights.items() if idle is None and one in heard.messages
        }
        ended = [one for one, message in self._running.items() if one in heard.prompts or message in heard.messages]
        for prompt in ended:
            del self._running[prompt]
        return ended

    def _forget(self) -> None:
        if not self._waiting:
            self._sights.clear()
