"""Sessions of a journal as a web page: filled from the folded state, then live. Needs ``twofold[web]``."""

from twofold.web._app import Application
from twofold.web._serve import Server

__all__ = ["Application", "Server"]
