"""Makes `format-N.db` and the JSON beside it: `python -m tests.journal.files.make`, once for each format.

A file that a release wrote is kept as it is: this is not to be run again for an older format.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.journal.stored import Session, call, chunk, raw, terminal, text, whole
from twofold.journal import Journal
from twofold.journal.sqlite import MIGRATIONS, SQLiteJournal

FOLDER = Path(__file__).parent
LONE = "a session\ud83d"


def fill(journal: Journal) -> None:
    """Put something of everything into a journal."""
    session = Session(journal, "everything")
    session.append(whole("u1", text("What is in the box?"), type="user_message", _meta={"from": "the user"}))
    session.append(*(chunk("m1", word) for word in ("It ", "is ", "empty", ".")))
    session.append(chunk("m1", {"type": "hologram", "future": [1, None]}, future={"kept": True}))
    session.append(call(title="Look", kind="read", rawInput={"path": "/box"}, status="in_progress"))
    session.append(call(status="completed", content=[{"type": "content", "content": text("nothing")}]))
    session.append(terminal(command="ls", output={"data": "AAEC"}))
    session.append({"sessionUpdate": "_acme.dev/ping", "n": 1})
    session.append(chunk("m2", "withdrawn"), chunk("m2", "withdrawn"))
    session.append(whole("m2", content=None))
    session.append(whole("m1", text("It is full.")))
    journal.redact("everything", "terminal", "t1")

    session = Session(journal, "replayed")
    session.append(chunk("m1", "old"), chunk("m2", "not replayed"))
    session.replay(chunk("m1", "new"))
    session.replay(chunk("m1", "failed"), ok=False)

    journal.set_revision("compacted", "preview")
    session = Session(journal, "compacted")
    for number in range(30):
        session.append(chunk(f"m{number % 3}", f"{number} "))
    journal.compact("compacted")
    session.append(chunk("m0", "after", _meta={"a": 1}), whole("m1", _meta={"k": 1}), whole("m1", _meta={"l": 2}))

    journal.append(LONE, 0, raw(chunk("\udc00", "half \ud83d")), origin="v1", received_at=1e9)


def folded(journal: Journal) -> dict[str, Any]:
    """What is in a journal, as JSON values."""
    state: dict[str, Any] = {}
    for one in sorted(journal.sessions(), key=lambda info: info.session):
        loaded = journal.load(one.session)
        state[one.session] = {
            "transcript": loaded.transcript.to_json(),
            "revision": one.revision,
            "notReplayed": [list(thing) for thing in loaded.not_replayed],
            "records": [
                [record.position, record.origin, record.form, record.raw.decode()]
                for record in journal.read(one.session)
            ],
        }
    return state


if __name__ == "__main__":
    name = FOLDER / f"format-{len(MIGRATIONS)}"
    name.with_suffix(".db").unlink(missing_ok=True)
    with SQLiteJournal(name.with_suffix(".db")) as journal:
        fill(journal)
        state = folded(journal)
    name.with_suffix(".json").write_text(json.dumps(state, indent=1) + "\n")
