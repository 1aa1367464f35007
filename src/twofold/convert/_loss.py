"""What a conversion could not carry, for people and programs. Never any content."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Loss"]


class Loss(Struct, frozen=True, gc=False):
    """One thing that the other protocol version has no place for.

    ``kind`` is the update's ``sessionUpdate``, ``id`` the id of what it is about (``None`` when it has none), ``path``
    where in the update, ``reason`` one sentence, ``sent`` what went out instead (``None``: nothing).
    """

    kind: str
    id: str | None
    path: str
    reason: str
    sent: str | None = None

    def __str__(self) -> str:
        name = self.kind if self.id is None else f'{self.kind} "{self.id}"'
        sent = f"; sent instead: {self.sent}" if self.sent else ""
        return f"{self.path}: {name}: {self.reason}{sent}"
