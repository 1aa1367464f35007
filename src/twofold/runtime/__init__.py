"""Sessions over a connection, with asyncio: ``runtime.agent`` for agents, ``runtime.client`` for clients.

Here is what both stand on: transports carry messages, a connection tells what they mean.
"""

from twofold.runtime._process import ProcessTransport
from twofold.runtime._transport import OUTGOING_LIMIT, StreamTransport, Transport, memory_pair

__all__ = ["OUTGOING_LIMIT", "ProcessTransport", "StreamTransport", "Transport", "memory_pair"]
