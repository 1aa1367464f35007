"""Example sessions that come with twofold, as capture records."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["harbour"]


def harbour() -> bytes:
    """Give the example session of ``twofold demo``: streaming, a correction, a redaction, tools, a plan. Lines of bytes."""
    return files(__name__).joinpath("harbour.jsonl").read_bytes()
