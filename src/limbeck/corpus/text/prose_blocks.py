"""The paragraphs and list items of running text in a docstring or page, without code, tables, headings and listings."""

import re
from typing import NamedTuple

# Sections that list things rather than tell them, as a heading of either style, in lower case.
_LISTING_SECTIONS = frozenset(
    """
    args, arguments, parameters, params, other parameters, keyword args, keyword arguments, keyword
    parameters, kwargs, returns, return, return value, return values, yields, receives, raises,
    except, exceptions, warns, attributes, members, methods, properties, fields, functions, classes,
    example, examples, synopsis, usage, sample usage, example usage, doctest, doctests, see also, references,
    reference, citation, todo, todos, inputs, input, outputs, output, shape, shapes, bibtex, links,
    version, author, authors, license, copyright, versionadded, versionchanged, contents, index,
    signature
    """.replace("\n    ", " ")
    .strip()
    .split(", ")
)
_HEADING_WORDS = re.compile(r"\W*([A-Za-z][A-Za-z ]*?)\s*(?:\([^)]*\))?\s*:?:?\W*\Z")
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_<>])\1{2,}\Z")
_HASH_HEADING = re.compile(r"#{1,6}\s")
_FENCE = re.compile(r"(```+|~~~+)")
_DIRECTIVE = re.compile(r"\.\.(?:\s|\Z)")
_TABLE = re.compile(r"\||\+[-=+]{3,}|[=\-]{2,}(?:\s+[=\-]{2,})+\Z")
# Interactive sessions and shell commands.
_PROMPT = re.compile(r">>>|\.\.\. |In \[\d*\]:|Out\[\d*\]:|\$ |% ")
# A paragraph that begins like this is code that nothing else marks as such.
_CODE = re.compile(
    r"from\s+\S+\s+import\b|import\s+[\w.]+(?:\s+as\s+\w+)?\Z|(?:def|class)\s+\w+[(:]|[\w.\[\]]+\s*=\s*\S|@\w[\w.]*(?:\(|\Z)"
)
# ":param x: ...", "@param x: ...", "* `x` (`int`): ..."
_FIELD = re.compile(
    r":[A-Za-z][^:`]*:(?:\s|\Z)|@[a-z]+\b[^:@]*:(?:\s|\Z)|[-*]?\s*[`*]{0,2}[\w.*]+[`*]{0,2} \(.{1,80}?\)\s*:"
)
_BULLET = re.compile(r"(?:[-*+•]|\(?(?:\d{1,2}|[a-zA-Z#])[.)])\s+(?=\S)")
_LONGEST_SECTION_NAME = 40
_LONGEST_HEADING = 80
_LONGEST_TERM_WORDS = 5


class Block(NamedTuple):
    """The lines of one paragraph or list item.

    Args:
        text: The lines, joined by spaces.
        is_item: Whether it is an item of a list.
    """

    text: str
    is_item: bool


def read_blocks(text: str) -> list[Block]:
    """Return the blocks of running text in a docstring or page whose common indentation is already removed."""
    return _LineReader(text.expandtabs().split("\n")).read()


class _LineReader:
    """Goes once through the lines of a page; what a line means depends on the lines before it, see the attributes.

    Args:
        lines: The lines, without common indentation.
    """

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._blocks: list[Block] = []
        self._pending: list[str] = []  # Lines of the block that is being read.
        self._pending_indent = 0
        self._pending_is_item = False
        self._fence = ""  # The mark that closes the fenced code being skipped.
        self._skipped_below: int | None = None  # Lines indented deeper than this are skipped.
        self._in_listing = False  # Below the heading of a listing: out until the next heading.
        self._in_code = False  # Out until the next blank line.

    def read(self) -> list[Block]:
        """Return the blocks of running text."""
        for position, line in enumerate(self._lines):
            content = line.strip()
            if self._fence:
                if content.startswith(self._fence):
                    self._fence = ""
            elif not content:
                self._close()
                self._in_code = False
            else:
                self._read_line(position, content, len(line) - len(line.lstrip()))
        self._close()
        return self._blocks

    def _read_line(self, position: int, content: str, indent: int) -> None:
        """Read a line that is not blank and in no fenced code: a fence, a heading, a rule, or text."""
        if self._skipped_below is not None:
            if indent > self._skipped_below:
                return
            self._skipped_below = None
        fence = _FENCE.match(content)
        if fence is not None:
            self._close()
            mark = fence.group()
            is_closed_in_line = mark in content[len(mark) :]
            if not is_closed_in_line:
                self._fence = mark
        elif self._is_underlined(position) or _HASH_HEADING.match(content):
            self._close()
            self._in_listing = _is_listing(content)
        elif _UNDERLINE.match(content):
            self._close()
        elif not self._in_listing and not self._in_code:
            self._read_text(content, indent)

    def _read_text(self, content: str, indent: int) -> None:
        """Read a line of text: code, a directive or field, the name of a section, or running text."""
        if _TABLE.match(content) or _PROMPT.match(content) or (not self._pending and _CODE.match(content)):
            self._drop()  # The lines right above are code or a caption as well.
            self._in_code = True
        elif _DIRECTIVE.match(content) or _FIELD.match(content):
            self._close()
            self._skipped_below = indent
        elif content.endswith(":") and _is_section_name(content):
            self._close()
            if _is_listing(content):
                self._skipped_below = indent
        else:
            self._append(content, indent)
            if content.endswith("::"):  # A literal block follows.
                self._close()
                self._skipped_below = indent

    def _append(self, content: str, indent: int) -> None:
        """Add a line of running text to the pending block, or begin a block with it."""
        bullet = _BULLET.match(content)
        if bullet is not None:
            self._close()
            self._pending_is_item = True
            content = content[bullet.end() :]
            indent += bullet.end()
        elif self._pending and indent > self._pending_indent:
            if self._is_term():
                self._drop()
        elif self._pending and indent < self._pending_indent:
            self._close()
        if not self._pending:
            self._pending_indent = indent
        self._pending.append(content)

    def _is_term(self) -> bool:
        """Whether the pending block is a name that the deeper lines explain; the name is not prose."""
        if len(self._pending) > 1 or self._pending_is_item:
            return False
        term = self._pending[0]
        return len(term.split()) <= _LONGEST_TERM_WORDS and not term.endswith((".", "!", "?", ","))

    def _close(self) -> None:
        """End the pending block."""
        if self._pending:
            self._blocks.append(Block(" ".join(self._pending), self._pending_is_item))
        self._drop()

    def _drop(self) -> None:
        """Forget the pending block."""
        self._pending = []
        self._pending_is_item = False

    def _is_underlined(self, position: int) -> bool:
        if position + 1 == len(self._lines):
            return False
        below = self._lines[position + 1].strip()
        return len(below) > 2 and not below[0].isalnum() and _UNDERLINE.match(below) is not None


def _is_section_name(content: str) -> bool:
    return len(content) < _LONGEST_SECTION_NAME and len(content.split()) <= 3 and bool(_HEADING_WORDS.match(content))


def _is_listing(heading: str) -> bool:
    words = _HEADING_WORDS.match(" ".join(heading[:_LONGEST_HEADING].split()))
    return words is not None and words.group(1).lower() in _LISTING_SECTIONS
