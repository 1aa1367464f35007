"""What carries messages: whole lines in order, a bound on what waits, and ends that end."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.scripted import DEADLINE, MIB, complaints, python, run, turns, twofold_program
from twofold.exceptions import ConnectionLost, LineTooLong
from twofold.runtime import ProcessTransport, Transport, memory_pair

posix = pytest.mark.skipif(os.name != "posix", reason="signals and process groups are those of POSIX")


async def receive_all(transport: Transport) -> tuple[list[bytes | LineTooLong], ConnectionLost | None]:
    """Give everything that comes until the end, and the reason if one is given."""
    received: list[bytes | LineTooLong] = []
    try:
        while lines := await transport.receive():
            received += lines
    except ConnectionLost as error:
        return received, error
    return received, None


async def lines_of(transport: Transport, count: int) -> list[bytes | LineTooLong]:
    received: list[bytes | LineTooLong] = []
    while len(received) < count:
        lines = await transport.receive()
        assert lines
        received += lines
    return received


@contextmanager
def memory_below(size: int) -> Iterator[None]:
    """Hold the block to so many bytes more than there were."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < size


# In memory


def test_what_one_end_sends_the_other_receives_in_order() -> None:
    async def main() -> None:
        one, two = memory_pair()
        for number in range(100):
            one.send(b"%d" % number)
            two.send(b"-%d" % number)
            await one.drain()
        assert await lines_of(two, 100) == [b"%d" % number for number in range(100)]
        assert await lines_of(one, 100) == [b"-%d" % number for number in range(100)]

    run(main())


def test_a_receiver_in_memory_waits_for_what_comes() -> None:
    async def main() -> None:
        one, two = memory_pair()
        receiving = asyncio.create_task(two.receive())
        await turns(5)
        assert not receiving.done()
        one.send(b"now")
        assert await receiving == [b"now"]

    run(main())


@pytest.mark.parametrize("message", [b"x" * 10, b""])
def test_drain_waits_above_the_limit_until_the_other_end_has_read(message: bytes) -> None:
    async def main() -> None:
        one, two = memory_pair(limit=100)
        sent = 0
        while True:
            one.send(message)
            sent += 1
            draining = asyncio.create_task(one.drain())
            await turns(3)
            if not draining.done():
                break
            assert sent <= 101
        await turns(5)
        assert not draining.done()
        assert await two.receive() == [message] * sent
        await draining

    run(main())


def test_a_line_over_the_limit_in_memory_comes_as_that() -> None:
    async def main() -> None:
        one, two = memory_pair(line_limit=4)
        for message in (b"four", b"fives", b"ok"):
            one.send(message)
        first, long, last = await two.receive()
        assert (first, last) == (b"four", b"ok")
        assert isinstance(long, LineTooLong)
        assert (long.limit, long.length) == (4, 5)

    run(main())


def test_what_was_sent_before_the_end_is_received_and_then_the_end() -> None:
    async def main() -> None:
        one, two = memory_pair()
        one.send(b"last words")
        await one.close()
        await one.close()
        one.send(b"too late")
        assert await receive_all(two) == ([b"last words"], None)
        assert await two.receive() == []
        assert await one.receive() == []

    run(main())


@pytest.mark.parametrize("closed", [0, 1])
def test_an_end_that_closes_wakes_whoever_waits(closed: int) -> None:
    async def main() -> None:
        pair = memory_pair(limit=1)
        receiving = asyncio.create_task(pair[1].receive())
        await turns(3)
        pair[0].send(b"too much")
        assert await receiving
        pair[0].send(b"too much")
        draining = asyncio.create_task(pair[0].drain())
        hearing = asyncio.create_task(pair[0].receive())
        await turns(5)
        assert not draining.done()
        assert not hearing.done()
        await pair[closed].close()
        with pytest.raises(ConnectionLost):
            await draining
        assert await hearing == []

    run(main())


# A child process

ECHO = """
import sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""


def test_a_child_that_echoes_gives_back_every_line_in_order() -> None:
    chance = random.Random(4711)
    sent = [
        chance.randbytes(chance.choice((0, 1, 7, 100, 70_000))).replace(b"\n", b"").rstrip(b"\r") for _ in range(200)
    ]

    async def main() -> None:
        transport = await ProcessTransport.start(python(ECHO))
        assert transport.name == os.path.basename(sys.executable)

        async def send() -> None:
            for message in sent:
                transport.send(message)
                await transport.drain()

        sending = asyncio.create_task(send())
        assert await lines_of(transport, len(sent)) == sent
        await sending
        await transport.close()
        await transport.close()
        assert transport.process.returncode == 0

    run(main())


def test_a_child_has_the_environment_the_directory_and_the_standard_error_that_it_is_given(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd()); print(sorted(os.environ)); print('hush', file=sys.stderr)"

    async def main() -> None:
        with (tmp_path / "stderr").open("wb") as stderr:
            command = python(code)
            transport = await ProcessTransport.start(command, cwd=tmp_path, env={"ONE": "1"}, stderr=stderr)
        directory, names = await lines_of(transport, 2)
        assert isinstance(directory, bytes)
        assert isinstance(names, bytes)
        assert Path(os.fsdecode(directory)).samefile(tmp_path)
        assert b"ONE" in names
        assert b"PATH" not in names
        await receive_all(transport)
        await transport.close()

    run(main())
    assert (tmp_path / "stderr").read_text() == "hush\n"


@pytest.mark.parametrize("kind", ["missing", "no program", "missing directory"])
def test_a_child_that_cannot_be_started_is_a_lost_connection(tmp_path: Path, kind: str) -> None:
    program = tmp_path / "agent"
    if kind == "no program":
        program.write_text("not to be run")

    async def main() -> None:
        command: Sequence[str | Path] = [sys.executable] if kind == "missing directory" else [program]
        with pytest.raises(ConnectionLost, match="could not be started: ") as caught:
            await ProcessTransport.start(command, cwd=tmp_path / "nowhere" if kind == "missing directory" else None)
        assert str(caught.value).startswith(os.path.basename(command[0]))
        assert str(tmp_path) not in str(caught.value)
        assert caught.value.exit_status is None

    run(main())


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(ValueError, match="the command is empty"):
        run(ProcessTransport.start([]))


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("print('said'); raise SystemExit(3)", 3, "ended with status 3"),
        ("print('said')", 0, "ended with status 0"),
        pytest.param(
            "import os, signal; print('said', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
            -9,
            "ended by SIGKILL",
            marks=posix,
        ),
    ],
)
def test_a_child_that_ends_is_a_lost_connection_with_its_status(code: str, status: int, words: str) -> None:
    async def main() -> None:
        transport = await ProcessTransport.start(python(code))
        received, error = await receive_all(transport)
        assert [one.rstrip() for one in received if isinstance(one, bytes)] == [b"said"]
        assert error is not None
        assert error.exit_status == status
        assert str(error).endswith(words)
        await transport.close()

    run(main())


def test_a_child_that_closes_its_output_and_lives_is_an_end_without_a_status() -> None:
    async def main() -> None:
        transport = await ProcessTransport.start(python("import os, sys; os.close(1); sys.stdin.read(); os._exit(0)"))
        assert await receive_all(transport) == ([], None)
        await transport.close()
        assert transport.process.returncode == 0

    run(main())


def test_a_child_that_dies_in_mid_line_leaves_the_rest_as_a_line() -> None:
    async def main() -> None:
        code = "import sys; sys.stdout.write('whole\\nhal'); sys.stdout.flush(); raise SystemExit(1)"
        transport = await ProcessTransport.start(python(code))
        received, error = await receive_all(transport)
        assert received == [b"whole", b"hal"]
        assert error is not None
        assert error.exit_status == 1
        await transport.close()

    run(main())


def test_what_a_child_said_before_it_stopped_listening_is_received() -> None:
    async def main() -> None:
        code = "import os, sys; os.close(0); sys.stdout.write('x' * 1_000_000 + '\\nlast\\n')"
        transport = await ProcessTransport.start(python(code))
        transport.send(b"y" * 4 * MIB)
        received, error = await receive_all(transport)
        assert received == [b"x" * 1_000_000, b"last"]
        assert error is not None
        assert error.exit_status == 0
        with pytest.raises(ConnectionLost):
            await transport.drain()
        await transport.close()

    run(main())


def test_100_mb_of_a_line_over_the_limit_are_skipped_in_little_memory() -> None:
    code = """
    import sys
    out = sys.stdout.buffer
    for _ in range(100):
        out.write(b"x" * 1_000_000)
    out.write(b"\\nafter\\n")
    """

    async def main() -> None:
        transport = await ProcessTransport.start(python(code), line_limit=2 * MIB)
        with memory_below(16 * MIB):
            long, after = await lines_of(transport, 2)
        assert isinstance(long, LineTooLong)
        assert (long.limit, long.length) == (2 * MIB, 100_000_000)
        assert after == b"after"
        await transport.close()

    run(main())


@posix
def test_drain_waits_while_a_child_does_not_read_and_goes_on_when_it_does() -> None:
    code = """
    import signal, sys
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    print("ready", flush=True)
    signal.sigwait({signal.SIGUSR1})
    print(sum(len(line) for line in sys.stdin.buffer))
    """
    piece = b"x" * (MIB - 1)

    async def main() -> None:
        transport = await ProcessTransport.start(python(code), outgoing_limit=MIB)
        assert await transport.receive() == [b"ready"]
        offered = 0

        async def offer() -> None:
            nonlocal offered
            for _ in range(64):
                transport.send(piece)
                offered += 1
                await transport.drain()

        with memory_below(8 * MIB):
            offering = asyncio.create_task(offer())
            before = -1
            while offered != before:
                before = offered
                await turns(50)
            assert offered <= 4
            assert not offering.done()
            transport.process.send_signal(signal.SIGUSR1)
            await offering
        transport.stream.end()
        await transport.drain()  # it was we who ended it
        assert await transport.receive() == [str(64 * MIB).encode()]
        await transport.close()

    run(main())


@posix
def test_a_child_that_never_reads_is_ended_all_the_same() -> None:
    async def main() -> None:
        transport = await ProcessTransport.start(python("import signal; signal.pause()"), grace=0.4)
        transport.send(b"x" * 8 * MIB)
        draining = asyncio.create_task(transport.drain())
        await turns(20)
        assert not draining.done()
        await transport.close()
        assert transport.process.returncode == -signal.SIGTERM
        with pytest.raises(ConnectionLost):
            await draining

    run(main())


STUBBORN = """
import os, signal, sys
def ignore():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def grandchild():
    pid = os.fork()
    if not pid:
        ignore()
        os.write(1, b"born\\n")
        while True:
            signal.pause()
"""


@posix
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ignore(); grandchild(); print('ready', flush=True)\nwhile True: signal.pause()", -9),
        ("grandchild(); print('ready', flush=True)\nwhile True: signal.pause()", -15),
        ("grandchild(); print('ready', flush=True); sys.stdin.read(); os._exit(0)", 0),
    ],
    ids=["killed", "terminated", "asked"],
)
def test_a_child_ends_step_by_step_and_what_it_started_ends_with_it(code: str, status: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = os.pipe()
        alive = asyncio.StreamReader()  # ends when nobody is left that holds the other end
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(alive), os.fdopen(ours, "rb", 0))
        transport = await ProcessTransport.start(
            python(STUBBORN + code), stderr=theirs, grace=0.1 if status == -9 else 0.5
        )
        os.close(theirs)
        assert sorted(await lines_of(transport, 2), key=str) == [b"born", b"ready"]
        assert not alive.at_eof()
        await transport.close()
        assert transport.process.returncode == status
        assert await alive.read() == b""
        pipe.close()

    run(main())


@posix
def test_closing_is_finished_although_whoever_asked_for_it_is_cancelled() -> None:
    async def main() -> None:
        transport = await ProcessTransport.start(python("import signal; signal.pause()"), grace=0.4)
        closing = asyncio.create_task(transport.close())
        await turns(3)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        await transport.close()
        assert transport.process.returncode == -signal.SIGTERM

    run(main())


# Our own standard input and output

SHOUT = """
import asyncio, sys
from twofold.runtime._process import own_stdio
from twofold.exceptions import ConnectionLost
async def main():
    transport = await own_stdio()
    print("hello")
    while lines := await transport.receive():
        for line in lines:
            print("heard", line[:20])
            transport.send(line.upper())
        try:
            await transport.drain()
        except ConnectionLost as error:
            print("lost:", error)
            break
    await transport.close()
    await transport.close()
asyncio.run(main())
"""


def shout(**streams: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(twofold_program(SHOUT), stderr=subprocess.PIPE, timeout=DEADLINE, check=True, **streams)


def test_standard_input_and_output_carry_lines_and_what_is_printed_goes_to_standard_error() -> None:
    done = shout(input=b"one\ntwo\r\nthree", stdout=subprocess.PIPE)
    assert done.stdout == b"ONE\nTWO\nTHREE\n"
    assert complaints(done.stderr).decode().splitlines() == ["hello", "heard b'one'", "heard b'two'", "heard b'three'"]


def test_standard_input_and_output_may_be_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\n" + b"x" * 3 * MIB + b"\nthree")
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        done = shout(stdin=stdin, stdout=stdout)
    assert (tmp_path / "out").read_bytes() == b"ONE\n" + b"X" * 3 * MIB + b"\nTHREE\n"
    assert complaints(done.stderr).decode().splitlines()[-1] == "heard b'three'"


def test_standard_input_and_output_may_be_nothing() -> None:
    done = shout(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert complaints(done.stderr) == b"hello\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
def test_a_standard_output_without_room_is_a_lost_connection() -> None:
    with open("/dev/full", "wb") as full:
        done = shout(input=b"one\n", stdout=full)
    assert complaints(done.stderr).decode().splitlines()[-1] == "lost: the other side takes nothing more"


@posix
def test_a_standard_output_that_nobody_reads_any_more_is_a_lost_connection() -> None:
    with subprocess.Popen(
        twofold_program(SHOUT), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdin.write(b"one\n")
        program.stdin.flush()
        assert program.stdout.readline() == b"ONE\n"
        program.stdout.close()
        program.stdin.write(b"two\n")  # and then no end: nobody is told to stop
        program.stdin.flush()
        assert b"lost: the other side " in program.stderr.read()
        assert program.wait(DEADLINE) == 0


def test_a_file_is_read_no_faster_than_it_is_taken(tmp_path: Path) -> None:
    code = """
    import asyncio, os, sys
    from twofold.runtime._process import own_stdio
    async def main():
        transport = await own_stdio()
        assert (await transport.receive())[0] == b"x" * 100
        for _ in range(1000):
            await asyncio.sleep(0)
        print(os.lseek(0, 0, os.SEEK_CUR))
        count = 0
        while lines := await transport.receive():
            count += len(lines)
        print(count)
        await transport.close()
    asyncio.run(main())
    """
    with (tmp_path / "in").open("wb") as file:
        file.write((b"x" * 100 + b"\n") * 100_000)
    with (tmp_path / "in").open("rb") as stdin:
        done = subprocess.run(twofold_program(code), stdin=stdin, capture_output=True, timeout=DEADLINE, check=True)
    position, rest = map(int, done.stderr.split())
    assert position <= 2 * MIB
    assert rest > 90_000
