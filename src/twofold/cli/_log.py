"""A log of what happens, one JSON object a line: events and facts, never content."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Self

__all__ = ["Log"]


class Log:
    """Appends to a file, if one is named; one that it makes is readable by its owner only. Raises :class:`OSError`.

    What it is about goes on when there is no more room for it: then it says so once, on standard error.
    """

    def __init__(self, path: str | None) -> None:
        self._file = None
        if path is not None:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._file = os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def write(self, event: str, facts: Mapping[str, Any]) -> None:
        """Write one event."""
        if self._file is not None:
            time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            try:
                self._file.write(json.dumps({"time": time, "event": event, **facts}, ensure_ascii=False) + "\n")
                self._file.flush()
            except OSError as error:
                print(f"twofold: the log cannot be written: {error.strerror}", file=sys.stderr)
                file, self._file = self._file, None
                with suppress(OSError):
                    file.close()
