"""Files that earlier versions wrote still open, and hold what they held."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.journal.files.make import FOLDER, fill, folded
from tests.journal.stored import Session, chunk
from twofold.journal.sqlite import MIGRATIONS, SQLiteJournal

FILES = sorted(FOLDER.glob("format-*.db"))


def test_a_file_of_every_format_is_kept() -> None:
    assert {file.name for file in FILES} == {f"format-{number}.db" for number in range(1, len(MIGRATIONS) + 1)}


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_file_of_an_earlier_version_opens_and_folds_to_what_it_did(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / file.name
    shutil.copyfile(file, copy)
    copy.chmod(0o600)
    with SQLiteJournal(copy) as journal:
        assert folded(journal) == json.loads(file.with_suffix(".json").read_text())
        assert journal.verify().faults == ()
        for session in journal.sessions():
            Session(journal, session.session).append(chunk("new", "goes on"))
    with SQLiteJournal(copy) as journal:
        assert all(journal.load(one.session).transcript.messages[-1].text == "goes on" for one in journal.sessions())


def test_this_version_writes_what_the_kept_file_of_its_format_holds(tmp_path: Path) -> None:
    with SQLiteJournal(tmp_path / "j.db") as journal:
        fill(journal)
        assert folded(journal) == json.loads((FOLDER / f"format-{len(MIGRATIONS)}.json").read_text())
