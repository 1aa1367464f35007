"""What a conversion says of one update while it works on it: losses, or the refusal of the whole."""

from __future__ import annotations

from twofold.convert._carry import reason
from twofold.convert._loss import Loss
from twofold.exceptions import Unrepresentable

__all__ = ["Notes"]


class Notes:
    """Collects the losses of one update; a strict one refuses where a marking one goes on."""

    __slots__ = ("id", "kind", "losses", "strict")

    def __init__(self, kind: str, id: str | None, *, strict: bool) -> None:
        self.kind = kind
        self.id = id
        self.strict = strict
        self.losses: list[Loss] = []

    def refuse(self, rule: str, path: str) -> Unrepresentable:
        """Give the error for a thing without which nothing of the update can be carried. Raise it."""
        return Unrepresentable(self.kind, id=self.id, path=path, reason=reason(rule))

    def lose(self, rule: str, path: str, sent: str | None = None) -> None:
        """A part cannot be carried: refuse the update when strict, else go on with the rest (``sent`` in its place)."""
        if self.strict:
            raise self.refuse(rule, path)
        self.note(rule, path, sent)

    def note(self, rule: str, path: str, sent: str | None = None) -> None:
        """A part is carried as something else, under both policies."""
        self.losses.append(Loss(self.kind, self.id, path, reason(rule), sent))
