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

__all__ = [
    "DEFAULT_LIMIT",
    "MAX_DEPTH",
    "Batch",
    "ErrorResponse",
    "Frame",
    "Id",
    "LineSplitter",
    "Notification",
    "Request",
    "Response",
    "dumps",
    "encode",
    "loads",
    "parse",
    "too_deep",
]
