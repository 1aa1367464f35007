"""The tables of the handshake in the guides are what the runtime and the bridge do."""

import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT
from twofold.bridge import _bridge
from twofold.exceptions import RequestError
from twofold.runtime import _versions
from twofold.runtime._versions import choose


def rows(page: str, heading: str) -> Iterator[list[str]]:
    """Give the cells of the table under a heading, row by row."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(f"\n### {heading}\n")[2]
    _, _, *lines = re.findall(r"^\|(.*)\|$", text.partition("\n## ")[0], re.MULTILINE)
    for line in lines:
        yield [cell.strip() for cell in line.split("|")]


def numbers(cell: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", cell)]


def test_an_agent_answers_as_its_table_says() -> None:
    found = list(rows("write-an-agent.md", "The handshake"))
    assert len(found) == 5
    for asked, offered, answer in found:
        versions = [numbers(asked)[0], 7] if "or more" in asked else numbers(asked)
        for version in versions:
            for offers in [numbers(offered)] if numbers(offered) else [[1], [2], [1, 2]]:
                if answer.startswith("error"):
                    with pytest.raises(RequestError) as raised:
                        choose(version, offers)
                    assert raised.value.code == -numbers(answer)[0]
                else:
                    assert choose(version, offers) == int(answer)


def test_the_guide_for_clients_has_the_table_that_the_code_was_written_by() -> None:
    table = str(_versions.__doc__).partition("A client asks")[2]
    said = " ".join(re.sub(r"[=`]", "", table).split())
    for answer, does in rows("write-a-client.md", "The handshake"):
        assert answer.replace("`", "") in said
        assert does.partition(":")[0] in said


def test_the_page_on_the_bridge_has_the_table_that_the_code_was_written_by() -> None:
    lines = str(_bridge.__doc__).split("\n")
    first, second = (number for number, line in enumerate(lines) if line.startswith("=====") and lines[number - 1])
    written = [
        [cell.strip().replace("`", "") for cell in line.split("  ") if cell] for line in lines[first + 1 : second]
    ]
    text = (ROOT / "docs" / "bridge.md").read_text(encoding="utf-8").partition("\n## Which version is asked\n")[2]
    _, _, *shown = re.findall(r"^\|(.*)\|$", text.partition("\n## ")[0], re.MULTILINE)
    assert [[cell.strip().replace("`", "") for cell in line.split("|")] for line in shown] == written
