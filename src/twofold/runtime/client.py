"""Clients: connect to any agent, v2 or v1, and hold exactly what it last said."""

from twofold.runtime._client import Client, ClientSession, PermissionRequest, Turn, connect
from twofold.runtime._watch import Watch

__all__ = ["Client", "ClientSession", "PermissionRequest", "Turn", "Watch", "connect"]
