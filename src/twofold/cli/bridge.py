"""``twofold bridge``: an ACP agent on stdio that runs another one, and speaks whichever version the client asks for."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from twofold.cli._arguments import REVISIONS, agent_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twofold.cli._arguments import Commands

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "bridge",
        help="put any agent behind any client",
        description="Be the ACP agent that the client at standard input and output asks for, by running AGENT. Where "
        "both speak the same version, bytes pass as they are; else what one says is converted for the other, and what "
        "cannot be said is shown and counted.",
    )
    command.add_argument("--journal", metavar="JOURNAL", help="record what is said in this journal: a path or a URL")
    command.add_argument(
        "--keep-superseded", action="store_true", help="do not erase from the journal what was replaced or taken back"
    )
    command.add_argument(
        "--on-loss",
        choices=["mark", "close"],
        default="mark",
        help="when the agent says what a v1 client cannot be told: mark it in the conversation (default), or close "
        "the client's view of the session",
    )
    command.add_argument(
        "--agent-version",
        choices=["auto", "1", "2"],
        default="auto",
        help="the protocol version to ask AGENT for (default: auto, the client's own first)",
    )
    command.add_argument(
        "--refuse-client-tools",
        action="store_true",
        help="refuse a v1 client that offers its files or terminals to an agent that cannot use them (default: ignore)",
    )
    command.add_argument("--log", metavar="FILE", help="append what happens to FILE, one JSON object a line")
    command.add_argument(
        "--revision", choices=REVISIONS, default=REVISIONS[0], help="by whose rules sessions are folded"
    )
    agent_command(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import asyncio
    import signal

    from twofold.bridge import Bridge
    from twofold.cli._log import Log
    from twofold.journal import JournalError, open_journal
    from twofold.plaintext import visible_line

    def say(words: str) -> None:
        with contextlib.suppress(OSError):  # whoever reads it is gone: what passes is not for them
            print(f"twofold bridge: {visible_line(words)}", file=sys.stderr)

    journal = None
    try:
        log = Log(arguments.log)
        if arguments.journal is not None:
            journal = open_journal(arguments.journal, keep_superseded=arguments.keep_superseded, report=say)
    except JournalError as error:
        say(str(error))
        return 2
    except OSError as error:
        say(f"{arguments.log}: {error.strerror or error}")
        return 2
    version: Any = {"1": 1, "2": 2}.get(arguments.agent_version)
    with log:

        def report(event: str, facts: Mapping[str, Any]) -> None:
            log.write(event, facts)
            if event in ("failure", "ignored", "journal"):
                say(facts["words"])

        bridge = Bridge(
            arguments.agent,
            journal=journal,
            on_loss=arguments.on_loss,
            agent_version=version,
            refuse_client_tools=arguments.refuse_client_tools,
            report=report,
            revision=arguments.revision,
        )

        async def serve() -> bool:
            task = asyncio.create_task(bridge.run())

            def stop() -> None:
                if not task.cancelling():  # asked again it is still about to end, by steps that each have a deadline
                    task.cancel()

            for name in ("SIGTERM", "SIGINT", "SIGHUP"):
                with contextlib.suppress(AttributeError, NotImplementedError):  # Windows
                    asyncio.get_running_loop().add_signal_handler(getattr(signal, name), stop)
            try:
                return await task
            except asyncio.CancelledError:
                return True

        well = asyncio.run(serve())
    if bridge.losses:
        things = "1 thing" if bridge.losses == 1 else f"{bridge.losses} things"
        say(f"{things} could not be told to the client")
    return 0 if well else 1
