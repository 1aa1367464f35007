"""When a prompt's turn has ended: at the first idle after its insertion, whichever order it is heard of in."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from twofold.wire import v2

__all__ = ["Turns"]


class Turns:
    """Follows the prompts that one client sent to a session.

    An agent may report the user message, and even the end of a short turn, before it answers the prompt with the
    message's id. So the sights of user messages are remembered as long as a prompt waits to be inserted.
    """

    def __init__(self) -> None:
        self._waiting: list[Hashable] = []  # sent, not inserted yet, the oldest first
        self._running: list[Hashable] = []
        self._sights: dict[str, int] = {}  # user messages seen since → how many idles there were before
        self._idles = 0
        self._idle = v2.StateUpdate(state="idle")

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
        seen = None if message_id is None else self._sights.get(message_id)
        self._forget()
        if seen is not None and self._idles > seen:
            return self._idle
        self._running.append(prompt)
        return None

    def update(self, update: v2.SessionUpdate) -> Sequence[Hashable]:
        """Note an update; gives the prompts whose turn it ends."""
        if isinstance(update, v2.StateUpdate):
            if update.state == "idle":
                self._idles += 1
                self._idle = update
                ended, self._running = self._running, []
                return ended
        elif self._waiting and isinstance(update, v2.UserMessage | v2.UserMessageChunk):
            self._sights.setdefault(update.message_id, self._idles)
        return ()

    def _forget(self) -> None:
        if not self._waiting:
            self._sights.clear()
