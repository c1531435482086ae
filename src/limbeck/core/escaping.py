"""Foreign text on its way out: one function for each target, which keeps it from being read as anything but text.

Names, labels and messages come from records, files and the Hub. HTML is escaped by its templates (Jinja's autoescape,
over `printable`), YAML by its library (over `printable_values`).
"""

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from limbeck.core.notebook_html import html_of_page

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$])")
"""Characters that mean something in Markdown."""
_LINKS_AND_TAGS = re.compile(r"([\\`<>|]|\](?=[(\[:]))")
"""Those of them that make code, tags, ends of cells and links."""
_CODE = re.compile(r"(?<!`)`([^`]*[^`\s][^`]*)`(?!`)")
"""Text between single backticks."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of cells that spreadsheets take for formulas, in their wide forms too."""


def printable(text: str) -> str:
    """Replace control characters, among them those that steer a terminal or turn the direction of text around."""
    shown = [character if _is_shown(character) else "\N{REPLACEMENT CHARACTER}" for character in text]
    return "".join(shown)


def printable_values(value: Any) -> Any:
    """Return plain values with every text in them printable, keys included."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable_values(key): printable_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable_values(item) for item in value]
    return value


def one_line(value: Any) -> str:
    """Return any value as one printable line without runs of space; empty for None."""
    if value is None:
        return ""
    characters = [character if character.isprintable() else " " for character in str(value)]
    return " ".join("".join(characters).split())


def escape_markdown(value: Any) -> str:
    """Return any value as one line of plain text: nothing in it is Markdown, HTML or a table cell's end."""
    return _MARKDOWN.sub(r"\\\1", one_line(value))


def escape_links_and_tags(value: Any) -> str:
    """Return any value as one line without links, tags, code or cell ends; emphasis stays as it is written.

    For files that are read as text as often as they are rendered, where `hidden\\_states` would be in the way.
    """
    return _LINKS_AND_TAGS.sub(r"\\\1", one_line(value))


def running_text(text: str, escape: Callable[[Any], str]) -> str:
    """Set text between single backticks as code, and escape the rest; spaces at the edges of a part stay."""
    parts: list[str] = []
    # The pattern has one group, so that text and code take turns.
    for number, part in enumerate(_CODE.split(text)):
        is_code = number % 2 == 1
        parts.append(inline_code(part) if is_code else _escape_keeping_edges(part, escape))
    return "".join(parts)


def _escape_keeping_edges(text: str, escape: Callable[[Any], str]) -> str:
    """Escape a text; a space stays at each edge that has space."""
    if not text:
        return ""
    if not text.strip():
        return " "
    before = " " if text[0].isspace() else ""
    after = " " if text[-1].isspace() else ""
    return f"{before}{escape(text)}{after}"


def inline_code(value: Any) -> str:
    """Return any value as one code span, whatever backticks it holds."""
    line = one_line(value).replace("|", "¦")  # A bar ends a table cell even inside a code span.
    if "`" not in line:
        return f"`{line}`"
    fence = "`" * (_longest_run_of_backticks(line) + 1)
    return f"{fence} {line} {fence}"


def code_block(value: Any, language: str = "") -> str:
    """Return any value as a fenced block that nothing inside it can close."""
    characters = [character for character in str(value) if _is_shown(character)]
    text = "".join(characters).strip("\n")
    fence = "`" * max(3, _longest_run_of_backticks(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def escape_csv(value: Any) -> Any:
    """Return a value for a cell that no spreadsheet takes for a formula; numbers, which begin with a sign, stay.

    Source:
        OWASP, "CSV Injection": cells that begin with =, +, -, @, tab or a line's end get an apostrophe before them.
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    if text.startswith(_FORMULA) and not _is_number(text):
        return f"'{text}"
    return text


def escape_csv_rows(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the headings, then the rows, with cells as `escape_csv` gives them."""
    yield {name: escape_csv(name) for name in columns}
    for row in rows:
        yield {name: escape_csv(value) for name, value in row.items()}


def escape_json(text: str) -> str:
    """Return the text of a JSON document, of the same values, that a terminal may show."""
    characters = []
    for character in text:
        is_plain = character.isprintable() or character == "\n"
        # JSON's own escapes, without the quotation marks around them.
        characters.append(character if is_plain else json.dumps(character)[1:-1])
    return "".join(characters)


class TerminalConsole(Console):
    """A console that shows control characters of a text as such, and obeys none of them."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does; in a notebook, lines are wrapped by the page, and their underscores are not cut off."""
        if not self.is_jupyter or self.quiet:
            super().print(*objects, **options)
            return
        from IPython.display import display

        # A console that prints nowhere, and records what is printed.
        page = TerminalConsole(
            file=io.StringIO(), record=True, width=self.width, force_terminal=True, force_jupyter=False
        )
        page.print(*objects, **options)
        html = html_of_page(page, are_lines=bool(options.get("soft_wrap")))
        display({"text/plain": page.export_text(), "text/html": html}, raw=True)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, with the text of every segment printable; its own control codes stay."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            if control or text.isprintable():
                yield segment
            else:
                yield Segment(printable(text), style)


def _is_shown(character: str) -> bool:
    return character.isprintable() or character in "\n\t"


def _longest_run_of_backticks(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
