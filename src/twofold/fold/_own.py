"""Records that twofold itself adds to the sessions it stores. To everyone else they are updates of unknown kinds."""

from __future__ import annotations

from typing import Final

__all__ = ["LOSS", "SETUP"]

SETUP: Final = "_twofold/session"
"""The kind of the record that says where a session works: ``cwd``, and ``agentSessionId`` if the agent has another id
for it. It is never sent."""

LOSS: Final = "_twofold/loss"
"""The kind of the record that says what a client could not be told: the fields of a :class:`~twofold.convert.Loss`."""
