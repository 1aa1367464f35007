"""`twofold serve`: who is let in, what is printed, and how it ends."""

from __future__ import annotations

import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.program import ENVIRONMENT, ROOT, call, command
from tests.journal.stored import Session, text, whole
from twofold.cli.serve import _play
from twofold.examples import harbour
from twofold.journal import open_journal
from twofold.journal.memory import MemoryJournal
from twofold.web import Server
from twofold.web._serve import is_loopback, kept_token

Capture = pytest.CaptureFixture[bytes]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "sessions.journal"
    with open_journal(path) as held:
        Session(held).append(whole("m", text("words")), {"sessionUpdate": "state_update", "state": "idle"})
    return path


@contextmanager
def served(state: Path, *words: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command, and give its process and the link that it prints."""
    environment = {**ENVIRONMENT, "XDG_STATE_HOME": str(state), "TMPDIR": str(state)}
    with subprocess.Popen(
        command("serve", *words), cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            found = re.search(r"http\S+", line)
            assert found is not None, process.stderr.read()
            yield process, found.group()
        finally:
            process.kill()


# The token


def test_the_token_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "twofold" / "serve-token"
    token = kept_token(path)
    assert re.fullmatch(r"[\w-]{43}", token)
    assert kept_token(path) == token
    assert kept_token(tmp_path / "other") != token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["serve-token"]
    path.chmod(0o644)
    assert kept_token(path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("held", ["", "short", "x" * 31, "ż" * 40, "x" * 40 + "; Path=/", "x\nSet-Cookie: y" * 9])
def test_what_is_no_token_is_replaced(held: str, tmp_path: Path) -> None:
    path = tmp_path / "serve-token"
    path.write_text(held, encoding="utf-8")
    assert re.fullmatch(r"[\w-]{43}", kept_token(path))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("0.0.0.0", "127.0.0.1")]
)
def test_the_link_leads_here_and_has_the_token(host: str, shown: str) -> None:
    server = Server(MemoryJournal(), host=host, token="t0ken")
    assert server.link() == f"http://{shown}:{server.port}/?token=t0ken"
    assert server.link("a/b &") == f"http://{shown}:{server.port}/session?id=a%2Fb%20%26&token=t0ken"
    server.close()
    bare = Server(MemoryJournal(), host=host, token=None)
    assert bare.link() == f"http://{shown}:{bare.port}/"
    bare.close()


# The command


def test_who_has_the_link_gets_in_and_nobody_else(journal: Path, tmp_path: Path) -> None:
    with served(tmp_path, "--journal", journal) as (_, link):
        assert link.startswith("http://127.0.0.1:")
        with httpx.Client() as client:
            place, _, _ = link.partition("?")
            assert client.get(place).status_code == 401
            assert client.get(link, follow_redirects=True).status_code == 200
            assert "words" in client.get(f"{place}session?id=s").text
            assert client.get(place, headers={"host": "example.com"}).status_code == 421
            assert "server" not in client.get(place).headers


def test_the_link_of_yesterday_is_good_today(journal: Path, tmp_path: Path) -> None:
    tokens = set()
    for _ in range(2):
        with served(tmp_path, "--journal", journal) as (_, link):
            tokens.add(link.partition("?")[2])
    assert len(tokens) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_quickly_and_quietly_while_somebody_watches(
    number: signal.Signals, journal: Path, tmp_path: Path
) -> None:
    with served(tmp_path, "--journal", journal, "--no-token") as (process, link):
        with httpx.Client(timeout=20) as client, client.stream("GET", f"{link}events?id=s") as answer:
            lines = answer.iter_lines()
            assert next(lines) == "retry: 500"
            worker = children(process.pid)
            began = time.monotonic()
            process.send_signal(number)
            list(lines)
        _, err = process.communicate(timeout=20)
        assert time.monotonic() - began < 5
        assert (process.returncode, err) == (0, "")
        assert not [pid for pid in worker if Path(f"/proc/{pid}").exists()]


def children(parent: int) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--journal", "none.journal"], "none.journal: there is no such file"),
        (["--journal", "{}", "--host", "0.0.0.0", "--no-token"], "say --no-token twice if that is meant"),
        (["--journal", "{}", "--port", "{port}"], "cannot listen on 127.0.0.1, port {port}: Address already in use"),
        (["--journal", "{}", "--host", "192.0.2.1"], "Cannot assign requested address"),
        (["--journal", "{}", "--port", "65536"], "not a port: 65536"),
        (["--journal", "{}", "--demo"], "not allowed with"),
        ([], "one of the arguments --journal --demo is required"),
    ],
)
def test_what_cannot_be_is_said(
    words: list[str], said: str, journal: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = call(
            capsysbinary, "serve", *(word.replace("{}", str(journal)).replace("{port}", port) for word in words)
        )
    assert result.status == 2
    assert said.replace("{port}", port) in result.err
    assert result.out == ""


def test_without_the_extra_it_says_what_to_install(
    journal: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "twofold.web", None)
    result = call(capsysbinary, "serve", "--journal", journal)
    assert (result.status, result.err) == (
        2, "twofold serve: the web page is not installed: pip install 'twofold[web]'\n",
    )  # fmt: skip


@pytest.fixture
def not_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let the server not be run and the browser not be opened; gives what would have been."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(Server, "run", lambda server: server.close())
    handler = signal.getsignal(signal.SIGTERM)
    yield opened
    signal.signal(signal.SIGTERM, handler)


def test_the_browser_is_opened_on_request(
    journal: Path, not_run: list[str], capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert call(capsysbinary, "serve", "--journal", journal).status == 0
    assert not_run == []
    result = call(capsysbinary, "serve", "--journal", journal, "--open")
    assert result.out == f"Sessions are shown at {not_run[0]}\nCtrl-C ends this.\n"


def test_said_twice_no_token_is_meant(journal: Path, not_run: list[str], capsysbinary: Capture) -> None:
    words = ["serve", "--journal", str(journal), "--host", "0.0.0.0"]
    result = call(capsysbinary, *words, "--no-token", "--no-token")
    assert result.status == 0
    assert "token" not in result.out
    assert result.err == "Others reach this address; what passes is not encrypted.\n"


# The demo


def test_the_demo_waits_until_somebody_looks(tmp_path: Path) -> None:
    with served(tmp_path, "--demo") as (process, link):
        place, _, token = link.partition("session?id=harbour-7f3a&")
        assert token.startswith("token=")
        assert [path.name[:8] for path in tmp_path.iterdir() if path.name != "twofold"] == ["twofold-"]
        with httpx.Client(timeout=20, follow_redirects=True) as client:
            page = client.get(link)
            assert page.status_code == 200
            assert "<article" not in page.text
            with client.stream("GET", f"{place}events?id=harbour-7f3a") as answer:
                for line in answer.iter_lines():
                    if "Sunday sailings are an hour late" in line:
                        break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
        assert [path.name for path in tmp_path.iterdir()] == ["twofold"]


def test_the_demo_plays_all_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = MemoryJournal()
    server = Server(journal, token=None)
    slept: list[float] = []
    monkeypatch.setattr("time.monotonic", lambda: sum(slept))
    monkeypatch.setattr("time.sleep", slept.append)
    before = threading.enumerate()
    assert _play(journal, server) == "harbour-7f3a"
    assert len(list(journal.read("harbour-7f3a"))) == 1
    (player,) = set(threading.enumerate()) - set(before)
    server.application.watched.set()
    player.join(timeout=20)
    transcript = journal.load("harbour-7f3a").transcript
    assert [message.withdrawn for message in transcript.messages].count(True) == 1
    assert transcript.state is not None
    assert transcript.state.state == "idle"
    assert 15 <= sum(slept) <= 20
    assert b"hk_live" in harbour()
    assert not [record for record in journal.read("harbour-7f3a") if b"hk_live" in record.raw]
    server.close()


def test_a_server_can_be_stopped_from_elsewhere(journal: Path) -> None:
    with open_journal(journal) as held:
        server = Server(held, token=None)
        running = threading.Thread(target=server.run)
        running.start()
        assert httpx.get(server.link()).status_code == 200
        server.stop()
        running.join(timeout=20)
        assert not running.is_alive()
