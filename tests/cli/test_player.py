"""A session on a pipe while it goes on: what was said cannot pass for what is said about it."""

import io
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.lines import chunk, text, whole
from tests.view.hostile import acts, updates
from twofold.cli._player import player
from twofold.fold import Transcript
from twofold.wire import v2


def played(stream: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> str:
    transcript, screen = Transcript("s"), player()
    for update in stream:
        screen.show(transcript, transcript.apply(v2.read_update(update)))
    screen.end()
    return capsys.readouterr().out


def test_each_change_is_told_when_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    stream = [chunk("Fog\n"), chunk("lifts."), chunk("Sail.", "n"), whole("Rain."), whole(), chunk("Sun.")]
    assert played(stream, capsys) == (
        "[agent message m]\n  Fog\n  lifts.\n\n"
        "[agent message n]\n  Sail.\n\n"
        "[agent message m now reads]\n  Rain.\n\n"
        "[agent message m is withdrawn]\n\n"
        "[agent message m]\n  Sun.\n\n"
    )


@pytest.mark.rule("U-8")
@pytest.mark.parametrize(
    ("chunks", "shown"),
    [
        (("a\ud83d", "\ude80b"), "a🚀b"),
        (("a\ud83d",), "a\ufffd"),
        (("a\ud83d", "", "b"), "a\ufffdb"),
        (("\ude80",), "\ufffd"),
    ],
)
def test_halves_that_come_apart_are_one_character(
    chunks: tuple[str, ...], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played([chunk(one) for one in chunks], capsys) == f"[agent message m]\n  {shown}\n\n"


def test_what_is_no_text_is_not_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    card = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {**text("NOT SAID"), "type": "_card"}}
    assert "NOT SAID" not in played([card, {"sessionUpdate": "_musing", "content": "NOT SAID"}], capsys)


@given(st.lists(updates, max_size=8))
def test_nothing_said_stands_at_the_margin_or_acts(stream: list[dict[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        out = io.StringIO()
        patched.setattr(sys, "stdout", out)
        transcript, screen = Transcript("s"), player()
        for update in stream:
            screen.show(transcript, transcript.apply(v2.read_update(update)))
        screen.end()
    found = out.getvalue()
    assert not any(map(acts, found))
    ours = ("[user message ", "[agent message ", "[agent thought ")
    assert all(line.startswith(ours) for line in found.split("\n") if line and not line.startswith(" "))
