"""Captured traffic, in whatever envelope, to sessions: for tools that look at what was said."""

from twofold.capture._check import Checker
from twofold.capture._convert import Converted, Converter, Lost
from twofold.capture._fold import Folder, Session
from twofold.capture._reader import Answered, Asked, Counts, Event, Problem, Reader, Updated, Version

__all__ = [
    "Answered",
    "Asked",
    "Checker",
    "Converted",
    "Converter",
    "Counts",
    "Event",
    "Folder",
    "Lost",
    "Problem",
    "Reader",
    "Session",
    "Updated",
    "Version",
]
