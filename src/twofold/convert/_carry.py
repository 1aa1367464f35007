"""The table: what v1 can carry of each v2 update, field by field and state by state, and why not.

The converter takes its reasons from here and nowhere else; the page "Serving v1 clients" is drawn from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["CARRY", "Carry", "Rule", "reason"]

Carry: TypeAlias = Literal["yes", "when", "no"]


class Rule(Struct, frozen=True, gc=False):
    """One cell of the table.

    ``carry`` says whether v1 can say it (``when``: under the condition in ``strict``), ``strict`` and ``mark`` what
    each policy does, ``reason`` the sentence of the error or loss record where it cannot be said, ``clause`` the rule.
    """

    key: str
    update: str
    field: str
    state: str
    carry: Carry
    strict: str
    mark: str = "the same"
    reason: str = ""
    clause: str = ""


_CHUNK: Final = "user_message_chunk, agent_message_chunk, agent_thought_chunk"
_WHOLE: Final = "user_message, agent_message, agent_thought"
_TOOL: Final = "tool_call_update"

CARRY: Final[Sequence[Rule]] = (
    # Messages (V-1 … V-8)
    Rule(
        "chunk",
        _CHUNK,
        "(all)",
        "value",
        "yes",
        "the v1 chunk of the same type: same messageId, content, _meta",
        clause="V-1",
    ),
    Rule(
        "message.content.value",
        _WHOLE,
        "content",
        "value, no content sent before",
        "yes",
        "one v1 chunk per block, in order, with the same messageId; a concrete _meta on each",
        clause="V-2, RFD step 5",
    ),
    Rule(
        "message.content.replaced",
        _WHOLE,
        "content",
        "value, content sent before",
        "no",
        "fails",
        "content that extends what is held: the rest is sent; else a visible mark, then the content under a new id",
        "content was sent to the v1 client before, and v1 cannot replace it",
        "V-3, V-8",
    ),
    Rule(
        "message.content.omitted",
        _WHOLE,
        "content",
        "omitted",
        "no",
        "fails",
        "nothing is sent; a _meta or unknown field in it is a loss record",
        "the update has no content, and v1 has chunks only",
        "V-4, V-8",
    ),
    Rule(
        "message.content.null",
        _WHOLE,
        "content",
        "null",
        "no",
        "fails",
        "nothing was sent before: nothing is sent; else a visible mark that the message was withdrawn",
        "the update clears the content with null, and v1 cannot take content back",
        "V-4, V-8",
    ),
    Rule(
        "message.content.empty",
        _WHOLE,
        "content",
        "[]",
        "no",
        "fails",
        "nothing was sent before: nothing is sent; else a visible mark that the message was withdrawn",
        "the update clears the content with an empty array, and v1 cannot take content back",
        "V-4, V-8",
    ),
    Rule(
        "message.meta.null",
        _WHOLE,
        "_meta",
        "null",
        "no",
        "fails",
        "the rest is carried; a loss record if v1 was sent a _meta before",
        "the update clears _meta, and v1 cannot clear it",
        "V-4, V-8",
    ),
    Rule(
        "message.meta.alone",
        _WHOLE,
        "_meta",
        "value, without content to send",
        "no",
        "fails (no content)",
        "a loss record",
        "_meta has no chunk to stand on",
        "V-4, V-8",
    ),
    Rule(
        "message.extra.alone",
        _WHOLE,
        "(unknown fields)",
        "value, without content to send",
        "no",
        "fails (no content)",
        "a loss record",
        "unknown fields have no chunk to stand on",
        "V-4, V-8",
    ),
    # Content blocks, wherever they stand (V-7)
    Rule(
        "block",
        "(any)",
        "content block",
        "text, image, audio, resource_link, resource",
        "yes",
        "the same block, unknown extras too",
        clause="V-7",
    ),
    Rule(
        "block.unknown",
        "(any)",
        "content block",
        "unknown type",
        "no",
        "the whole update fails",
        "a message fails; a tool call is carried without the item, which is a loss record",
        "v1 has no content block of this type",
        "V-7",
    ),
    Rule(
        "block.icons",
        "(any)",
        "resource_link.icons",
        "null, value",
        "no",
        "the whole update fails",
        "a message fails; a tool call is carried without the item, which is a loss record",
        "v1 has no icons on a resource_link",
        "V-7",
    ),
    # Tool calls
    Rule(
        "tool.first",
        _TOOL,
        "(all)",
        "first sight",
        "yes",
        "v1 tool_call; later ones become v1 tool_call_update with the fields given",
    ),
    Rule(
        "tool.title.first",
        _TOOL,
        "title",
        "omitted or null at first sight",
        "when",
        "v1 needs a title: the tool's name, else the words “Tool call”; a loss record says so",
        reason="v1 needs a title for a new tool call, and this one has none",
    ),
    Rule(
        "tool.scalar.null",
        _TOOL,
        "name, title, rawInput, rawOutput, _meta",
        "null, a value held",
        "no",
        "the whole update fails",
        "the rest is carried; a loss record",
        "the update clears the field, and v1 cannot clear it",
    ),
    Rule(
        "tool.scalar.null.unheld",
        _TOOL,
        "name, title, rawInput, rawOutput, _meta",
        "null, nothing held",
        "yes",
        "left out: there is nothing to clear",
    ),
    Rule(
        "tool.reset",
        _TOOL,
        "kind, status",
        "null, another value than the default held",
        "no",
        "the whole update fails",
        "carried as the default (other, pending)",
        "the update resets the field with null, and v1 has no reset",
    ),
    Rule(
        "tool.kind.word",
        _TOOL,
        "kind",
        "a word v1 does not have",
        "no",
        "the whole update fails",
        "carried as other; a loss record",
        "v1 has no tool kind of this name",
        "V-7",
    ),
    Rule(
        "tool.status.word",
        _TOOL,
        "status",
        "paused, cancelled, a word v1 does not have",
        "no",
        "the whole update fails",
        "paused is carried as in_progress, cancelled as failed, others not; a loss record",
        "v1 has no tool status of this name",
        "V-7",
    ),
    Rule("tool.collection.null", _TOOL, "content, locations", "null, []", "yes", "an empty array"),
    Rule("tool.content", _TOOL, "content", "value", "yes", "the array, item by item as below"),
    Rule(
        "tool.item.diff",
        _TOOL,
        "content: diff",
        "whole old and new text known (an added file; a patch that spans its file and says so)",
        "yes",
        "a v1 diff",
    ),
    Rule(
        "tool.item.patch",
        _TOOL,
        "content: diff",
        "otherwise",
        "when",
        "text with the patch, or with the list of changes; a loss record",
        reason="a v1 diff needs the whole old and new text, and this diff does not hold them",
    ),
    Rule(
        "tool.item.terminal",
        _TOOL,
        "content: terminal",
        "value",
        "when",
        "text: the command, the output without control sequences, how it ended; never a v1 terminal; a loss record",
        reason="a v1 terminal is the client's own: the agent's is shown as text",
    ),
    Rule(
        "tool.item.unknown",
        _TOOL,
        "content",
        "an item of unknown type",
        "no",
        "the whole update fails",
        "the rest is carried; a loss record",
        "v1 has no tool call content of this type",
        "V-7",
    ),
    Rule(
        "tool.capabilities",
        _TOOL,
        "capabilities",
        "value",
        "no",
        "the whole update fails",
        "the rest is carried; a loss record",
        "v1 tool calls have no capabilities",
        "V-7",
    ),
    Rule(
        "tool.chunk",
        "tool_call_content_chunk",
        "(all)",
        "value",
        "yes",
        "the array so far, again whole: when it has grown by half, with the next status, or at a flush",
    ),
    Rule(
        "tool.chunk.alone",
        "tool_call_content_chunk",
        "(all)",
        "one update by itself",
        "no",
        "fails: only what remembers the array so far can send it",
        reason="v1 lists replace, and one chunk by itself is not the list",
    ),
    Rule(
        "tool.chunk.meta",
        "tool_call_content_chunk",
        "_meta, (unknown fields)",
        "value",
        "no",
        "a loss record",
        reason="the chunk becomes part of an array in v1, and its own fields have no place there",
    ),
    # Terminals
    Rule(
        "terminal",
        "terminal_update, terminal_output_chunk",
        "command, output, exitStatus",
        "value, null",
        "when",
        "text in the tool calls that show the terminal, sent like their content chunks",
        reason="v1 has no terminals of the agent's, and no tool call shows this one",
    ),
    Rule(
        "terminal.fields",
        "terminal_update, terminal_output_chunk",
        "cwd, size, capabilities, _meta, (unknown fields)",
        "value",
        "no",
        "a loss record",
        reason="v1 has no terminals of the agent's, and the field is no text to show",
    ),
    # The rest of the session
    Rule("plan", "plan_update", "plan: items", "the first plan", "yes", "v1 plan; its planId is left out"),
    Rule(
        "plan.second",
        "plan_update",
        "plan: items",
        "a second plan",
        "no",
        "fails",
        "one v1 plan with the entries of all plans, in order of first sight; a loss record",
        "v1 has one plan a session, and this is another one",
    ),
    Rule(
        "plan.unknown",
        "plan_update",
        "plan",
        "unknown type",
        "no",
        "fails",
        reason="v1 has no plan of this type",
        clause="V-7",
    ),
    Rule(
        "plan.entry.word",
        "plan_update",
        "entries: priority, status",
        "cancelled, a word v1 does not have",
        "no",
        "fails",
        "an unknown priority becomes medium; an entry with a cancelled or unknown status is left out; a loss record",
        "v1 has no priority or status of this name",
        "V-7",
    ),
    Rule(
        "plan.meta",
        "plan_update",
        "plan._meta",
        "value",
        "no",
        "fails",
        "the rest is carried; a loss record",
        "v1 has one _meta for a plan, and this is a second one",
    ),
    Rule(
        "state",
        "state_update",
        "(all)",
        "value",
        "when",
        "no update: the answer to the prompt says it, which is for whoever holds the connection",
        reason="v1 has no state update: the answer to the prompt says it",
    ),
    Rule("usage", "usage_update", "used, size, cost", "value", "yes", "the same"),
    Rule(
        "usage.cost.null",
        "usage_update",
        "cost",
        "null, a value held",
        "no",
        "fails",
        "the rest is carried; a loss record",
        "the update clears the cost, and v1 cannot clear it",
    ),
    Rule("info", "session_info_update", "title, updatedAt, _meta", "omitted, null, value", "yes", "the same"),
    Rule("commands", "available_commands_update", "availableCommands", "command", "yes", "the same without type"),
    Rule(
        "commands.unknown",
        "available_commands_update",
        "availableCommands",
        "a command or input of unknown type",
        "no",
        "fails",
        "the others are carried; a loss record",
        "v1 has no command of this type",
        "V-7",
    ),
    Rule(
        "config",
        "config_option_update",
        "configOptions",
        "select, boolean",
        "yes",
        "the same with id for configId, group for groupId",
    ),
    Rule(
        "config.unknown",
        "config_option_update",
        "configOptions",
        "an option of unknown type",
        "no",
        "fails",
        "the others are carried; a loss record",
        "v1 has no configuration option of this type",
        "V-7",
    ),
    Rule("notice", "notice", "(all)", "value", "no", "fails", reason="v1 clients know no notices unless they said so"),
    Rule(
        "compaction",
        "compaction_update, compaction_summary_chunk",
        "(all)",
        "value",
        "no",
        "fails",
        reason="v1 clients know no compactions unless they said so",
    ),
    Rule("unknown", "(unknown)", "(all)", "value", "no", "fails", reason="v1 has no update of this kind", clause="V-7"),
)

_REASONS: Final = {rule.key: rule.reason for rule in CARRY}


def reason(key: str) -> str:
    """Give the sentence for a cell of the table that v1 cannot say."""
    return _REASONS[key]
