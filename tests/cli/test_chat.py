"""`twofold chat`: with scripts on pipes, and with people on a real terminal."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.chatting import AGENT, ALT_ENTER, CTRL_C, CTRL_D, DEADLINE, chatting, example
from tests.cli.program import ENVIRONMENT, ROOT, call, command, on_terminal, run

ECHO, STREAMING = example("echo_agent"), example("streaming_agent")
NOTHING = (sys.executable, "-c", "pass")
MUTE = (sys.executable, "-c", "import sys; sys.stdin.read()")


def said(stdin: str, *options: str | Path, agent: tuple[str, ...] = AGENT) -> tuple[int, str, str]:
    """Run a script's conversation: the exit status, the answers, and what was said beside them."""
    done = run("chat", *options, "--", *agent, stdin=stdin.encode())
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def remarks(errors: str) -> list[str]:
    """Give what the program itself said, without what the agent wrote to its standard error."""
    return [line.removeprefix("twofold chat: ") for line in errors.splitlines() if line.startswith("twofold chat: ")]


def heeding_interrupts() -> None:
    """Let a program heed SIGINT that is started by one that does not: tests may run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class TestOnPipes:
    @pytest.mark.parametrize("version", ["auto", "1", "2"])
    def test_each_line_is_a_prompt_and_each_answer_a_line(self, version: str) -> None:
        assert said("hello\n\nthere", "--agent-version", version, agent=ECHO) == (0, "hello\nthere\n", "")

    def test_no_line_is_no_prompt(self) -> None:
        assert said("", agent=ECHO) == (0, "", "")

    def test_what_is_corrected_by_more_text_goes_on_where_it_stopped(self) -> None:
        status, answers, errors = said("stream\n", agent=STREAMING)
        assert (status, answers.splitlines()[0]) == (0, "Hello, world!")
        # What is taken back at once may not be printed at all; if it was, that is told.
        assert ("secret" in answers) == (remarks(errors) == ["the last answer is withdrawn"])

    def test_what_is_corrected_otherwise_is_printed_anew(self) -> None:
        status, answers, errors = said("draft It leaves at two.\ncorrect It leaves at one.\nwithdraw\n")
        assert (status, answers) == (0, "It leaves at two.\nIt leaves at one.\n")
        assert remarks(errors) == ["an answer is corrected: it is now as follows", "an earlier answer is withdrawn"]

    def test_answers_are_printed_while_they_come(self) -> None:
        process = subprocess.Popen(
            command("chat", "--", *AGENT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=ENVIRONMENT,
            preexec_fn=heeding_interrupts,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"slow\n")
        process.stdin.flush()
        assert process.stdout.read(7) == b"I begin"  # and the turn goes on
        process.send_signal(signal.SIGINT)
        answers, errors = process.communicate(timeout=DEADLINE)
        assert (process.returncode, answers, errors) == (130, b"", b"")

    def test_a_permission_is_refused_and_said_to_be(self) -> None:
        status, answers, errors = said("ask\n")
        assert (status, answers) == (0, "chosen: Refuse\n")
        assert "refused: Remove everything? (Refuse); --allow allows it" in remarks(errors)

    def test_a_permission_is_given_once_if_that_is_wanted(self) -> None:
        status, answers, errors = said("ask\n", "--allow")
        assert (status, answers) == (0, "chosen: Yes, once\n")
        assert "allowed: Remove everything? (Yes, once)" in remarks(errors)

    def test_what_is_no_answer_goes_to_standard_error(self) -> None:
        status, answers, errors = said("work\n")
        assert (status, answers) == (0, "")
        assert remarks(errors) == [
            "tool completed: Edit the file",
            "warning: The disk is nearly full: 2 MB left",
            "1,200 of 200,000 tokens · 0.25 EUR",
        ]

    def test_a_line_that_begins_with_a_slash_is_a_prompt_like_any_other(self) -> None:
        assert said("/quit\n", agent=ECHO) == (0, "/quit\n", "")

    def test_hostile_text_does_not_act(self) -> None:
        _, answers, errors = said("hostile\n")
        assert "␛[2J␛[H" in answers
        assert re.search(r"[^\n\t -~]", re.sub("[␀-␥\u00a0-\uffff]", "", answers + errors)) is None
        assert all("forged" not in line or line.startswith("twofold chat: ") for line in errors.splitlines())

    def test_a_turn_that_ends_for_another_reason_is_no_error(self) -> None:
        status, _, errors = said("refusal\n")
        assert (status, remarks(errors)) == (0, ["the turn ended: refusal"])

    @pytest.mark.parametrize("version", ["1", "2"])
    def test_a_turn_that_ends_with_an_error_is_told_and_the_next_line_is_sent(self, version: str) -> None:
        status, answers, errors = said("fail\nhello\n", "--agent-version", version)
        assert (status, answers) == (1, "You said: hello\n")
        assert remarks(errors) == ["the turn ended with an error (-32603)"]

    @pytest.mark.parametrize("journal", [False, True], ids=["", "journal"])
    def test_an_agent_that_dies_is_the_end(self, journal: bool, tmp_path: Path) -> None:
        options = ("--journal", tmp_path / "j.db") if journal else ()
        status, answers, errors = said("die\nhello\n", *options)
        assert (status, answers) == (1, "")
        name = Path(sys.executable).name
        assert remarks(errors)[-1] == f"{name} ended with status 3"

    def test_an_agent_that_dies_while_nothing_is_asked_is_the_end_too(self) -> None:
        code = (
            "import asyncio, os, tests.cli.chat_agent as a\n"
            "class Dying(a.Scripted):\n"
            "    async def prompt(self, session, prompt):\n"
            "        await session.message().append('last words')\n"
            "        asyncio.get_running_loop().call_later(0.1, os._exit, 3)\n"
            "Dying().run()"
        )
        process = subprocess.Popen(
            command("chat", "--", sys.executable, "-c", code),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=ENVIRONMENT,
        )
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"hello\n")
        process.stdin.flush()  # and it stays open
        assert process.stderr.read().decode().splitlines()[-1].endswith("ended with status 3")
        assert process.wait(DEADLINE) == 1
        process.communicate()

    @pytest.mark.parametrize("journal", [False, True], ids=["", "journal"])
    @pytest.mark.parametrize(
        ("agent", "words"),
        [
            (("no-such-agent",), "no-such-agent could not be started: No such file or directory"),
            (NOTHING, "python"),
            (("cat", "/dev/null"), "cat"),
        ],
        ids=["missing", "ends", "cat"],
    )
    def test_an_agent_that_cannot_be_talked_to_is_one_sentence(
        self, agent: tuple[str, ...], words: str, journal: bool, tmp_path: Path
    ) -> None:
        options = ("--journal", tmp_path / "j.db") if journal else ()
        status, answers, errors = said("hello\n", *options, agent=agent)
        assert (status, answers) == (1, "")
        assert len(errors.splitlines()) == 1
        assert errors.startswith(f"twofold chat: {words}")

    def test_an_agent_that_wants_a_login_is_one_sentence(self) -> None:
        code = (
            "import tests.cli.chat_agent as a, twofold.exceptions as e\n"
            "class Locked(a.Scripted):\n"
            "    auth_methods = [{'type': 'agent', 'methodId': 'web', 'name': 'In the browser'}]\n"
            "    async def new_session(self, session):\n"
            "        raise e.RequestError(-32000, 'Authentication required')\n"
            "Locked().run()"
        )
        words = (
            "the agent wants to know first who you are (In the browser): log in with its own command, then come back"
        )
        assert said("hello\n", agent=(sys.executable, "-c", code)) == (1, "", f"twofold chat: {words}\n")

    def test_a_session_that_is_not_there_is_one_sentence(self) -> None:
        status, _, errors = said("hello\n", "--session", "nowhere")
        assert (status, errors) == (1, 'twofold chat: cannot resume "nowhere": the agent has no such session\n')

    def test_wrong_usage_is_status_2(self, tmp_path: Path) -> None:
        missing = tmp_path / "missing"
        assert said("", "--cwd", missing)[::2] == (2, f"twofold chat: {missing} is not a directory\n")
        status, _, errors = said("", "--journal", tmp_path / "no" / "j.db")
        assert (status, len(errors.splitlines())) == (2, 1)
        assert run("chat").returncode == 2

    def test_the_working_directory_is_the_sessions(self, tmp_path: Path) -> None:
        journal, folder = tmp_path / "j.db", tmp_path / "folder"
        folder.mkdir()
        assert said("hello\n", "--cwd", os.path.relpath(folder, ROOT), "--journal", journal, agent=ECHO)[0] == 0
        shown = run("journal", "export", journal).stdout.decode()
        assert str(folder) in shown

    def test_a_conversation_is_recorded_and_goes_on_with_an_agent_that_does_not_remember(self, tmp_path: Path) -> None:
        journal = tmp_path / "j.db"
        assert said("draft It leaves at two.\n", "--journal", journal)[1] == "It leaves at two.\n"
        session = run("journal", "ls", journal).stdout.decode().split()[0]
        assert said("hello\n", "--journal", journal, "--session", session)[1].endswith("You said: hello\n")
        shown = run("journal", "show", journal, "--session", session).stdout.decode()
        assert shown.index("It leaves at two.") < shown.index("You said: hello")

    def test_what_the_agent_remembers_goes_on(self, tmp_path: Path) -> None:
        agent = (*AGENT, str(tmp_path / "agent.db"))
        assert said("draft It leaves at two.\n", agent=agent)[0] == 0
        session = run("journal", "ls", tmp_path / "agent.db").stdout.decode().split()[0]
        assert said("hello\n", "--session", session, agent=agent) == (0, "You said: hello\n", "")

    def test_without_the_extra_pipes_still_work(self, tmp_path: Path) -> None:
        for name in ("prompt_toolkit", "rich"):
            (tmp_path / f"{name}.py").write_text("raise ImportError('not here')")
        environment = {
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        }
        done = run("chat", "--", *ECHO, stdin=b"hello\n", environment=environment)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"")

    def test_a_closed_pipe_ends_it_quietly(self) -> None:
        process = subprocess.Popen(
            command("chat", "--", *AGENT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=ENVIRONMENT,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE) == 0
        process.stdin.close()
        process.stderr.close()

    @pytest.mark.parametrize("journal", [False, True], ids=["", "journal"])
    def test_an_agent_that_does_not_speak_is_one_sentence(
        self, journal: bool, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("twofold.cli._chat.agent.START", 0.2)
        options = ("--journal", tmp_path / "j.db") if journal else ()
        found = call(capsysbinary, "chat", *options, "--", *MUTE)
        name = Path(sys.executable).name
        assert (found.status, found.out) == (1, "")
        assert found.err == f"twofold chat: {name} did not answer initialize within 0.2 seconds\n"


class TestOnATerminal:
    def test_an_answer_is_shown_and_the_conversation_goes_on(self) -> None:
        with chatting(agent=ECHO) as chat:
            chat.until("echo 1.0, protocol version 2", "/help says what can be typed")
            chat.enter("Good morning")
            chat.until("❯ Good morning", "● Good morning")
            chat.idle()
            chat.enter("Good night")
            chat.until("● Good night")
            chat.type(CTRL_D)
            assert chat.end() == 0
            assert chat.screen.everything.count("Good") == 4  # what is shown stays, and stands there once

    def test_what_streams_is_shown_while_it_comes(self) -> None:
        with chatting(agent=STREAMING) as chat:
            chat.enter("slow")
            chat.until("tick 1 ", "the agent is at work; Ctrl-C stops it")
            chat.until("tick 9 ")
            chat.type(CTRL_C)
            chat.until("the turn ended: cancelled")
            chat.enter("hello")
            chat.until("● hello")

    def test_what_the_example_agent_corrects_and_withdraws_is_seen_as_it_is_now(self) -> None:
        with chatting(agent=STREAMING) as chat:
            chat.enter("stream")
            chat.until("∴ Let me think", "● Hello, world!", "· corrected", "● withdrawn by the agent", "☰ plan")
            assert "● secret" not in chat.screen.text

    def test_a_corrected_answer_changes_where_it_stands(self) -> None:
        with chatting() as chat:
            chat.enter("draft It leaves at two.")
            chat.until("● It leaves at two.")
            place = chat.screen.lines.index("● It leaves at two.")
            chat.idle()
            chat.enter("correct It leaves at one.")
            chat.until("· corrected")  # drawn after the answer
            assert chat.screen.lines[place : place + 2] == ["● It leaves at one.", "· corrected"]
            chat.idle()
            chat.enter("draft Or later.")
            chat.until("● It leaves at one.Or later.")
            chat.type(CTRL_D)
            chat.end()
            assert chat.screen.everything.count("at two.") == 1  # in what the user typed

    def test_a_withdrawn_answer_is_gone_from_the_screen(self) -> None:
        with chatting() as chat:
            chat.enter("draft The key is hunter2.")
            chat.until("● The key is hunter2.")
            chat.idle()
            chat.enter("withdraw")
            chat.until("● withdrawn by the agent", without="● The key is hunter2.")

    def test_what_is_corrected_or_withdrawn_out_of_sight_is_said_below(self) -> None:
        with chatting(height=16) as chat:
            chat.enter("draft It leaves at two.")
            chat.until("● It leaves at two.")
            chat.enter("long 30")
            chat.until("line 30", without="● It leaves")
            chat.idle()
            chat.enter("correct It leaves at one.")
            chat.until("· corrected: what stands further up is no longer so\n● It leaves at one.")
            chat.enter("long 31")
            chat.until("line 31", without="● It leaves")
            chat.idle()
            chat.enter("withdraw")
            chat.until("● withdrawn by the agent\n· what stands further up is no longer said")

    def test_an_answer_longer_than_the_screen_is_all_there(self) -> None:
        with chatting(height=12) as chat:
            chat.enter("long 100")
            chat.until("line 100")
            chat.idle()
            chat.type(CTRL_D)
            assert chat.end() == 0
            found = re.findall(r"line (\d+)", chat.screen.everything)
            assert found == [str(number) for number in range(1, 101)]

    def test_what_goes_on_out_of_sight_goes_on_below(self) -> None:
        with chatting(height=12) as chat:
            chat.enter("draft It begins,")
            chat.until("● It begins,")
            chat.idle()
            chat.enter("long 30")
            chat.until("line 30", without="● It begins")
            chat.idle()
            chat.enter("draft it ends.")
            chat.until("\n● it ends.")

    def test_tools_plans_notices_and_usage_are_shown(self) -> None:
        with chatting(height=50) as chat:
            chat.enter("work")
            chat.until("∴ How is it done?", "✓ Edit the file", "-old line", "+new line", "· $ make test", "test 29")
            chat.until("· 14 lines before, not shown", "☰ plan\n  ✓ Edit\n  □ Rest")
            chat.until("· The disk is nearly full: 2 MB left", "· 1,200 of 200,000 tokens · 0.25 EUR")
            assert "test 13" not in chat.screen.text
            assert {"0;2;3", "0;31", "0;32"} <= set(chat.screen.styles)  # thoughts dimmed, what goes, what comes

    def test_markdown_is_rendered_and_what_is_none_is_text(self) -> None:
        with chatting(height=40) as chat:
            chat.enter("markdown")
            chat.until("● Title", "Some bold words, code and a link (http://example.com/x).", "• one", "• two")
            chat.until("print(1)", "<b>no html</b>, List<String> [red]no[/red]")
            assert "**" not in chat.screen.text
            assert "```" not in chat.screen.text

    def test_hostile_text_shows_as_text(self) -> None:
        with chatting(height=200) as chat:  # the terminal fails at any sequence that is not the program's own
            chat.enter("hostile")
            chat.until("␛[2J␛[H", "␛]52;c;aGk=␇", "? ␛[2J ⏎ ? forged", "1. ␛[2J[red] ⏎ x")
            ours = "❯●∴☰·✓✗…‖$?"
            margin = [line for line in chat.screen.lines if line and not line.startswith("  ")]
            assert [line for line in margin if line[0] not in ours or line[1:2] not in ("", " ")] == []
            chat.type(CTRL_C)
            chat.until("the turn ended: cancelled")

    def test_a_colourless_terminal_gets_no_colours(self) -> None:
        with chatting(environment={"NO_COLOR": "1"}) as chat:
            chat.enter("work")
            chat.until("☰ plan")
            assert not any(re.search(r"\b3[0-9]\b", style) for style in chat.screen.styles)

    def test_a_dumb_terminal_is_served_as_pipes_are(self) -> None:
        with on_terminal("chat", "--", *ECHO, environment={"TERM": "dumb"}) as terminal:
            terminal.read_until("Each line is a prompt; Ctrl-D ends it.")
            terminal.type(b"hello\n")
            terminal.read_until("hello\r\nhello\r\n")
            terminal.type(b"\x04")
            assert terminal.end() == 0
            assert "\x1b" not in terminal.written


class TestPermissions:
    @pytest.mark.parametrize("version", ["1", "2"])
    def test_one_is_given_by_number(self, version: str) -> None:
        with chatting("--agent-version", version) as chat:
            chat.enter("ask")
            chat.until("? Remove everything?\n", "  1. Yes, once\n  2. Always\n  3. Refuse\n  4. Refuse always\n")
            assert "  All of it.\n  For good.\n" in chat.screen.text
            chat.until("· a number or a letter (y, a), then Enter; Ctrl-C stops the turn\n?")
            chat.enter("1")
            chat.until("· Remove everything?: Yes, once", "● chosen: Yes, once")

    @pytest.mark.parametrize(
        ("words", "chosen"),
        [
            ("y", "Yes, once"),
            ("A", "Always"),
            ("refuse", "Refuse"),
            ("refuse a", "Refuse always"),
            ("4", "Refuse always"),
        ],
    )
    def test_one_is_answered_by_the_beginning_of_its_name(self, words: str, chosen: str) -> None:
        with chatting() as chat:
            chat.enter("ask")
            chat.until("? Remove everything?")
            chat.enter(words)
            chat.until(f"● chosen: {chosen}")

    @pytest.mark.parametrize("words", ["r", "5", "0", "once", "yes please"])
    def test_what_could_mean_several_things_or_none_chooses_nothing(self, words: str) -> None:
        with chatting() as chat:
            chat.enter("ask")
            chat.until("? Remove everything?")
            chat.enter(words)
            chat.until(f"· this is none of the answers: {words}", "? Remove everything?")
            chat.enter("3")
            chat.until("● chosen: Refuse")

    def test_enter_alone_chooses_nothing(self) -> None:
        with chatting() as chat:
            chat.enter("ask")
            chat.until("? Remove everything?")
            chat.enter("")
            chat.enter("")
            chat.enter("no such answer")
            chat.until("this is none of the answers: no such answer", "? Remove everything?")
            assert "chosen" not in chat.screen.text

    def test_ctrl_c_at_a_question_stops_the_turn(self) -> None:
        with chatting() as chat:
            chat.enter("ask")
            chat.until("? Remove everything?")
            chat.type(CTRL_C)
            chat.until("the turn ended: cancelled", without="? Remove everything?")
            chat.enter("hello")
            chat.until("You said: hello")

    def test_a_command_is_no_answer(self) -> None:
        with chatting() as chat:
            chat.enter("ask")
            chat.until("? Remove everything?")
            chat.enter("/options")
            chat.until("· the agent's options:", "? Remove everything?")
            chat.enter("/cancel")
            chat.until("the turn ended: cancelled", without="? Remove everything?")

    def test_what_was_being_typed_is_no_answer_and_comes_back(self, tmp_path: Path) -> None:
        signalled = tmp_path / "now"
        os.mkfifo(signalled)
        with chatting(width=200) as chat:
            chat.enter(f"later {signalled}")
            chat.until("● I wait")
            chat.type("1")
            chat.until("\n❯ 1")
            signalled.write_text("ask")
            chat.until("? Remove everything?", without="❯ 1")
            chat.enter("")
            chat.enter("3")
            chat.until("● chosen: Refuse", "\n❯ 1")

    def test_they_are_given_unasked_if_that_is_wanted(self) -> None:
        with chatting("--allow") as chat:
            chat.enter("ask")
            chat.until("· Remove everything?: Yes, once", "● chosen: Yes, once")


class TestKeys:
    @pytest.mark.parametrize("version", ["1", "2"])
    def test_ctrl_c_stops_the_turn_and_the_conversation_goes_on(self, version: str) -> None:
        with chatting("--agent-version", version) as chat:
            chat.enter("slow")
            chat.until("● I begin")
            chat.type(CTRL_C)
            chat.until("· the turn ended: cancelled", without="the agent is at work")
            chat.enter("hello")
            chat.until("You said: hello")

    def test_ctrl_c_once_more_leaves_an_agent_that_does_not_stop(self) -> None:
        with chatting() as chat:
            chat.enter("stubborn")
            chat.until("I begin")
            chat.type(CTRL_C)
            chat.until("I go on", "· stopping; Ctrl-C once more leaves")
            chat.type(CTRL_C)
            assert chat.end() == 130

    def test_ctrl_c_empties_the_line_and_leaves_when_pressed_twice_at_an_empty_one(self) -> None:
        with chatting() as chat:
            chat.type("never mind")
            chat.until("❯ never mind")
            chat.type(CTRL_C)
            chat.until("❯", without="never mind")
            chat.type(CTRL_C)
            chat.until("· Ctrl-C once more, or Ctrl-D, leaves")
            chat.type(CTRL_C)
            assert chat.end() == 130

    def test_ctrl_d_leaves_at_an_empty_line_also_in_a_turn(self) -> None:
        with chatting() as chat:
            chat.enter("slow")
            chat.until("● I begin")
            chat.type(CTRL_D)
            assert chat.end() == 0

    def test_alt_enter_and_a_backslash_begin_new_lines(self) -> None:
        with chatting(agent=ECHO) as chat:
            chat.type("one" + ALT_ENTER + "two")
            chat.until("❯ one\n  two")
            chat.enter("\\")
            chat.until("❯ one\n  two\n")
            chat.enter("three")
            chat.until("❯ one\n  two\n  three\n\n● one\n  two\n  three\n")

    def test_what_is_pasted_keeps_its_lines(self) -> None:
        with chatting(agent=ECHO) as chat:
            chat.paste("one\rtwo\nthree\n")
            chat.until("❯ one\n  two\n  three")
            chat.enter("four")
            chat.until("❯ one\n  two\n  three\n  four\n\n● one\n  two\n  three\n  four\n")

    def test_what_was_typed_before_comes_back(self) -> None:
        with chatting(agent=ECHO) as chat:
            chat.enter("first")
            chat.until("● first")
            chat.idle()
            chat.type("\x1b[A")
            chat.until("\n❯ first\n", "● first\n\n❯ first")

    def test_a_prompt_may_be_sent_while_another_one_runs(self) -> None:
        with chatting() as chat:
            chat.enter("ask")
            chat.until("? Remove everything?")
            chat.enter("3")
            chat.enter("hello")
            chat.until("● chosen: Refuse", "❯ hello", "You said: hello")

    def test_a_termination_leaves_the_terminal_as_it_was(self) -> None:
        with chatting(agent=ECHO) as chat:
            chat.terminal.process.terminate()
            assert chat.end() == 128 + signal.SIGTERM
            assert chat.terminal.written.rstrip().endswith("\x1b[?25h")

    def test_prompts_that_wait_are_shown_and_stopped_with_the_turn(self) -> None:
        with chatting() as chat:
            chat.enter("slow")
            chat.until("● I begin")
            chat.enter("and then this")
            chat.until("❯ and then this\n\n· the agent is at work")
            chat.type(CTRL_C)
            chat.until("the turn ended: cancelled", "· your prompt: and then this (cancelled)")

    def test_a_terminal_that_changes_its_size_is_drawn_anew(self) -> None:
        with chatting(agent=ECHO) as chat:
            chat.enter("word " * 30)
            chat.until("● word")
            chat.idle()
            assert max(map(len, chat.screen.lines)) > 60
            chat.resize(40)
            chat.until("\n❯")
            assert chat.screen.text.count("word") >= 60
            assert max(map(len, chat.screen.lines)) <= 40

    @pytest.mark.parametrize(("width", "height"), [(8, 4), (20, 6), (40, 100), (200, 10)])
    def test_any_terminal_is_large_enough(self, width: int, height: int) -> None:
        with chatting(width=width, height=height) as chat:
            chat.enter("work")
            chat.until("EUR")
            chat.type(CTRL_D)
            assert chat.end() == 0


class TestCommands:
    def test_help_lists_them(self) -> None:
        with chatting(height=40) as chat:
            chat.enter("/help")
            chat.until("/sessions [all]", "/resume N|ID", "/new", "/cancel", "/options", "/set ID VALUE", "/quit")

    def test_sessions_are_listed_and_resumed_with_what_was_said(self) -> None:
        with chatting() as chat:
            chat.enter("draft It leaves at two.")
            chat.until("● It leaves at two.")
            chat.idle()
            chat.enter("/new")
            chat.until("· session ")
            chat.enter("hello")
            chat.until("You said: hello")
            chat.idle()
            chat.enter("/sessions")
            chat.until("· sessions that can be resumed:\n    1. ", "(this one)\n    2. ")
            chat.enter("/resume 2")
            chat.until("· session ", "\n● It leaves at two.\n\n❯")
            assert chat.screen.text.count("● It leaves at two.") == 2
            chat.enter("correct It leaves at one.")
            chat.until("\n● It leaves at one.\n· corrected")

    def test_a_session_is_resumed_by_its_id_and_shown_once(self) -> None:
        with chatting() as chat:
            chat.enter("draft It leaves at two.")
            chat.until("● It leaves at two.")
            chat.idle()
            found = re.search(r"session (\w+)", chat.screen.text)
            assert found is not None
            chat.enter(f"/resume {found[1]}")
            chat.until(f"· session {found[1]}", "❯ draft It leaves at two.\n\n● It leaves at two.\n\n❯")
            assert chat.screen.text.count("● It leaves at two.") == 1

    def test_a_session_that_is_not_there_is_a_sentence(self) -> None:
        with chatting() as chat:
            chat.enter("/resume nowhere")
            chat.until('· cannot resume "nowhere": the agent has no such session')
            chat.enter("hello")
            chat.until("You said: hello")

    def test_options_are_listed_and_set(self) -> None:
        with chatting() as chat:
            chat.enter("/options")
            chat.until("model = small  (small, large)", "fast  Be fast = on  (on, off)")
            chat.enter("/set model Large")
            chat.until("· model = large  (small, large)")
            chat.enter("/set model huge")
            chat.until("· huge is no value of model")
            chat.enter("/set colour red")
            chat.until("· there is no option colour")

    def test_the_agents_commands_are_listed_and_sent_as_they_are(self) -> None:
        with chatting() as chat:
            chat.enter("/commands")
            chat.until("/shout WHAT  say it loudly")
            chat.enter("/shout hello")
            chat.until("● You said: /shout hello")
            chat.enter("/whisper hello")
            chat.until("· there is no command /whisper")
            chat.enter(" /whisper hello")
            chat.until("● You said: /whisper hello")

    def test_cancel_stops_the_turn(self) -> None:
        with chatting() as chat:
            chat.enter("/cancel")
            chat.until("· nothing is running")
            chat.enter("slow")
            chat.until("● I begin")
            chat.enter("/new")
            chat.until("· the agent is at work: /cancel stops it")
            chat.enter("/cancel")
            chat.until("· the turn ended: cancelled")

    def test_quit_leaves(self) -> None:
        with chatting() as chat:
            chat.enter("/quit")
            assert chat.end() == 0

    def test_what_the_agent_writes_to_standard_error_is_kept_from_the_screen(self) -> None:
        with chatting() as chat:
            chat.enter("grumble the wind is wrong")
            chat.until("● I grumbled")
            chat.idle()
            assert chat.screen.text.count("the wind is wrong") == 1
            chat.enter("/log")
            chat.until("· the last lines:\n  the wind is wrong")

    def test_a_recorded_session_goes_on_with_an_agent_that_does_not_remember(self, tmp_path: Path) -> None:
        journal = tmp_path / "j.db"
        assert said("draft It leaves at two.\n", "--journal", journal)[1] == "It leaves at two.\n"
        with chatting("--journal", journal) as chat:
            chat.enter("/sessions")
            chat.until("2. ", "draft It leaves at two.")
            chat.enter("/resume 2")
            chat.until("● It leaves at two.", "The agent does not remember this session")
            chat.enter("hello")
            chat.until("● You said: hello")
        session = run("journal", "ls", journal).stdout.decode().split()[0]
        with chatting("--journal", journal, "--session", session) as chat:
            chat.until("● You said: hello")


class TestFailures:
    @pytest.mark.parametrize("journal", [False, True], ids=["", "journal"])
    def test_an_agent_that_dies_is_told_with_its_last_words(self, journal: bool, tmp_path: Path) -> None:
        with chatting(*(("--journal", tmp_path / "j.db") if journal else ())) as chat:
            chat.enter("draft It leaves at two.")
            chat.until("● It leaves at two.")
            chat.enter("die")
            assert chat.end() == 1
            name = Path(sys.executable).name
            assert f"twofold chat: {name} ended with status 3" in chat.screen.everything
            assert "no power left" in chat.screen.everything
            assert "● It leaves at two." in chat.screen.everything

    def test_a_turn_that_fails_is_told_and_the_conversation_goes_on(self) -> None:
        with chatting() as chat:
            chat.enter("fail")
            chat.until("· the turn ended with an error (-32603)")
            chat.enter("hello")
            chat.until("You said: hello")

    def test_an_agent_that_cannot_be_started_is_one_sentence(self) -> None:
        with on_terminal("chat", "--", "no-such-agent") as terminal:
            assert terminal.end() == 1
        assert terminal.written.endswith(
            "twofold chat: no-such-agent could not be started: No such file or directory\r\n"
        )

    def test_a_missing_extra_is_named(
        self, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"isatty": lambda _self: True})())
        monkeypatch.setattr("twofold.cli.chat.in_place", lambda: True)
        monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
        found = call(capsysbinary, "chat", "--", *ECHO)
        assert (found.status, found.out) == (2, "")
        words = "on a terminal this needs prompt_toolkit and rich: pip install 'twofold[chat]'"
        assert found.err == f"twofold chat: {words}\n"
