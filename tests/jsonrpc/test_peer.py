"""The books of one end: what each line means, what is answered, and that nothing a line holds confuses or leaks."""

from __future__ import annotations

import json
from collections import Counter, deque
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from tests.values import anything
from twofold.exceptions import InvalidFrame, LineTooLong, ParseError, ProtocolViolation, RequestError
from twofold.jsonrpc import (
    CANCEL,
    CANCELLED,
    MAX_DEPTH,
    Answer,
    Event,
    Fault,
    Id,
    Notification,
    Peer,
    Request,
    Withdrawn,
    dumps,
)
from twofold.jsonrpc._peer import MAX_IN_FLIGHT

MARKER: Final = "hush-4711"


def line(**members: Any) -> bytes:
    return dumps({"jsonrpc": "2.0", **members})


def cancel(**params: Any) -> bytes:
    return line(method=CANCEL, params=params)


def only(peer: Peer, received: bytes | LineTooLong) -> Event:
    """Give the one event of a line."""
    (event,) = peer.received(received)
    return event


def fault(peer: Peer, received: bytes | LineTooLong) -> Fault:
    event = only(peer, received)
    assert isinstance(event, Fault)
    return event


def refused(peer: Peer, received: bytes | LineTooLong) -> tuple[Any, int]:
    """Give the id and the code of the error that a line is answered with."""
    reply = fault(peer, received).reply
    assert reply is not None
    assert b"\n" not in reply
    answer = json.loads(reply)
    assert answer.keys() == {"jsonrpc", "id", "error"}
    assert answer["jsonrpc"] == "2.0"
    return answer["id"], answer["error"]["code"]


def assert_usable(peer: Peer) -> None:
    """Ask and answer in both directions."""
    assert only(peer, line(id="usable", method="m")) == Request("usable", "m")
    assert peer.answer("usable", b"1") == b'{"jsonrpc":"2.0","id":"usable","result":1}'
    id_, _ = peer.request("n")
    assert only(peer, line(id=id_, result=2)) == Answer(id_, "n", Raw(b"2"), None)


# The table


@pytest.mark.parametrize("id_", [0, -1, 10**40, "", "x", "\ud83d"])
def test_a_request_that_is_not_in_flight_is_in_flight_from_then_on(id_: Id) -> None:
    peer = Peer()
    assert only(peer, line(id=id_, method="m", params={"a": 1})) == Request(id_, "m", Raw(b'{"a":1}'))
    assert peer.in_flight == 1
    assert peer.answer(id_, b'{"b":2}') == b'{"jsonrpc":"2.0","id":%b,"result":{"b":2}}' % dumps(id_)
    assert peer.in_flight == 0


def test_a_request_whose_id_is_in_flight_is_refused_and_the_first_one_stays_to_be_answered() -> None:
    peer = Peer()
    only(peer, line(id=1, method="m"))
    event = fault(peer, line(id=1, method="other"))
    assert isinstance(event.error, InvalidFrame)
    assert event.error.id == 1
    assert event.reply is not None
    assert json.loads(event.reply)["id"] is None  # under the id 1 it would answer the first one
    assert peer.in_flight == 1
    assert peer.answer(1, b"{}") is not None


def test_an_id_may_be_used_again_once_it_is_answered() -> None:
    peer = Peer()
    for _ in range(3):
        assert only(peer, line(id=1, method="m")) == Request(1, "m")
        assert peer.answer(1, b"{}") is not None


def test_ids_of_other_types_are_other_ids() -> None:
    peer = Peer()
    only(peer, line(id=1, method="m"))
    assert only(peer, line(id="1", method="n")) == Request("1", "n")
    assert peer.in_flight == 2


def test_ids_of_the_two_sides_have_nothing_to_do_with_each_other() -> None:
    peer = Peer()
    id_, _ = peer.request("ours")
    assert only(peer, line(id=id_, method="theirs")) == Request(id_, "theirs")
    assert only(peer, line(id=id_, result=1)) == Answer(id_, "ours", Raw(b"1"), None)
    assert peer.in_flight == 1


def test_a_notification_is_given_as_it_is() -> None:
    peer = Peer()
    assert only(peer, line(method="m", params=[1])) == Notification("m", Raw(b"[1]"))
    assert only(peer, line(method="m")) == Notification("m", UNSET)


@pytest.mark.parametrize("id_", [7, "seven"])
def test_a_cancel_request_of_a_request_in_flight_withdraws_it_and_it_is_still_to_be_answered(id_: Id) -> None:
    peer = Peer()
    only(peer, line(id=id_, method="m"))
    assert only(peer, cancel(requestId=id_)) == Withdrawn(id_)
    assert peer.in_flight == 1
    assert peer.refuse(id_, CANCELLED, "Request cancelled") == line(
        id=id_, error={"code": CANCELLED, "message": "Request cancelled"}
    )
    assert peer.in_flight == 0


def test_a_cancel_request_of_what_is_not_in_flight_means_nothing() -> None:
    peer = Peer()
    assert peer.received(cancel(requestId=7)) == ()
    only(peer, line(id=7, method="m"))
    peer.answer(7, b"{}")
    assert peer.received(cancel(requestId=7)) == ()
    id_, _ = peer.request("ours")
    assert peer.received(cancel(requestId=id_)) == ()  # it is not theirs to withdraw
    assert peer.pending == 1


@pytest.mark.parametrize("odd", [None, True, 1.5, 1.0, [1], {"id": 1}])
def test_a_cancel_request_with_an_odd_id_is_a_fault_without_an_answer(odd: Any) -> None:
    peer = Peer()
    only(peer, line(id=1, method="m"))
    event = fault(peer, cancel(requestId=odd))
    assert isinstance(event.error, ProtocolViolation)
    assert event.reply is None
    assert peer.in_flight == 1


@pytest.mark.parametrize("params", [b"", b',"params":[]', b',"params":{}', b',"params":[1]'])
def test_a_cancel_request_without_an_id_is_a_fault_without_an_answer(params: bytes) -> None:
    event = fault(Peer(), b'{"jsonrpc":"2.0","method":"$/cancel_request"%b}' % params)
    assert isinstance(event.error, ProtocolViolation)
    assert event.reply is None


@pytest.mark.parametrize("number", [b"1e999", b"9" * 5000])
def test_a_cancel_request_whose_number_does_not_fit_is_a_fault_without_an_answer(number: bytes) -> None:
    peer = Peer()
    event = fault(peer, b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%b}}' % number)
    assert isinstance(event.error, ParseError)
    assert event.reply is None
    assert_usable(peer)


def test_an_answer_to_what_is_pending_is_given_with_its_method_and_the_request_is_no_longer_pending() -> None:
    peer = Peer()
    first, line_one = peer.request("one", b'{"a":1}')
    second, line_two = peer.request("two")
    assert json.loads(line_one) == {"jsonrpc": "2.0", "id": first, "method": "one", "params": {"a": 1}}
    assert json.loads(line_two) == {"jsonrpc": "2.0", "id": second, "method": "two"}
    assert peer.pending == 2
    assert only(peer, line(id=second, result=None)) == Answer(second, "two", Raw(b"null"), None)
    event = only(peer, line(id=first, error={"code": -32002, "message": "gone", "data": {"sessionId": "s"}}))
    assert isinstance(event, Answer)
    assert event.result is None
    assert isinstance(event.error, RequestError)
    assert (event.error.code, event.error.message, event.error.data) == (-32002, "gone", {"sessionId": "s"})
    assert str(event.error) == "one was answered with “not found” (-32002)"
    assert peer.pending == 0


@pytest.mark.parametrize("odd", [7, "0", "", -1])
def test_an_answer_to_nobody_is_a_fault_without_an_answer(odd: Id) -> None:
    peer = Peer()
    id_, _ = peer.request("m")
    for answer in (line(id=odd, result={}), line(id=odd, error={"code": 1, "message": "no"})):
        event = fault(peer, answer)
        assert isinstance(event.error, ProtocolViolation)
        assert event.reply is None
    assert peer.pending == 1
    assert only(peer, line(id=id_, result={})) == Answer(id_, "m", Raw(b"{}"), None)


def test_a_second_answer_of_theirs_is_a_fault() -> None:
    peer = Peer()
    id_, _ = peer.request("m")
    assert isinstance(only(peer, line(id=id_, result=1)), Answer)
    assert fault(peer, line(id=id_, result=2)).reply is None
    assert fault(peer, line(id=id_, error={"code": 1, "message": "no"})).reply is None


def test_a_second_answer_of_ours_is_not_sent() -> None:
    peer = Peer()
    only(peer, line(id=1, method="m"))
    assert peer.answer(1, b"{}") is not None
    assert peer.answer(1, b"{}") is None
    assert peer.refuse(1, -32603, "Internal error") is None
    assert peer.answer("never asked", b"{}") is None


def test_an_error_that_answers_no_id_is_a_fault_and_leaves_our_requests_pending() -> None:
    peer = Peer()
    peer.request("m")
    event = fault(peer, line(id=None, error={"code": -32700, "message": MARKER}))
    assert isinstance(event.error, ProtocolViolation)
    assert "-32700" in str(event.error)
    assert event.reply is None
    assert peer.pending == 1


@pytest.mark.parametrize(
    "text",
    [
        b"x",
        b"{",
        b'{"jsonrpc":"2.0","method":"m"',
        b'{"jsonrpc":"2.0","method":"m"} {}',
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"NaN",
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":[NaN]}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":-Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
    ],
)
def test_bad_json_is_answered_with_a_parse_error_that_has_no_id(text: bytes) -> None:
    peer = Peer()
    assert refused(peer, text) == (None, -32700)
    assert peer.in_flight == 0
    assert_usable(peer)


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        (b"5", None),
        (b'"x"', None),
        (b"null", None),
        (b"{}", None),
        (b'{"id":3}', 3),
        (b'{"jsonrpc":"2.0","id":3}', 3),
        (b'{"jsonrpc":"1.0","id":3,"method":"m"}', 3),
        (b'{"jsonrpc":2.0,"id":3,"method":"m"}', 3),
        (b'{"id":"x","method":"m"}', "x"),
        (b'{"jsonrpc":"2.0","id":3,"method":5}', 3),
        (b'{"jsonrpc":"2.0","id":3,"method":null}', 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"m","params":5}', 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"m","params":null}', 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"m","result":{}}', 3),
        (b'{"jsonrpc":"2.0","method":"m","params":"p"}', None),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":{},"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":[1],"method":"m"}', None),
    ],
)
def test_json_that_is_no_frame_is_answered_under_its_id_where_that_is_usable(text: bytes, id_: Id | None) -> None:
    peer = Peer()
    assert refused(peer, text) == (id_, -32600)
    assert peer.in_flight == 0
    assert_usable(peer)


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":0,"result":1,"error":{"code":1,"message":"no"}}',
        b'{"jsonrpc":"2.0","id":0,"error":"no"}',
        b'{"jsonrpc":"2.0","id":0,"error":{"code":"1","message":"no"}}',
        b'{"jsonrpc":"2.0","id":0,"error":{"code":true,"message":"no"}}',
    ],
)
def test_an_answer_that_is_none_ends_the_waiting_and_is_not_answered(text: bytes) -> None:
    peer = Peer()
    assert [type(event) for event in peer.received(text)] == [Fault]  # nobody asked
    id_, _ = peer.request("m")
    told, answer = peer.received(text)
    assert isinstance(told, Fault)
    assert told.reply is None
    assert isinstance(answer, Answer)
    assert (answer.id, answer.method, answer.result) == (id_, "m", None)
    assert answer.error is not None
    assert peer.pending == 0
    assert_usable(peer)


def test_an_answer_without_an_id_is_not_answered() -> None:
    peer = Peer()
    assert fault(peer, b'{"jsonrpc":"2.0","result":1}').reply is None
    assert_usable(peer)


def test_an_invalid_frame_under_an_id_in_flight_does_not_answer_the_request_in_flight() -> None:
    peer = Peer()
    only(peer, line(id=3, method="m"))
    assert refused(peer, line(id=3, method=5)) == (None, -32600)
    assert peer.answer(3, b"{}") is not None


def test_an_over_long_line_is_answered_without_an_id() -> None:
    peer = Peer()
    too_long = LineTooLong(limit=10, length=11)
    assert fault(peer, too_long).error is too_long
    assert refused(peer, too_long) == (None, -32600)
    assert_usable(peer)


@pytest.mark.parametrize("text", [b"", b" ", b"\r", b"\t \r"])
def test_an_empty_line_is_nothing(text: bytes) -> None:
    assert Peer().received(text) == ()


# Batches


@pytest.mark.parametrize(
    "text", [b"[]", b"[1]", b"[[]]", b"[" + line(id=1, method="m") + b"," + line(method="n") + b"]", b" [ ] "]
)
def test_an_array_is_refused_as_a_whole_with_one_error_without_an_id(text: bytes) -> None:
    peer = Peer()
    assert refused(peer, text) == (None, -32600)
    assert peer.in_flight == 0


def test_an_array_is_taken_entry_by_entry_where_batches_are() -> None:
    peer = Peer(batches=True)
    id_, _ = peer.request("ours")
    entries = [
        line(id=1, method="m"),
        b"7",
        line(id=1, method="again"),
        line(id="x", method=5),
        line(method="n", params={}),
        cancel(requestId=1),
        cancel(requestId=2),
        line(id=id_, result=0),
        line(id=id_, result=0),
        b"[]",
    ]
    events = peer.received(b"[" + b",".join(entries) + b"]")
    assert [type(event) for event in events] == [
        Request,
        Fault,
        Fault,
        Fault,
        Notification,
        Withdrawn,
        Answer,
        Fault,
        Fault,
    ]
    replies = [json.loads(event.reply) for event in events if isinstance(event, Fault) and event.reply is not None]
    assert [(reply["id"], reply["error"]["code"]) for reply in replies] == [
        (None, -32600),
        (None, -32600),
        ("x", -32600),
        (None, -32600),
    ]
    assert peer.in_flight == 1
    assert_usable(peer)


def test_an_empty_array_is_refused_where_batches_are_taken_too() -> None:
    assert refused(Peer(batches=True), b"[]") == (None, -32600)


def test_an_array_that_is_no_json_is_one_parse_error_and_none_of_it_is_taken() -> None:
    peer = Peer(batches=True)
    assert refused(peer, b"[" + line(id=1, method="m") + b",") == (None, -32700)
    assert refused(peer, b"[" + line(id=1, method="m") + b',{"id":1e999}]') == (None, -32700)
    assert peer.in_flight == 0


# Bounds and ends


def test_too_many_requests_in_flight_are_refused_under_their_id_until_there_is_room() -> None:
    peer = Peer()
    for number in range(MAX_IN_FLIGHT):
        only(peer, line(id=number, method="m"))
    event = fault(peer, line(id="more", method=MARKER))
    assert MARKER not in f"{event.error} {event.reply!r}"
    id_, code = refused(peer, line(id="more", method="m"))
    assert id_ == "more"
    assert -32099 <= code <= -32000  # JSON-RPC keeps these for servers
    assert code not in (-32000, -32002, -32022)  # to ACP these say something else
    assert peer.in_flight == MAX_IN_FLIGHT
    assert isinstance(only(peer, cancel(requestId=0)), Withdrawn)
    assert peer.answer(0, b"{}") is not None
    assert only(peer, line(id="more", method="m")) == Request("more", "m")


def test_our_request_can_be_withdrawn_as_long_as_it_is_pending() -> None:
    peer = Peer()
    id_, _ = peer.request("m")
    said = peer.cancel(id_)
    assert said is not None
    assert json.loads(said) == {"jsonrpc": "2.0", "method": CANCEL, "params": {"requestId": id_}}
    assert peer.pending == 1  # its answer still comes
    assert isinstance(only(peer, line(id=id_, error={"code": CANCELLED, "message": "cancelled"})), Answer)
    assert peer.cancel(id_) is None
    assert peer.cancel(99) is None


def test_at_the_end_both_sides_requests_are_forgotten_and_ours_are_named() -> None:
    peer = Peer()
    ids = [peer.request("m")[0] for _ in range(3)]
    only(peer, line(id=ids[1], result=1))
    only(peer, line(id="theirs", method="n"))
    assert list(peer.ended()) == [ids[0], ids[2]]
    assert (peer.pending, peer.in_flight) == (0, 0)
    assert peer.answer("theirs", b"{}") is None
    assert peer.ended() == ()
    assert fault(peer, line(id=ids[0], result=1)).reply is None


def test_what_is_said_is_one_line_whatever_it_holds() -> None:
    peer = Peer()
    only(peer, line(id=1, method="m"))
    only(peer, line(id=2, method="m"))
    said = [
        peer.request("m", b'{"a":\n1}')[1],
        peer.notify("n", b"[\n]"),
        peer.answer(1, b'{\n"a":1}'),
        peer.refuse(2, 1, "two\nlines", {"a": "b\nc"}),
    ]
    for one in said:
        assert one is not None
        assert b"\n" not in one
        json.loads(one)


# Laws

names = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "requestId", "code", "message", "x"])
values = st.one_of(
    anything,
    st.sampled_from(["2.0", CANCEL, "session/update", 0, 1, "0", None]),
    st.dictionaries(names, anything, max_size=3),
)
frames = st.dictionaries(names, values, max_size=5).map(lambda members: {"jsonrpc": "2.0", **members})
texts = st.one_of(
    frames.map(dumps),
    st.lists(frames, max_size=3).map(dumps),
    anything.map(dumps),
)
places = st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=3)), max_size=3)


def damaged(text: bytes, damage: list[tuple[int, bytes]]) -> bytes:
    """Put bytes into a text, in the place of as many others."""
    for place, put in damage:
        text = text[:place] + put + text[place + len(put) :]
    return text


@given(st.lists(st.one_of(st.binary(), st.builds(damaged, texts, places)), max_size=5), st.booleans())
@example([b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1e999}}'], False)
def test_any_bytes_as_a_line_raise_nothing_and_leave_the_peer_usable(lines: list[bytes], batches: bool) -> None:
    peer = Peer(batches=batches)
    peer.request("m")
    for one in lines:
        for event in peer.received(one):
            if isinstance(event, Fault) and event.reply is not None:
                reply = json.loads(event.reply)
                assert "error" in reply
                assert Peer().received(event.reply)[0].reply is None  # type: ignore[union-attr] # no echo of an echo
            elif isinstance(event, Request):
                assert peer.refuse(event.id, -32601, "Method not found") is not None
    assert peer.in_flight == 0
    assert_usable(peer)


class End:
    """One of two peers that talk: what is on its way to it, and what it knows to be owed."""

    def __init__(self) -> None:
        self.peer = Peer()
        self.coming: deque[bytes] = deque()
        self.asked: list[Id] = []
        self.owed: list[Id] = []
        self.answers: Counter[Id] = Counter()
        self.withdrawn: set[Id] = set()

    def take(self) -> None:
        for event in self.peer.received(self.coming.popleft()):
            match event:
                case Request(id):
                    self.owed.append(id)
                case Answer(id):
                    self.answers[id] += 1
                case Withdrawn(id):
                    assert id in self.owed
                case _:
                    assert isinstance(event, Notification)


moves = st.tuples(st.booleans(), st.sampled_from(["ask", "tell", "take", "answer", "refuse", "cancel"]), st.integers(0))


@given(st.lists(moves, max_size=60))
def test_two_peers_answer_every_request_exactly_once_in_any_interleaving(talk: list[tuple[bool, str, int]]) -> None:
    ends = (End(), End())

    def say(said: bytes | None, to: End) -> None:
        if said is not None:
            to.coming.append(said)

    for which, move, number in talk:
        one, other = ends[which], ends[not which]
        match move:
            case "ask":
                id_, said = one.peer.request("m", b"{}")
                one.asked.append(id_)
                say(said, other)
            case "tell":
                say(one.peer.notify("n"), other)
            case "take" if one.coming:
                one.take()
            case "answer" if one.owed:
                id_ = one.owed[number % len(one.owed)]
                say(one.peer.answer(id_, b"{}"), other)
                one.owed.remove(id_)
            case "refuse" if one.owed:
                id_ = one.owed[number % len(one.owed)]
                say(one.peer.refuse(id_, CANCELLED, "Request cancelled"), other)
                one.owed.remove(id_)
            case "cancel" if one.asked:
                say(one.peer.cancel(one.asked[number % len(one.asked)]), other)
            case _:
                pass
    while any(end.coming or end.owed for end in ends):
        for one, other in (ends, ends[::-1]):
            while one.coming:
                one.take()
            while one.owed:
                say(one.peer.answer(one.owed.pop(), b"{}"), other)
    for end in ends:
        assert end.answers == Counter(end.asked)
        assert (end.peer.pending, end.peer.in_flight) == (0, 0)


marked = st.recursive(
    st.sampled_from([MARKER, MARKER + "\ud83d", {MARKER: MARKER}, [MARKER], None, 1, "2.0", CANCEL, True]),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(names, inner, max_size=2)),
    max_leaves=3,
)
marked_frames = st.builds(
    lambda members, id_, mark: members | id_ | mark,
    st.dictionaries(st.sampled_from(["jsonrpc", "method", "params", "result", "error", "x", MARKER]), marked),
    st.sampled_from([{}, {"id": 0}, {"id": "in flight"}, {"id": "new"}, {"id": None}, {"id": [MARKER]}, {"id": 1.5}]),
    st.sampled_from([{}, {"jsonrpc": "2.0"}, {"jsonrpc": "2.0", "method": CANCEL}]),
)


@pytest.mark.rule("J-7")
@given(st.builds(damaged, st.one_of(marked_frames, st.lists(marked_frames)).map(dumps), places), st.booleans())
@example(MARKER.encode(), False)
@example(f'{{"jsonrpc":"2.0","method":{{"{MARKER}":NaN}}}}'.encode(), False)
@example(line(id=None, error={"code": 1, "message": MARKER, "data": MARKER}), False)
def test_no_text_of_a_fault_or_a_reply_quotes_the_line(text: bytes, batches: bool) -> None:
    peer = Peer(batches=batches)
    peer.request("m")
    only(peer, line(id="in flight", method="m"))
    for event in peer.received(text):
        if isinstance(event, Fault):
            assert MARKER not in f"{event.error} {event.error!r} {event.reply!r}"
        if isinstance(event, Answer) and event.error is not None:
            assert MARKER not in str(event.error)
