"""Agents: write one against v2, serve v2 and v1 clients."""

from twofold.runtime._agent import Agent
from twofold.runtime._handles import MessageHandle, TerminalHandle, ToolCallHandle
from twofold.runtime._session import ALLOW_OR_REJECT, Prompt, Session

__all__ = [
    "ALLOW_OR_REJECT",
    "Agent",
    "MessageHandle",
    "Prompt",
    "Session",
    "TerminalHandle",
    "ToolCallHandle",
]
