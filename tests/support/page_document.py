"""A report's HTML, read strictly: every element closed, every reference met."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = {"meta", "br", "input", "source", "img", "hr", "link"}
_SELF_CLOSED = {"path", "polyline", "polygon", "circle"}


class Document(HTMLParser):
    """Parses a document and keeps what tests ask for.

    `elements` are (name, attributes, text of the element and all below it), in the order of their beginnings.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self.inside: list[int] = []
        self.parents: list[tuple[int, ...]] = []
        self.feed(html)
        self.close()
        assert not self.inside, f"never closed: {[self.elements[i][0] for i in self.inside]}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.parents.append(tuple(self.inside))
        self.elements.append((tag, {name: value or "" for name, value in attrs}, []))
        if tag not in _VOID:
            self.inside.append(len(self.elements) - 1)

    def handle_startendtag(self, tag, attrs):
        assert tag in _SELF_CLOSED, tag
        self.handle_starttag(tag, attrs)
        self.inside.pop()

    def handle_endtag(self, tag):
        assert self.inside, f"</{tag}> closes nothing"
        opened = self.elements[self.inside.pop()][0]
        assert opened == tag, f"<{opened}> is closed by </{tag}>"

    def handle_data(self, data):
        for index in self.inside:
            self.elements[index][2].append(data)

    def all(self, name: str, within: str | None = None) -> list[tuple[dict[str, str], str]]:
        """Return attributes and text of the elements of a name, or of those inside an element of another."""
        return [
            (attributes, "".join(text).strip())
            for (tag, attributes, text), parents in zip(self.elements, self.parents, strict=True)
            if tag == name and (within is None or any(self.elements[i][0] == within for i in parents))
        ]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes, _ in self.elements if "id" in attributes]
