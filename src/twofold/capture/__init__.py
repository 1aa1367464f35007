"""Captured traffic, in whatever envelope, to sessions: for tools that look at what was said."""

from twofold.capture._check import Checker
from twofold.capture._fold import Folder, Session
from twofold.capture._reader import Answered, Asked, Counts, Event, Problem, Reader, Updated, Version

__all__ = [
    "Answered",
    "Asked",
    "Checker",
    "Counts",
    "Event",
    "Folder",
    "Problem",
    "Reader",
    "Session",
    "Updated",
    "Version",
]
