"""Ten thousand broken lines: each is refused with a reason, or means exactly what it says. None quotes its content."""

import copy
import json
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, get_args

import pytest

from tests.values import canonical
from tests.wire.captured import by_kind
from tests.wire.introspection import field_names, fullest
from twofold.exceptions import InvalidFrame, Malformed, ParseError, TwofoldError
from twofold.jsonrpc import Notification, loads, parse
from twofold.wire import Other, Skipped, encode, v1, v2

LINES = 10_000
SECRET = "hush"  # stands wherever content can stand; no text of ours says it
TAGS = {"sessionUpdate", "type", "operation", "state"}
BLOCKS = {"text", "image", "audio", "resource_link", "resource", "content", "diff", "terminal", "_later"}
KINDS = sorted(v1.KINDS | v2.KINDS | BLOCKS)


def with_secrets(value: Any, name: str = "") -> Any:
    """Replace every text but the tags by the secret, and add it as a key under each `_meta`."""
    if isinstance(value, dict):
        kept = {key: with_secrets(member, key) for key, member in value.items() if key != "_meta"}
        return kept | {"_meta": {SECRET: SECRET, f"{SECRET}-{SECRET}": [{SECRET: 1}]}}
    if isinstance(value, list):
        return [with_secrets(item) for item in value]
    return value if not isinstance(value, str) or name in TAGS else SECRET * (1 + len(value) % 4)


def good_lines(rng: random.Random) -> list[tuple[ModuleType, dict[str, Any]]]:
    """Give messages of every kind: captured ones, and ones that have all fields."""
    found: list[tuple[ModuleType, dict[str, Any]]] = []
    for group in by_kind().values():
        for module, line in rng.sample(group, min(3, len(group))):
            message = json.loads(line)
            found.append((module, message | {"params": with_secrets(message["params"])}))
    for module in (v1, v2):
        for cls in get_args(module.SessionUpdate):
            if not issubclass(cls, Other):
                for _ in range(3):
                    params = {"sessionId": SECRET, "update": fullest(cls, rng, SECRET)}
                    found.append((module, {"jsonrpc": "2.0", "method": "session/update", "params": params}))
    return found


# Structure


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Give every (container, key) in a value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(members):
        yield value, key
        yield from places(inner)


VALUES: list[Any] = [None, True, False, 0, -1, 1, 2**31, 2**64, 10**30, 1.0, 1.5, -0.0, 1e300]
VALUES += ["", SECRET, "\ud83d", "\u2028\u0000", [], [[]], [SECRET], [None], {}, {SECRET: SECRET}]
VALUES += [{"type": "text"}, {"type": SECRET}, {"type": "text", "text": SECRET}]


def break_structure(rng: random.Random, message: dict[str, Any]) -> bytes:
    message = json.loads(json.dumps(message))
    twice: tuple[str, str] | None = None
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        found = list(places(message))
        if not found:
            break
        container, key = rng.choice(found)
        match rng.randrange(8):
            case 0:
                del container[key]
            case 1 | 2:
                container[key] = copy.deepcopy(rng.choice(VALUES))
            case 3 if isinstance(container, dict):
                container[rng.choice(sorted(field_names()))] = container.pop(key)
            case 4 if isinstance(container, dict):
                container[rng.choice([*sorted(field_names()), SECRET])] = copy.deepcopy(rng.choice(VALUES))
            case 5:
                container[key] = [container[key], copy.deepcopy(rng.choice(VALUES))][: rng.randint(1, 2)]
            case 6 if key in TAGS:
                container[key] = rng.choice(KINDS)
            case 7 if isinstance(container, dict) and twice is None:
                twice = ("TWICE", key)
                members = [*container.items()]
                members.insert(rng.randint(0, len(members)), ("TWICE", copy.deepcopy(rng.choice(VALUES))))
                container.clear()
                container.update(members)
            case _:
                other, place = rng.choice(found)
                if isinstance(other, list) or place in other:
                    container[key] = (
                        json.loads(json.dumps(other[place])) if key in container else copy.deepcopy(rng.choice(VALUES))
                    )
    text = json.dumps(message, ensure_ascii=rng.random() < 0.5, separators=rng.choice([(",", ":"), (", ", " : ")]))
    if twice is not None:
        text = text.replace(json.dumps(twice[0]), json.dumps(twice[1]))
    return text.encode("utf-8", "surrogatepass")


# Bytes


def break_bytes(rng: random.Random, message: dict[str, Any]) -> bytes:
    raw = bytearray(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    for _ in range(rng.choice([1, 1, 2, 5])):
        start = rng.randrange(len(raw) + 1)
        end = min(len(raw), start + rng.choice([1, 1, 2, 8, 40]))
        match rng.randrange(6):
            case 0:
                del raw[start:end]
            case 1:
                raw[start:start] = rng.choice(NOISE)
            case 2:
                raw[start:end] = rng.choice(NOISE)
            case 3:
                raw[start:start] = raw[start:end]
            case 4:
                del raw[start:]
            case _ if start < len(raw):
                raw[start] = rng.choice(b'{}[]",:\\0a-.e\x00\x80\xff ')
    return bytes(raw)


NOISE = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b",",
    b":",
    b"\\",
    b"null",
    b"NaN",
    b"1e999",
    b"-",
    b"\\ud800",
    b"\\u0000",
    b"\xff",
]
NOISE += [
    b"\xe2\x80\xa8",
    b"\xed\xa0\x80",
    b"\t",
    b'"_meta":5,',
    b'"type":"text",',
    b'"sessionUpdate":"notice",',
    b"[" * 600,
]


def silent(error: TwofoldError) -> None:
    """Check that nothing that an error says, or that is printed of it, holds content."""
    said = [str(error), repr(error), repr(error.__dict__), "".join(traceback.format_exception(error))]
    assert not [text for text in said if SECRET in text]


def outcome(module: ModuleType, line: bytes) -> str:
    """Read a line in every way; fail when one of them is wrong, else say what became of it."""
    quick = module.decode_line(line)
    try:
        frame = parse(line)
    except (ParseError, InvalidFrame) as error:
        assert quick is None
        silent(error)
        return type(error).__name__
    if not isinstance(frame, Notification) or frame.method != "session/update" or not frame.params:
        assert quick is None
        return "another message"
    raw = bytes(frame.params)
    skipped: list[Skipped] = []
    try:
        lenient = module.decode_params(raw, skipped=skipped)
    except (ParseError, Malformed) as error:
        silent(error)
        lenient = None
        assert skipped == []
    for one in skipped:
        assert one.path.startswith("$.params")
        assert SECRET not in f"{one} {one!r}"
    try:
        params = module.decode_params(raw)
    except ParseError as error:
        assert quick is None
        assert lenient is None
        silent(error)
        return "ParseError in params"
    except Malformed as error:
        assert quick is None
        silent(error)
        where, wanted, found = error.path, error.expected, error.found
        assert where.startswith("$.params") and wanted and found  # noqa: PT018
        if lenient is None:
            return "Malformed"
        assert skipped
        module.decode_params(encode(lenient))  # what is left is well formed
        return "Malformed, read leniently"
    assert quick is None or (quick == params and repr(quick) == repr(params))
    assert lenient == params
    assert skipped == []
    assert canonical(loads(encode(params))) == canonical(json.loads(raw))
    return "accepted"


@pytest.mark.rule("U-6", "U-7", "J-7")
@pytest.mark.parametrize("seed", [2026])
def test_ten_thousand_broken_lines_are_refused_with_a_path_or_kept_as_they_are(seed: int) -> None:
    rng = random.Random(seed)
    messages = good_lines(rng)
    outcomes: Counter[str] = Counter()
    for number in range(LINES):
        module, message = messages[number % len(messages)]
        harm: Callable[[random.Random, dict[str, Any]], bytes] = rng.choice([break_structure, break_bytes])
        line = harm(rng, message)
        try:
            outcomes[outcome(module, line)] += 1
        except Exception as error:
            raise AssertionError(f"line {number}, {module.__name__}: {line!r}") from error
    expected = ["ParseError", "InvalidFrame", "another message", "Malformed", "Malformed, read leniently", "accepted"]
    assert all(outcomes[one] >= 50 for one in expected), outcomes


def test_the_lines_are_good_before_they_are_broken() -> None:
    for module, message in good_lines(random.Random(1)):
        assert outcome(module, json.dumps(message).encode()) == "accepted"
