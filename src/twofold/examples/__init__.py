"""Example sessions that come with twofold, as capture records."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["harbour"]


def harbour() -> bytes:
    """Give the capture that ``twofold demo`` plays: streaming, a correction, a redaction, tools, a plan."""
    return files(__name__).joinpath("harbour.jsonl").read_bytes()
