"""Generated streams of v2 message updates, and a v1 reader as plain as can be."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TYPES = ("user_message", "agent_message", "agent_thought")

texts = st.text(alphabet="ab \n", max_size=3)
plain = st.builds(lambda text: {"type": "text", "text": text}, texts)
blocks = st.one_of(
    plain,
    plain,
    plain,
    st.builds(lambda text: {"type": "text", "text": text, "annotations": {"priority": 1}}, texts),
    st.builds(lambda name: {"type": "resource_link", "uri": "file:///x", "name": name}, texts),
    st.just({"type": "image", "data": "AAAA", "mimeType": "image/png", "unknown": True}),
)
uncarried = st.sampled_from(
    [
        {"type": "_acme/card", "title": "x"},
        {"type": "resource_link", "uri": "file:///x", "name": "n", "icons": [{"src": "file:///i"}]},
    ]
)
any_block = st.one_of(blocks, blocks, blocks, blocks, blocks, uncarried)
metas = st.sampled_from([{}, {"k": 1}, {"k": True, "l": None}])


@st.composite
def updates(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(TYPES))
    update: dict[str, Any] = {"messageId": draw(st.sampled_from(["m", "n", "m~2", "m-mark"]))}
    if draw(st.booleans()):
        update |= {"sessionUpdate": f"{kind}_chunk", "content": draw(any_block)}
    else:
        update["sessionUpdate"] = kind
        content = draw(st.one_of(st.just("omitted"), st.none(), st.lists(any_block, max_size=4)))
        if content != "omitted":
            update["content"] = content
    meta = draw(st.one_of(st.just("omitted"), st.just("omitted"), st.none(), metas))
    if meta != "omitted":
        update["_meta"] = meta
    if draw(st.integers(0, 9)) == 0:
        update["unknownField"] = draw(st.sampled_from([1, True, {"a": None}]))
    return update


streams = st.lists(updates(), max_size=14)


def can_be_carried(block: dict[str, Any]) -> bool:
    return not block["type"].startswith("_") and "icons" not in block


def joined(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring plain text as one block; text of no length is no content (P-3)."""
    result: list[dict[str, Any]] = []
    for block in content:
        if set(block) == {"type", "text"}:
            if not block["text"]:
                continue
            if result and set(result[-1]) == {"type", "text"}:
                result[-1] = {"type": "text", "text": result[-1]["text"] + block["text"]}
                continue
        result.append(block)
    return result


class PlainReader:
    """A v1 client: chunks of one type with one id are one message."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def read(self, update: dict[str, Any]) -> None:
        kind = update["sessionUpdate"].removesuffix("_chunk")
        self.messages.setdefault((kind, update["messageId"]), []).append(update["content"])
