"""``twofold serve``: the sessions of a journal as a web page."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twofold.cli._arguments import Commands
    from twofold.journal import Journal
    from twofold.web import Server

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "serve",
        help="show a journal's sessions in the browser, live",
        description="Show a journal's sessions in the browser, live. The page is for this machine and whoever has the "
        "printed link: it asks for the token that is in it.",
    )
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--journal", metavar="JOURNAL", help="the journal: a path or a URL")
    source.add_argument(
        "--demo", action="store_true", help="the bundled example session, played at reading speed when you look"
    )
    command.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    command.add_argument("--port", type=_port, default=0, help="the port (default: a free one)")
    command.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name that the page may be called by, behind a proxy for example; can be repeated",
    )
    command.add_argument("--open", action="store_true", help="open the page in the browser")
    command.add_argument(
        "--no-token",
        action="count",
        default=0,
        help="ask for no token: whoever reaches the page sees it. Say it twice to do that on an address that others "
        "reach",
    )
    command.set_defaults(run=run)


def _port(word: str) -> int:
    if not word.isdecimal() or int(word) > 65535:
        raise argparse.ArgumentTypeError(f"not a port: {word}")
    return int(word)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import contextlib
    import signal
    import tempfile
    from pathlib import Path

    from twofold.journal import JournalError, open_journal

    try:
        from twofold.web import Server
        from twofold.web._serve import is_loopback, kept_token
    except ImportError:
        print("twofold serve: the web page is not installed: pip install 'twofold[web]'", file=sys.stderr)
        return 2
    if arguments.no_token == 1 and not is_loopback(arguments.host):
        print(
            f"twofold serve: {arguments.host} is reached by others, and without a token all of them see everything: "
            "say --no-token twice if that is meant",
            file=sys.stderr,
        )
        return 2
    try:
        with contextlib.ExitStack() as held:
            if arguments.demo:
                path = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="twofold-"))) / "demo.journal"
                journal = held.enter_context(open_journal(path))
            else:
                journal = held.enter_context(open_journal(arguments.journal, create=False))
            token = None if arguments.no_token else kept_token()
            server = Server(journal, host=arguments.host, port=arguments.port, token=token, hosts=arguments.allow_host)
            link = server.link()
            if arguments.demo:
                link = server.link(_play(journal, server))
            print(f"{'A session begins' if arguments.demo else 'Sessions are shown'} at {link}", flush=True)
            print("Ctrl-C ends this.", flush=True)
            if not is_loopback(arguments.host):
                print("Others reach this address; what passes is not encrypted.", file=sys.stderr)
            if arguments.open:
                import webbrowser

                webbrowser.open(link)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with contextlib.suppress(KeyboardInterrupt):
                server.run()
    except JournalError as error:
        print(f"twofold serve: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = error.filename or f"cannot listen on {arguments.host}, port {arguments.port}"
        print(f"twofold serve: {where}: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0


def _play(journal: Journal, server: Server) -> str:
    """Write the example session to a journal, at reading speed from when somebody looks; give its id."""
    import threading
    import time

    from twofold.capture.importing import Importer
    from twofold.cli._player import timed
    from twofold.examples import harbour
    from twofold.journal import JournalError

    importer = Importer(journal, name="demo")
    lines = timed(harbour())
    for line, _ in lines:
        list(importer.feed([line]))
        importer.flush()
        if importer.stored:
            break
    (info,) = journal.sessions()

    def play() -> None:
        server.application.watched.wait()
        began = None
        for line, at in lines:
            began = time.monotonic() - at if began is None else began
            time.sleep(max(0.0, began + at - time.monotonic()))
            try:
                list(importer.feed([line]))
                importer.flush()
            except JournalError:  # closed: the server has ended
                return

    threading.Thread(target=play, name="twofold-demo", daemon=True).start()
    return info.session
