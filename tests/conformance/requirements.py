"""What the protocol's own test kit asks of an agent, version by version, in our words.

The ids are those of the kit (github.com/agentclientprotocol/acp-tck, the state of its draft of late September 2026),
without their prefix `ACP-`. A test names those it holds: `@pytest.mark.requirement("PROMPT-201")`. Where the kit is
older than the schema that the official SDK ships, the words here follow that schema, and say so.

What the kit calls informational, and only writes down, is decided in our specification, so a test holds our decision.
"""

from dataclasses import dataclass
from typing import Literal

Version = Literal[1, 2]


@dataclass(frozen=True)
class Requirement:
    """One requirement; `waived` says why no test holds it.

    `needs` is the place in the answer to a method that would have to hold something for the requirement to apply.
    """

    id: str
    version: Version
    words: str
    waived: str | None = None
    needs: tuple[str, ...] = ()


NOT_OFFERED = "applies to agents that offer it, and the examples do not"
NO_OPTIONS = "applies to agents with config options, and the examples have none"
NO_MODES = "applies to agents with modes, and the examples have none"
NO_LOGIN = "applies to agents with authentication methods, and the examples have none"
NO_BATCHES = "the newest schema knows single messages only: any array is refused whole, with one -32600 and the id null"
SENDER = "says what a sender may do; it gives a receiver nothing to be judged by"


def _v1(id: str, words: str, waived: str | None = None, needs: tuple[str, ...] = ()) -> Requirement:
    return Requirement(id, 1, words, waived, needs)


def _v2(id: str, words: str, waived: str | None = None, needs: tuple[str, ...] = ()) -> Requirement:
    return Requirement(id, 2, words, waived, needs)


V1 = (
    _v1("TRANSPORT-001", "Each line on standard output is one JSON-RPC 2.0 message; nothing else is written there."),
    _v1("TRANSPORT-002", "Standard output is UTF-8."),
    _v1("JSONRPC-001", "An answer repeats the id of its request as it was, be it an integer or a string."),
    _v1("JSONRPC-002", "An answer has a result or an error, not both; the error has an integer code and a message."),
    _v1("JSONRPC-003", "A notification is never answered."),
    _v1("JSONRPC-004", "A request with an unknown method is answered with -32601."),
    _v1("JSONRPC-005", "After a bad request the connection works as before."),
    _v1("INIT-001", "initialize succeeds with a valid result whose protocolVersion is an integer."),
    _v1("INIT-002", "A client that asks for version 1 gets version 1."),
    _v1("INIT-003", "A version far too high is not repeated: the answer is the highest that the agent has."),
    _v1("INIT-004", "agentInfo gives the agent's name and version."),
    _v1("SCHEMA-001", "All that the agent sends fits the schema."),
    _v1("SCHEMA-002", "No object of the protocol carries a field that the schema does not know, apart from _meta."),
    _v1("SESSION-001", "session/new with an absolute cwd and no MCP servers gives a session id that is not empty."),
    _v1("SESSION-002", "Two sessions have two ids."),
    _v1("PROMPT-001", "A prompt of text is answered with one of the known stop reasons."),
    _v1("PROMPT-002", "The updates of a turn fit the schema and name the session of the prompt."),
    _v1("PROMPT-003", "A prompt may hold a resource link beside its text."),
    _v1("CANCEL-001", "session/cancel makes the pending prompt succeed, with the stop reason cancelled."),
    _v1("CANCEL-002", "No update of a cancelled turn comes after the answer to its prompt."),
    _v1("LOAD-001", "session/load succeeds with a valid result."),
    _v1("LOAD-002", "All updates that session/load replays come before its answer, none after it."),
    _v1("LOAD-003", "The result of session/load is an object, not null."),
    _v1("RESUME-001", "session/resume succeeds with a valid result, MCP servers given or not."),
    _v1("RESUME-002", "session/resume replays no message before its answer."),
    _v1("LIST-001", "session/list with no filter gives a valid result with an array of sessions."),
    _v1("LIST-002", "session/list gives an empty array for a directory that no session is in."),
    _v1("DELETE-001", "session/delete of a session that exists succeeds with an empty object."),
    _v1("DELETE-002", "Deleting a session that is not there, or no longer, succeeds as well."),
    _v1("CLOSE-001", "session/close of an idle session succeeds with an empty object."),
    _v1("CLOSE-002", "session/close during a turn makes its prompt succeed, with the stop reason cancelled."),
    _v1("ADDDIRS-001", "session/new accepts an absolute additional directory."),
    _v1("MODES-001", "The current mode is one of the available ones.", NO_MODES, ("session/new", "modes")),
    _v1(
        "MODES-002",
        "session/set_mode succeeds, and an update about it names the mode in currentModeId.",
        NO_MODES,
        ("session/new", "modes"),
    ),
    _v1(
        "CONFIG-001",
        "The current value of each config option is one that its type allows.",
        NO_OPTIONS,
        ("session/new", "configOptions"),
    ),
    _v1(
        "CONFIG-002",
        "session/set_config_option gives the whole list of options, the new value in it.",
        NO_OPTIONS,
        ("session/new", "configOptions"),
    ),
    _v1("CONFIG-003", "A client that did not say that it knows boolean options is offered none."),
    _v1(
        "PROMPTCAP-001",
        "A prompt may hold an image, where the agent offers it.",
        NOT_OFFERED,
        ("initialize", "agentCapabilities", "promptCapabilities", "image"),
    ),
    _v1(
        "PROMPTCAP-002",
        "A prompt may hold audio, where the agent offers it.",
        NOT_OFFERED,
        ("initialize", "agentCapabilities", "promptCapabilities", "audio"),
    ),
    _v1(
        "PROMPTCAP-003",
        "A prompt may hold an embedded resource, where the agent offers it.",
        NOT_OFFERED,
        ("initialize", "agentCapabilities", "promptCapabilities", "embeddedContext"),
    ),
    _v1("AUTH-001", "No two authentication methods have one id."),
    _v1("AUTH-002", "A client that did not offer a terminal for it gets no authentication method that needs one."),
    _v1(
        "AUTH-003",
        "After authenticate succeeded, session/new does not ask for authentication.",
        NO_LOGIN,
        ("initialize", "authMethods"),
    ),
    _v1(
        "AUTH-004",
        "logout succeeds, where the agent offers it.",
        NOT_OFFERED,
        ("initialize", "agentCapabilities", "auth", "logout"),
    ),
    _v1("AUTH-005", "An agent without authentication methods does not ask for authentication."),
    _v1("CLIENTCAP-001", "The agent asks for no files of a client that did not offer them."),
    _v1("CLIENTCAP-002", "The agent asks for no terminal of a client that did not offer one."),
    _v1("CLIENTCAP-003", "The agent asks no questions of a client that did not offer to put them to the user."),
    _v1("EXT-001", "A request with an unknown method of an extension gets an answer."),
    _v1("META-001", "A prompt may carry _meta."),
    _v1("ERROR-001", "The message of an error is one line, and not empty."),
    _v1("SHUTDOWN-001", "The agent ends by itself when its input ends."),
    _v1("STDERR-001", "Only written down by the kit. Ours: an exchange without faults leaves standard error empty."),
    _v1("INFO-PARSE-001", "Only written down by the kit. Ours: bad JSON is answered with -32700 and the id null."),
    _v1("INFO-INVALIDREQ-001", "Only written down by the kit. Ours: JSON that is no message is answered with -32600."),
    _v1(
        "INFO-UNKNOWNSESSION-001",
        "Only written down by the kit. Ours: a prompt for an unknown session is answered with -32002.",
    ),
)

V2 = (
    _v2("INIT-001", "initialize succeeds."),
    _v2("INIT-201", "A client that asks for version 2 gets version 2, the agent having it."),
    _v2("INIT-003", "A version far too high is not repeated: the answer is the highest that the agent has."),
    _v2("INIT-202", "A client that asks for version 1 gets version 1, the agent having it; it is no error."),
    _v2("INIT-203", "info gives the agent's name and version, neither of them empty."),
    _v2("INIT-204", "Every capability is an object, absent or null, never a boolean."),
    _v2("SCHEMA-001", "All that the agent sends fits the schema."),
    _v2("SCHEMA-002", "No object of the protocol carries a field that the schema does not know, apart from _meta."),
    _v2("SESSION-001", "session/new with nothing but an absolute cwd gives a session id that is not empty."),
    _v2("SESSION-002", "Two sessions have two ids."),
    _v2("SESSION-203", "No list of MCP servers and an empty one are the same to session/new."),
    _v2("PROMPT-201", "A prompt is answered with the id of the message that was inserted, and no stop reason."),
    _v2("PROMPT-203", "The inserted message is reported under the id that the answer gave, before the turn is over."),
    _v2("PROMPT-205", "The updates of a turn fit the schema and name the session of the prompt."),
    _v2("PROMPT-003", "A prompt may hold a resource link beside its text."),
    _v2("STATE-201", "An idle state that ends a turn comes after a running one."),
    _v2("STATE-202", "A running state is followed by an idle one, in time."),
    _v2(
        "STATE-203",
        "The idle state that ends a turn gives a stop reason: a known one (in the newest schema, error is one too), "
        "or one that begins with an underscore.",
    ),
    _v2(
        "PROMPTCAP-001",
        "A prompt may hold an image, where the agent offers it.",
        NOT_OFFERED,
        ("initialize", "capabilities", "session", "prompt", "image"),
    ),
    _v2(
        "PROMPTCAP-002",
        "A prompt may hold audio, where the agent offers it.",
        NOT_OFFERED,
        ("initialize", "capabilities", "session", "prompt", "audio"),
    ),
    _v2(
        "PROMPTCAP-003",
        "A prompt may hold an embedded resource, where the agent offers it.",
        NOT_OFFERED,
        ("initialize", "capabilities", "session", "prompt", "embeddedContext"),
    ),
    _v2(
        "PERM-201",
        "A permission request has a title and at least one option with id, name and kind; answered, the turn goes on "
        "to its end.",
    ),
    _v2("CLIENTCAP-201", "The agent asks no questions of a client that did not offer to put them to the user."),
    _v2("CLIENTCAP-202", "The agent calls methods of a client and of the protocol only, and of extensions."),
    _v2(
        "INFO-CONCURRENT-201",
        "Only written down by the kit. Ours: a prompt sent during a turn is answered, and the session comes to rest.",
    ),
    _v2(
        "INFO-UNKNOWNSESSION-001",
        "Only written down by the kit. Ours: a prompt for an unknown session is answered with -32002, which names it.",
    ),
    _v2("CANCEL-201", "session/cancel during a turn leads to an idle state with the stop reason cancelled."),
    _v2("CANCEL-202", "After the idle state of a cancelled turn no state of that turn comes."),
    _v2("CANCEL-203", "A cancelled turn is no failure: its prompt gets no error, its end no other stop reason."),
    _v2(
        "CANCEL-204",
        "The agent stops its work as soon as it can. (Only written down by the kit. Ours: long before it is done.)",
    ),
    _v2("CANCEL-205", "session/cancel is a notification and gets no answer."),
    _v2("CANCEL-206", "session/cancel needs the session id only, and may carry _meta."),
    _v2("CANCEL-207", "The stop reason of a cancelled turn is the word cancelled, no word of the agent's own."),
    _v2("CANCEL-208", "session/close during a turn cancels it as session/cancel does."),
    _v2(
        "INFO-CANCEL-201",
        "Only written down by the kit. Ours: cancelling an idle or an unknown session has no effect at all.",
    ),
    _v2(
        "INFO-CANCEL-202",
        "Only written down by the kit. Ours: cancelling a turn withdraws its pending permission request.",
    ),
    _v2(
        "TRANSPORT-201",
        "Each line on standard output is one JSON-RPC 2.0 message. (The kit lets arrays pass; the newest schema does "
        "not.)",
    ),
    _v2("TRANSPORT-002", "Standard output is UTF-8."),
    _v2("TRANSPORT-203", "No message runs over the end of its line."),
    _v2("JSONRPC-001", "An answer repeats the id of its request as it was, be it an integer or a string."),
    _v2("JSONRPC-002", "An answer has a result or an error, not both; the error has an integer code and a message."),
    _v2("JSONRPC-003", "A notification is never answered."),
    _v2("JSONRPC-004", "A request with an unknown method is answered with -32601."),
    _v2("JSONRPC-005", "After a bad request, or an array, the connection works as before."),
    _v2("BATCH-201", "An empty array is answered with one error object, -32600 with the id null."),
    _v2("BATCH-202", "An array of notifications is not answered.", NO_BATCHES),
    _v2("BATCH-203", "Bad entries of an array get an error each, and the good ones are served.", NO_BATCHES),
    _v2("BATCH-204", "An array with a request in it is answered with one array of answers.", NO_BATCHES),
    _v2("BATCH-205", "Answers in an array are told apart by their ids, not by their order.", NO_BATCHES),
    _v2("BATCH-206", "The entries of an array may be served in any order.", f"{SENDER}; {NO_BATCHES}"),
    _v2("BATCH-207", "An agent may send arrays of updates.", f"{SENDER}; {NO_BATCHES}"),
    _v2("BATCH-208", "Messages about the life of a session should not be sent in arrays.", f"{SENDER}; {NO_BATCHES}"),
    _v2("INFO-BATCH-201", "Only written down by the kit. Ours: half an array is bad JSON, answered with -32700."),
    _v2(
        "INFO-BATCH-202",
        "Only written down by the kit. Ours: an array of calls and answers is refused whole, as any array is.",
    ),
    _v2("RESUME-201", "session/resume without a cursor succeeds with a valid result."),
    _v2("RESUME-202", "All updates that session/resume replays come before its answer, none after it."),
    _v2("RESUME-203", "session/resume without a cursor, or with null, replays no message."),
    _v2("RESUME-204", "A prompt's message is replayed under the id that the answer to the prompt gave."),
    _v2("RESUME-205", "In a replay, chunks of a message come after a whole message with empty content for its id."),
    _v2("LIST-201", "session/list with no filter gives a valid result with an array of sessions."),
    _v2("LIST-202", "session/list gives an empty array for a directory that no session is in."),
    _v2("LIST-203", "session/list gives the sessions of the asked directory only."),
    _v2("LIST-204", "The directories of listed sessions are absolute."),
    _v2("CLOSE-201", "session/close of an idle session succeeds with an empty object."),
    _v2("CLOSE-202", "session/close during a turn cancels it first: the idle state says so."),
    _v2("DELETE-201", "session/delete of a session that exists succeeds with an empty object."),
    _v2("DELETE-202", "A deleted session is listed no more."),
    _v2("DELETE-203", "Deleting a session that is not there, or no longer, succeeds as well."),
    _v2("ADDDIRS-201", "session/new accepts an absolute additional directory."),
    _v2("ADDDIRS-202", "session/resume accepts an absolute additional directory."),
    _v2(
        "MCP-201",
        "Only written down by the kit: what session/new does with an MCP server to be run as a command.",
        NOT_OFFERED,
        ("initialize", "capabilities", "session", "mcp", "stdio"),
    ),
    _v2(
        "MCP-202",
        "Only written down by the kit: what session/new does with an MCP server to be reached over HTTP.",
        NOT_OFFERED,
        ("initialize", "capabilities", "session", "mcp", "http"),
    ),
    _v2(
        "CONFIG-201",
        "Each config option has an id, a name and what its type asks for.",
        NO_OPTIONS,
        ("session/new", "configOptions"),
    ),
    _v2(
        "CONFIG-202",
        "session/set_config_option gives the whole list of options.",
        NO_OPTIONS,
        ("session/new", "configOptions"),
    ),
    _v2(
        "CONFIG-203",
        "The config options that session/resume gives are as well formed.",
        NO_OPTIONS,
        ("session/resume", "configOptions"),
    ),
    _v2(
        "CONFIG-204",
        "The current value of an option to select from is one of its values.",
        NO_OPTIONS,
        ("session/new", "configOptions"),
    ),
    _v2(
        "CONFIG-206",
        "An update of the config options holds all of them.",
        NO_OPTIONS,
        ("session/new", "configOptions"),
    ),
    _v2("AUTH-201", "No two authentication methods have one id."),
    _v2("AUTH-202", "A client that did not offer a terminal for it gets no authentication method that needs one."),
    _v2("AUTH-203", "auth/logout succeeds.", NO_LOGIN, ("initialize", "authMethods")),
    _v2(
        "AUTH-204",
        "auth/login is there, and after it session/new does not ask for authentication.",
        NO_LOGIN,
        ("initialize", "authMethods"),
    ),
    _v2("AUTH-205", "An agent without authentication methods does not ask for authentication."),
    _v2("AUTH-206", "The type of an authentication method is a known one, or begins with an underscore."),
    _v2(
        "AUTH-207",
        "The arguments and the environment of a terminal method are well formed, no name in it twice.",
        NO_LOGIN,
        ("initialize", "authMethods"),
    ),
    _v2("PATCH-201", "Every update of a message has a message id that is not empty."),
    _v2("PATCH-203", "Two prompts, though alike, get two message ids."),
    _v2("PATCH-204", "Every update of a tool call has its id, and every chunk of one its content."),
    _v2("PATCH-205", "Every plan has an id."),
    _v2("PATCH-206", "The directory of a terminal is absolute, and stays."),
    _v2("PATCH-207", "Each piece of a terminal's output is base64 by itself."),
    _v2("PATCH-208", "The first update of a tool call gives its title; its name does not change."),
    _v2("PATCH-209", "While the work waits for a permission the state is requires_action, after it running again."),
    _v2("ENUM-201", "Kinds and statuses of tool calls and plan entries are known, or begin with an underscore."),
    _v2("ENUM-202", "So are kinds of updates, states, and types of a tool call's content."),
    _v2("ENUM-203", "An unknown outcome of a permission request, named with an underscore, does not harm the turn."),
    _v2("EXT-001", "A request with an unknown method of an extension gets an answer."),
    _v2("EXT-201", "A notification with an unknown method of an extension is ignored."),
    _v2("EXT-202", "Extensions are announced in the _meta of the capabilities, not beside the known ones."),
    _v2("EXT-203", "Only written down by the kit. Ours: unknown notifications of the protocol itself are ignored."),
    _v2("META-001", "A prompt may carry _meta."),
    _v2("META-201", "Every _meta is an object or null."),
    _v2("ERROR-001", "The message of an error is one line, and not empty."),
    _v2("SHUTDOWN-001", "The agent ends by itself when its input ends."),
    _v2("STDERR-001", "Only written down by the kit. Ours: an exchange without faults leaves standard error empty."),
    _v2("INFO-PARSE-001", "Only written down by the kit. Ours: bad JSON is answered with -32700 and the id null."),
    _v2("INFO-INVALIDREQ-001", "Only written down by the kit. Ours: JSON that is no message is answered with -32600."),
)

REQUIREMENTS = V1 + V2
