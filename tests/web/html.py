"""HTML as a browser takes it apart: elements and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

__all__ = ["Element", "parsed"]

VOID = {"br", "hr", "input", "link", "meta"}


@dataclass
class Element:
    """One element, with all that is in it in order."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    inside: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(one if isinstance(one, str) else one.text for one in self.inside)

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def all(self, tag: str | None = None, **attributes: str) -> list[Element]:
        """Give the elements in it, however deep, of a tag and with attributes (`class_` is one of the classes)."""
        found: list[Element] = []
        for one in self.inside:
            if isinstance(one, Element):
                wanted = all(
                    value in one.classes if name == "class_" else one.attributes.get(name) == value
                    for name, value in attributes.items()
                )
                found += [one] if wanted and tag in (None, one.tag) else []
                found += one.all(tag, **attributes)
        return found

    def one(self, tag: str | None = None, **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].inside.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop().tag == tag, "elements end in the order that they began"

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError("a declaration")


def parsed(html: str) -> Element:
    """Take HTML apart; what is in it ends in order, or that is an error."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    (top,) = parser.open
    return top
