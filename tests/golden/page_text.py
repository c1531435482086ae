"""A page as lines of text: headings, paragraphs and tables, without the drawings."""

from __future__ import annotations

from html.parser import HTMLParser

_BLOCKS = {
    "h1", "h2", "h3", "h4", "p", "li", "caption", "figcaption", "summary", "dt", "dd", "pre", "tr", "legend", "label",
    "b", "title", "section", "table", "figure", "details", "nav", "footer", "main", "ul", "ol", "dl",
}  # fmt: skip
_SILENT = {"style", "script", "svg"}


class _Lines(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.inside: list[str] = []
        self.text: list[str] = []
        self.silent = 0
        self.feed(html)
        self.close()
        self.end_line()

    def handle_starttag(self, tag, attrs):
        if tag in _SILENT:
            self.silent += 1
        elif tag in ("th", "td"):
            self.text.append("| ")
        elif tag in _BLOCKS:
            self.end_line()
            self.inside.append(tag)
            if tag in ("section", "table", "figure", "nav", "footer"):
                self.lines.append(f"<{tag}>")

    def handle_endtag(self, tag):
        if tag in _SILENT:
            self.silent -= 1
        elif tag in ("th", "td"):
            self.text.append(" ")
        elif tag in _BLOCKS:
            self.end_line()
            self.inside.pop()

    def handle_data(self, data):
        if not self.silent and self.inside:
            self.text.append(data)

    def end_line(self):
        text = "".join(self.text)
        if text.strip():
            tag = self.inside[-1]
            text = text.strip("\n") if tag == "pre" else " ".join(text.split())
            self.lines += [f"{tag}: {line}" for line in text.splitlines()]
        self.text = []


def page_lines(html: str) -> str:
    """Return the text of a page, a block a line after its element's name; the cells of a row stand in one line."""
    return "\n".join(_Lines(html).lines) + "\n"
