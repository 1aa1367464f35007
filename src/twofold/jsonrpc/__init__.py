"""Newline-delimited JSON-RPC 2.0: bytes to lines, lines to frames. No I/O, and nothing that only ACP knows."""

from twofold.jsonrpc._frames import (
    Batch,
    ErrorResponse,
    Frame,
    Id,
    Notification,
    Request,
    Response,
    encode,
    parse,
)
from twofold.jsonrpc._json import MAX_DEPTH, dumps, loads, too_deep
from twofold.jsonrpc._lines import DEFAULT_LIMIT, LineSplitter
from twofold.jsonrpc._peer import CANCEL, CANCELLED, Answer, Event, Fault, Peer, Withdrawn

__all__ = [
    "CANCEL",
    "CANCELLED",
    "DEFAULT_LIMIT",
    "MAX_DEPTH",
    "Answer",
    "Batch",
    "ErrorResponse",
    "Event",
    "Fault",
    "Frame",
    "Id",
    "LineSplitter",
    "Notification",
    "Peer",
    "Request",
    "Response",
    "Withdrawn",
    "dumps",
    "encode",
    "loads",
    "parse",
    "too_deep",
]
