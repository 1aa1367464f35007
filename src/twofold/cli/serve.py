"""``twofold serve``: the sessions of a journal as a web page."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twofold.cli._arguments import Commands

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "serve",
        help="show a journal's sessions in the browser",
        description="Show a journal's sessions in the browser, live. The page is for this machine and whoever has the "
        "printed link: it asks for the token that is in it.",
    )
    command.add_argument("--journal", metavar="JOURNAL", required=True, help="the journal: a path or a URL")
    command.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    command.add_argument("--port", type=int, default=0, help="the port (default: a free one)")
    command.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="another name that the page may be called by"
    )
    command.add_argument("--open", action="store_true", help="open the page in the browser")
    command.add_argument("--no-token", action="store_true", help="ask for no token: whoever reaches the page sees it")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from twofold.journal import JournalError, open_journal

    try:
        from twofold.web import Server
        from twofold.web._serve import kept_token
    except ImportError:
        print("twofold serve: the web page is not installed: pip install 'twofold[web]'", file=sys.stderr)
        return 2
    try:
        with open_journal(arguments.journal, create=False) as journal:
            token = None if arguments.no_token else kept_token()
            server = Server(journal, host=arguments.host, port=arguments.port, token=token, hosts=arguments.allow_host)
            print(f"Sessions are shown at {server.url}", flush=True)
            if arguments.open:
                import webbrowser

                webbrowser.open(server.url)
            server.run()
    except (JournalError, OSError) as error:
        print(f"twofold serve: {error}", file=sys.stderr)
        return 2
    return 0
