"""A journal by its name: a path or an engine URL."""

from __future__ import annotations

import os
from collections.abc import Callable

from twofold.journal._base import Journal
from twofold.journal._records import Unavailable

__all__ = ["open_journal"]


def open_journal(
    name: str | os.PathLike[str],
    *,
    keep_superseded: bool = False,
    create: bool = True,
    report: Callable[[str], object] | None = None,
) -> Journal:
    """Open a journal by its name: ``sqlite:PATH`` or just a path, ``nats://HOST:PORT/STREAM``, ``memory:``.

    Without ``create`` a file that is not there is an error. Raises :class:`Unavailable`, also when an engine is not
    installed.
    """
    name = os.fspath(name)
    if name == "memory:":
        from twofold.journal.memory import MemoryJournal

        return MemoryJournal(keep_superseded=keep_superseded)
    if name.startswith("nats://"):
        try:
            from twofold.journal.nats import NATSJournal
        except ImportError:
            raise Unavailable(name, "the NATS engine is not installed: pip install 'twofold[nats]'") from None
        return NATSJournal(name, keep_superseded=keep_superseded, create=create, report=report)
    from twofold.journal.sqlite import SQLiteJournal

    path = name.removeprefix("sqlite:")
    if not create and not os.path.exists(path):
        raise Unavailable(path, "there is no such file")
    return SQLiteJournal(path, keep_superseded=keep_superseded, report=report)
