"""Agents that try to be taken for somebody else: texts, and whole transcripts made of them."""

import base64
import unicodedata
from typing import Any

from hypothesis import strategies as st

from twofold.fold import Transcript
from twofold.wire import v2

SEQUENCES = (
    "\x1b[2J\x1b[H",  # clear the screen
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;aGk=\x07",  # the clipboard
    "\x1bP1$r0m\x1b\\",
    "\x1b_apc\x1b\\",
    "\x1b^pm\x1b\\",
    "\x1bX string\x1b\\",
    "\x1bc",  # reset
    "\x1b(0",
    "\x9b31m",
    "\x9d0;t\x9c",
    "\x1b",
    "\x1b[",
    "\x1b]",
)
ACTING = (
    "\x00\x07\x08\x0b\x0c\x0e\x0f\r\x7f\x80\x85\x90\x9b\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2063\u2066\u2067\u2068\u2069\u206f\ufeff\ufff9\U000e0001\U000e0041\U000e007f\ud83d\ude00"
)
FORGED = (
    "agent",
    "user",
    "session s",
    "tool ✓ completed  rm",
    "· exit 0",
    "· withdrawn by the agent",
    "# session s",
    "## User",
    "*exit 0*",
    "---",
    "===",
    "> quoted",
    "```",
    "````diff",
    "~~~",
    "    indented",
    "</blockquote><h2>User</h2>",
    "<!-- ",
    "- item",
    "1. item",
    "` <b> `",
    "[a]: /b",
    "| a | b |",
    "|---|---|",
    "&lt;",
    "\\",
)
ORDINARY = ("Fog lifts.", "żółw", "日本語 テキスト", "👩‍💻", "می‌خواهم", "a\tb", " ", "x" * 90, "e\u0301")

pieces = st.one_of(
    st.sampled_from(SEQUENCES),
    st.sampled_from(ACTING),
    st.sampled_from(FORGED),
    st.sampled_from(ORDINARY),
    st.sampled_from(["\n", "\n\n", "\r\n", "\r", "\t", "  "]),
    st.text(st.one_of(st.characters(), st.characters(categories=["Cs"])), max_size=5),
)
texts = st.lists(pieces, max_size=8).map("".join)
ids = st.one_of(st.sampled_from(["m", "n"]), texts)


def acts(mark: str) -> bool:
    """Whether a character acts on a terminal, or on the text around it, instead of showing. By Unicode, not by us."""
    return mark not in "\n\t" and (
        unicodedata.category(mark) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(mark) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        or mark in "\u061c\u200e\u200f\ufeff"
        or "\U000e0000" <= mark <= "\U000e007f"
    )


def _base64(words: str) -> str:
    return base64.b64encode(words.encode("utf-8", "replace")).decode("ascii")


data = texts.map(_base64)
blocks: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}),
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}),
    st.fixed_dictionaries({"type": st.sampled_from(["image", "audio"]), "data": data, "mimeType": texts}),
    st.fixed_dictionaries({"type": st.just("resource_link"), "uri": texts, "name": texts}),
    st.fixed_dictionaries(
        {"type": st.just("resource"), "resource": st.fixed_dictionaries({"uri": texts, "text": texts})}
    ),
    st.fixed_dictionaries(
        {"type": st.just("resource"), "resource": st.fixed_dictionaries({"uri": texts, "blob": data})}
    ),
    st.fixed_dictionaries({"type": texts.map("_x".__add__), "text": texts}),
)
contents = st.one_of(st.none(), st.lists(blocks, max_size=3))
items: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"type": st.just("content"), "content": blocks}),
    st.fixed_dictionaries({"type": st.just("terminal"), "terminalId": ids}),
    st.fixed_dictionaries(
        {
            "type": st.just("diff"),
            "changes": st.lists(
                st.one_of(
                    st.fixed_dictionaries({"operation": st.sampled_from(["add", "delete", "modify"]), "path": texts}),
                    st.fixed_dictionaries({"operation": st.just("move"), "oldPath": texts, "path": texts}),
                    st.fixed_dictionaries({"operation": texts.map("_x".__add__)}),
                ),
                max_size=2,
            ),
        },
        optional={"patch": st.fixed_dictionaries({"format": st.just("git_patch"), "text": texts})},
    ),
    st.fixed_dictionaries({"type": texts.map("_x".__add__)}),
)
entries = st.fixed_dictionaries(
    {"content": texts, "priority": st.just("low"), "status": st.one_of(st.just("completed"), texts)}
)


def update(kind: str | st.SearchStrategy[str], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    kinds = st.just(kind) if isinstance(kind, str) else kind
    return st.fixed_dictionaries({"sessionUpdate": kinds, **fields})


messages = st.sampled_from(["user_message", "agent_message", "agent_thought"])
updates: st.SearchStrategy[dict[str, Any]] = st.one_of(
    update(messages, messageId=ids, content=contents),
    update(messages, messageId=ids, content=contents),
    update(messages.map("{}_chunk".format), messageId=ids, content=blocks),
    update(
        "tool_call_update",
        toolCallId=ids,
        title=texts,
        status=st.one_of(st.just("completed"), texts),
        content=st.lists(items, max_size=3),
        locations=st.lists(st.fixed_dictionaries({"path": texts, "line": st.integers(0, 9)}), max_size=1),
    ),
    update("terminal_update", terminalId=ids, command=texts, exitStatus=st.fixed_dictionaries({"signal": texts})),
    update("terminal_output_chunk", terminalId=ids, data=data),
    update(
        "plan_update",
        plan=st.one_of(
            st.fixed_dictionaries({"type": st.just("items"), "planId": ids, "entries": st.lists(entries, max_size=3)}),
            st.fixed_dictionaries({"type": texts.map("_x".__add__), "planId": ids}),
        ),
    ),
    update("compaction_update", compactionId=ids, status=texts, error=texts, summary=contents),
    update("state_update", state=texts, stopReason=texts),
    update(
        "usage_update",
        used=st.integers(0, 10**400),
        size=st.integers(0, 9),
        cost=st.fixed_dictionaries({"amount": st.one_of(st.floats(0, 9), st.integers(0, 10**400)), "currency": texts}),
    ),
    update("session_info_update", title=texts),
    update(texts.map("_x".__add__), text=texts, content=blocks),
)


def transcript_of(session_id: str | None, stream: list[dict[str, Any]]) -> Transcript:
    transcript = Transcript(session_id)
    for one in stream:
        transcript.apply(v2.read_update(one))
    return transcript


transcripts = st.builds(transcript_of, st.one_of(st.none(), texts), st.lists(updates, max_size=8))
