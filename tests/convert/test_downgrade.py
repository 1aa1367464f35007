"""v2 → v1, messages: V-1 … V-9."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.convert.streams import PlainReader, can_be_carried, joined, streams, updates
from twofold.convert import CORRECTED, SUPERSEDES, WITHDRAWN, Downgrader, Loss, Policy, downgrade
from twofold.exceptions import Unrepresentable
from twofold.fold import Transcript
from twofold.wire import same, to_json, v2

POLICIES = list(Policy)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def whole(content: Any = ..., kind: str = "agent_message", message_id: str = "m", **fields: Any) -> dict[str, Any]:
    update = {"sessionUpdate": kind, "messageId": message_id, **fields}
    return update if content is ... else {**update, "content": content}


def chunk(words: str, kind: str = "agent_message", message_id: str = "m", **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": f"{kind}_chunk", "messageId": message_id, "content": text(words), **fields}


def convert(policy: Policy, *stream: dict[str, Any]) -> tuple[list[list[dict[str, Any]]], list[list[Loss]]]:
    converter = Downgrader(policy=policy)
    results = [converter.update(v2.read_update(update)) for update in stream]
    return [[to_json(one) for one in result.updates] for result in results], [list(result.losses) for result in results]


@pytest.mark.rule("V-1")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["user_message", "agent_message", "agent_thought"])
def test_a_chunk_is_the_same_chunk_in_v1(policy: Policy, kind: str) -> None:
    update = chunk("hi", kind, _meta={"a": None}, unknown=[1, True])
    assert convert(policy, update)[0] == [[update]]
    assert [to_json(one) for one in downgrade(v2.read_update(update))] == [update]
    assert Downgrader(policy=policy).update(v2.read_update(update)).unchanged


@pytest.mark.rule("V-2")
@pytest.mark.parametrize("policy", POLICIES)
def test_a_whole_message_becomes_a_chunk_per_block_with_a_copy_of_its_meta(policy: Policy) -> None:
    update = whole([text("a"), {"type": "image", "data": "AA==", "mimeType": "image/png"}], _meta={"k": 1}, unknown=2)
    expected = [
        {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": block, "_meta": {"k": 1}, "unknown": 2}
        for block in update["content"]
    ]
    assert convert(policy, update)[0] == [expected]
    assert [to_json(one) for one in downgrade(v2.read_update(update))] == expected


@pytest.mark.rule("V-2", "V-3", "V-4", "V-5", "V-6", "V-7")
@pytest.mark.parametrize("name", ["11-v2-to-v1-fan-out", "13-v2-to-v1-cannot-say"])
def test_the_reported_cases_convert_strictly_as_they_ask(case: Any, name: str) -> None:
    lines, expected = case(name)
    converter = Downgrader()
    for line, wanted in zip(lines, expected["results"], strict=True):
        result = converter.update(v2.read_params(json.loads(line)["params"]).update)
        if "v1" in wanted:
            assert same([to_json(one) for one in result.updates], wanted["v1"])
            assert result.losses == ()
        else:
            assert result.updates == ()
            assert len(result.losses) == 1


@pytest.mark.rule("V-3")
@pytest.mark.parametrize("before", [chunk("a"), whole([text("a")])])
def test_strictly_content_after_content_cannot_be_said(before: dict[str, Any]) -> None:
    sent, losses = convert(Policy.STRICT, before, whole([text("a"), text("b")]), chunk("c"))
    assert sent[1] == []
    assert [(loss.kind, loss.id, loss.path) for loss in losses[1]] == [("agent_message", "m", "$.content")]
    assert sent[2] == [chunk("c")], "later chunks are still carried (V-6)"


@pytest.mark.rule("V-4")
@pytest.mark.parametrize(
    ("update", "path"),
    [
        (whole(), "$"),
        (whole(_meta={"k": 1}), "$"),
        (whole(unknown=1), "$"),
        (whole(None), "$.content"),
        (whole([]), "$.content"),
        (whole([text("a")], _meta=None), "$._meta"),
    ],
)
def test_patches_and_clears_fail_strictly_with_kind_id_path_and_reason(update: dict[str, Any], path: str) -> None:
    with pytest.raises(Unrepresentable) as caught:
        downgrade(v2.read_update(update))
    error = caught.value
    assert (error.kind, error.id, error.path) == ("agent_message", "m", path)
    assert error.reason
    sent, losses = convert(Policy.STRICT, update)
    assert sent == [[]]
    assert [(loss.kind, loss.id, loss.path, loss.reason, loss.sent) for loss in losses[0]] == [
        (error.kind, error.id, error.path, error.reason, None)
    ]


@pytest.mark.rule("V-5")
def test_strict_is_the_default() -> None:
    assert Downgrader().policy is Policy.STRICT


@pytest.mark.rule("V-6")
@pytest.mark.parametrize("policy", POLICIES)
def test_a_failed_update_sends_nothing_and_counts_as_not_delivered(policy: Policy) -> None:
    bad = whole([text("first"), {"type": "_acme/card"}])
    sent, losses = convert(policy, bad, whole([text("second")]))
    assert sent[0] == []
    assert len(losses[0]) == 1
    assert sent[1] == [chunk("second")]


@pytest.mark.rule("V-7")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("block", "path"),
    [
        ({"type": "hologram"}, "$.content[1].type"),
        ({"type": "resource_link", "uri": "u", "name": "n", "icons": []}, "$.content[1].icons"),
    ],
)
def test_what_v1_has_no_shape_for_fails_with_its_path(policy: Policy, block: dict[str, Any], path: str) -> None:
    _, losses = convert(policy, whole([text("a"), block]))
    assert [loss.path for loss in losses[0]] == [path]
    _, losses = convert(policy, {**chunk(""), "content": block})
    assert [loss.path for loss in losses[0]] == [path.replace("[1]", "")]


@pytest.mark.rule("V-8")
@pytest.mark.parametrize("update", [whole([]), whole(None), whole()])
def test_marking_an_update_that_leaves_a_v1_reader_right_sends_nothing(update: dict[str, Any]) -> None:
    assert convert(Policy.MARK, update) == ([[]], [[]])
    sent, losses = convert(Policy.MARK, chunk("Fog "), chunk("lifts."), whole([text("Fog lifts."), text("")]))
    assert (sent[2], losses[2]) == ([], [])


@pytest.mark.rule("V-8")
def test_marking_content_that_extends_what_is_held_sends_the_rest() -> None:
    sent, losses = convert(Policy.MARK, chunk("Fog "), whole([text("Fog lif"), text("ts."), text(" Sail.")]))
    assert sent[1] == [chunk("lif"), chunk("ts."), chunk(" Sail.")]
    assert losses[1] == []


@pytest.mark.rule("V-8")
def test_a_correction_is_told_and_the_message_goes_on_under_a_new_id() -> None:
    sent, losses = convert(Policy.MARK, chunk("wrong"), whole([text("right")], _meta={"k": 1}), chunk("er"))
    mark, content = sent[1]
    assert mark["content"] == text(CORRECTED)
    assert "wrong" not in json.dumps(sent[1])
    assert mark["_meta"][SUPERSEDES] == "m"
    assert mark["messageId"] not in ("m", content["messageId"])
    assert content["messageId"] != "m"
    assert content["content"] == text("right")
    assert content["_meta"] == {"k": 1, SUPERSEDES: "m"}
    assert sent[2] == [{**chunk("er"), "messageId": content["messageId"]}]
    assert [(loss.kind, loss.id, loss.path, bool(loss.sent)) for loss in losses[1]] == [
        ("agent_message", "m", "$.content", True)
    ]


@pytest.mark.rule("V-8")
@pytest.mark.parametrize("clear", [None, []])
@pytest.mark.parametrize("kind", ["user_message", "agent_message", "agent_thought"])
def test_a_withdrawal_is_told_where_it_is_seen_and_later_text_is_a_new_message(clear: Any, kind: str) -> None:
    sent, losses = convert(
        Policy.MARK, chunk("secret", kind), whole(clear, kind), whole(clear, kind), chunk("new", kind)
    )
    (mark,) = sent[1]
    assert mark["sessionUpdate"] == "agent_message_chunk"
    assert mark["content"] == text(WITHDRAWN)
    assert len(losses[1]) == 1
    assert (sent[2], losses[2]) == ([], [])
    assert sent[3][0]["messageId"] != "m"


@pytest.mark.rule("V-8")
def test_a_lost_meta_is_a_record_without_a_mark() -> None:
    sent, losses = convert(
        Policy.MARK, chunk("a", _meta={"k": 1}), whole(_meta={"k": 2}), whole([text("ab")], _meta=None)
    )
    assert sent[1] == []
    assert [loss.path for loss in losses[1]] == ["$._meta"]
    assert sent[2] == [chunk("b")]
    assert [loss.path for loss in losses[2]] == ["$._meta"]


@pytest.mark.rule("V-8")
def test_clearing_a_meta_that_v1_never_had_loses_nothing() -> None:
    assert convert(Policy.MARK, whole([text("a")], _meta=None)) == ([[chunk("a")]], [[]])


@pytest.mark.rule("V-8")
def test_new_v1_ids_are_deterministic_and_never_those_of_another_message() -> None:
    stream = [
        chunk("x", message_id="m~2"),
        chunk("a"),
        whole([text("b")]),
        chunk("y", message_id="m~3"),
        whole([text("c")]),
    ]
    sent, _ = convert(Policy.MARK, *stream)
    assert convert(Policy.MARK, *stream)[0] == sent
    ids = [
        one["messageId"] for result in sent for one in result if one["content"]["text"] not in (CORRECTED, WITHDRAWN)
    ]
    assert len(set(ids)) == len(ids)


@pytest.mark.rule("V-8")
@pytest.mark.parametrize("name", ["v2-load", "v2-load-tools"])
def test_a_replay_that_opens_each_message_empty_gets_no_mark(name: str) -> None:
    whole_updates, sent, losses = captured(f"claude-agent-acp-0.101.0-{name}")
    assert whole_updates > 15
    assert not any(loss.kind.startswith(("user", "agent")) for loss in losses)
    assert not any(SUPERSEDES in (one.get("_meta") or {}) for one in sent)


@pytest.mark.rule("V-8", "V-9")
@pytest.mark.parametrize("name", ["load", "load-tools", "queued", "reject", "tools", "turns", "two-sessions"])
def test_marking_a_capture_shows_a_v1_reader_the_text_that_v2_holds(name: str, capture_lines: Any) -> None:
    _, sent, _ = captured(f"claude-agent-acp-0.101.0-v2-{name}")
    reader = PlainReader()
    for one in sent:
        if one["sessionUpdate"].endswith("message_chunk") or one["sessionUpdate"].endswith("thought_chunk"):
            reader.read(one)
    held: dict[tuple[str, str], str] = {}
    for line in capture_lines(f"claude-agent-acp-0.101.0-v2-{name}"):
        message = json.loads(json.loads(line)["line"])
        if message.get("method") == "session/update":
            transcript = TRANSCRIPTS.setdefault((name, message["params"]["sessionId"]), Transcript())
            transcript.apply(v2.read_params(message["params"]).update)
            held |= {(one.type, one.message_id): one.text for one in transcript.messages}
    shown = {key: "".join(block.get("text", "") for block in content) for key, content in reader.messages.items()}
    assert shown == {key: words for key, words in held.items() if words}


TRANSCRIPTS: dict[tuple[str, str], Transcript] = {}


def captured(name: str) -> tuple[int, list[dict[str, Any]], list[Loss]]:
    from tests.conftest import CAPTURES

    converters: dict[str, Downgrader] = {}
    count = 0
    sent: list[dict[str, Any]] = []
    losses: list[Loss] = []
    for line in (CAPTURES / f"{name}.jsonl").read_bytes().splitlines():
        message = json.loads(json.loads(line)["line"])
        if message.get("method") == "session/update":
            params = v2.read_params(message["params"])
            count += isinstance(params.update, v2.UserMessage | v2.AgentMessage | v2.AgentThought)
            result = converters.setdefault(params.session_id, Downgrader(policy=Policy.MARK)).update(params.update)
            sent += [to_json(one) for one in result.updates]
            losses += result.losses
    return count, sent, losses


@pytest.mark.rule("V-9")
@pytest.mark.parametrize("policy", POLICIES)
@given(stream=streams)
@example(stream=[whole([text("a")]), whole([text("b")]), whole([text("c")], message_id="m~2"), chunk("d")])
@example(stream=[chunk("a"), {**chunk(""), "content": {"type": "_acme/card", "title": "x"}}, whole([text("a")])])
def test_a_v1_reader_holds_what_a_v2_reader_holds_or_a_record_says_why_not(policy: Policy, stream: list[Any]) -> None:
    """Law V-9, both directions: what is carried is right, and whatever may be carried is carried."""
    converter, transcript, reader = Downgrader(policy=policy), Transcript(), PlainReader()
    diverged: set[tuple[str, str]] = set()
    delivered: dict[tuple[str, str], list[Any]] = {}
    for source in stream:
        update: Any = v2.read_update(source)
        kind = source["sessionUpdate"].removesuffix("_chunk")
        key = (kind, source["messageId"])
        held = joined(delivered.get(key, []))
        transcript.apply(update)
        result = converter.update(update)
        sent = [to_json(one) for one in result.updates]
        for one in sent:
            reader.read(one)
        _check_step(policy, source, held, sent, list(result.losses))

        v1_id = converter.v1_id(update)
        delivered[key] = reader.messages.get((kind, v1_id), []) if v1_id is not None else []
        message = transcript.message(kind, source["messageId"])
        assert message is not None
        now = joined([to_json(block) for block in message.content])
        if joined(delivered[key]) == now:
            diverged.discard(key)
        elif key not in diverged:
            assert any(
                loss.id == source["messageId"] and loss.kind == source["sessionUpdate"] for loss in result.losses
            )
            diverged.add(key)
    for session_message in transcript.messages:
        key = (session_message.type, session_message.message_id)
        if key not in diverged:
            assert joined(delivered[key]) == joined([to_json(block) for block in session_message.content])


def _check_step(policy: Policy, source: dict[str, Any], held: list[Any], sent: list[Any], losses: list[Loss]) -> None:
    """What the rules allow for this one update, said plainly."""
    carried = [one for one in sent if SUPERSEDES not in (one.get("_meta") or {})]
    if source["sessionUpdate"].endswith("_chunk"):
        if can_be_carried(source["content"]):
            assert [one["content"] for one in sent] == [source["content"]]  # V-1
            assert not losses
        else:
            assert not sent
            assert len(losses) == 1  # V-6, V-7
        return
    content = source.get("content", "omitted")
    blocks = content if isinstance(content, list) else []
    if not all(map(can_be_carried, blocks)) and (
        policy is Policy.MARK or (blocks and source.get("_meta", 0) is not None)
    ):
        assert not sent
        assert losses
        return
    if policy is Policy.STRICT:
        sayable = bool(blocks) and source.get("_meta", 0) is not None
        if sayable and not held:
            assert [one["content"] for one in sent] in (blocks, [])  # V-2; [] when only empty text was sent before
        else:
            assert not sent
            assert len(losses) == 1  # V-3, V-4: reported once
        return
    fresh = joined(blocks)
    if content == "omitted" or fresh == held:
        assert not carried or fresh == joined([one["content"] for one in carried])
        assert all(loss.path in ("$._meta", "$") for loss in losses)  # no mark
    elif not held or _extends(fresh, held):
        assert joined(_minus(fresh, held)) == joined([one["content"] for one in carried])
    else:
        assert sent[0]["content"]["text"] in (CORRECTED, WITHDRAWN)
        assert joined([one["content"] for one in sent[1:]]) == fresh
        assert losses


def _extends(fresh: list[Any], held: list[Any]) -> bool:
    return _minus(fresh, held) is not None


def _minus(fresh: list[Any], held: list[Any]) -> Any:
    """What ``fresh`` has beyond ``held``, ``None`` when it does not begin with it; both joined."""
    if not held:
        return fresh
    if fresh[: len(held) - 1] != held[:-1] or len(fresh) < len(held):
        return None
    last, other = held[-1], fresh[len(held) - 1]
    if last == other:
        return fresh[len(held) :]
    plain = set(last) == set(other) == {"type", "text"}
    if plain and other["text"].startswith(last["text"]):
        return [{"type": "text", "text": other["text"][len(last["text"]) :]}, *fresh[len(held) :]]
    return None


@given(update=updates())
def test_stateless_and_first_of_a_stream_agree(update: dict[str, Any]) -> None:
    typed = v2.read_update(update)
    result = Downgrader().update(typed)
    if not result.losses:
        assert list(downgrade(typed)) == list(result.updates)
        return
    with pytest.raises(Unrepresentable) as caught:
        downgrade(typed)
    assert [(loss.path, loss.reason) for loss in result.losses] == [(caught.value.path, caught.value.reason)]


@pytest.mark.rule("J-7")
@pytest.mark.parametrize("policy", POLICIES)
@given(stream=st.lists(updates(), max_size=6))
def test_no_loss_holds_content(policy: Policy, stream: list[Any]) -> None:
    planted = json.loads(
        json.dumps(stream).replace('"text": "', '"text": "SECRET').replace('"title": "', '"title": "SECRET')
    )
    _, losses = convert(policy, *planted)
    assert "SECRET" not in "".join(str(loss) for result in losses for loss in result)
