"""The paragraphs and list items of running text in a docstring or page.

Left out are code, tables, headings and *listings*: sections such as "Args" or "See also" that list things. Pages are in
Markdown, reStructuredText or the styles of docstrings. No grammar of these is parsed: a line is judged by its own
characters and by what the lines before it have begun.
"""

import re
from typing import NamedTuple

# Names of sections that hold a list or code rather than running text, in lower case.
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
# The words of a heading, without a colon, underline or signature behind them: "Args:", "## Returns", "Usage (Linux)".
_HEADING_WORDS = re.compile(r"\W*([A-Za-z][A-Za-z ]*?)\s*(?:\([^)]*\))?\s*:?:?\W*\Z")
# The line below a heading, or a rule between paragraphs: "=====", "-----", "~~~~~".
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_<>])\1{2,}\Z")
# A heading of Markdown: "## Usage".
_HASH_HEADING = re.compile(r"#{1,6}\s")
# The line that opens or closes fenced code: "```python", "~~~".
_FENCE = re.compile(r"(```+|~~~+)")
# A directive or a comment of reStructuredText: ".. note:: Read this", "..".
_DIRECTIVE = re.compile(r"\.\.(?:\s|\Z)")
# A line of a table: "| a | b |", "+-----+-----+", "===== =====".
_TABLE = re.compile(r"\||\+[-=+]{3,}|[=\-]{2,}(?:\s+[=\-]{2,})+\Z")
# A line of an interactive session or a shell command: ">>> f(x)", "In [3]:", "$ ls".
_PROMPT = re.compile(r">>>|\.\.\. |In \[\d*\]:|Out\[\d*\]:|\$ |% ")
# The first line of code that nothing else marks as code: "from a import b", "import a.b as c", "def f(", "x[0] = 1",
# "@cache".
_CODE = re.compile(
    r"from\s+\S+\s+import\b|import\s+[\w.]+(?:\s+as\s+\w+)?\Z|(?:def|class)\s+\w+[(:]|[\w.\[\]]+\s*=\s*\S|@\w[\w.]*(?:\(|\Z)"
)
# The description of a parameter: ":param x: The input", "@param x: The input", "* `x` (`int`): The input".
_FIELD = re.compile(
    r":[A-Za-z][^:`]*:(?:\s|\Z)|@[a-z]+\b[^:@]*:(?:\s|\Z)|[-*]?\s*[`*]{0,2}[\w.*]+[`*]{0,2} \(.{1,80}?\)\s*:"
)
# The sign in front of a list item: "- ", "* ", "1. ", "(a) ".
_BULLET = re.compile(r"(?:[-*+•]|\(?(?:\d{1,2}|[a-zA-Z#])[.)])\s+(?=\S)")
# Characters and words of a line such as "Returns:" that may be the name of a section.
_LONGEST_SECTION_NAME = 40
_MOST_WORDS_OF_SECTION_NAME = 3
# Characters of a heading that are looked at.
_LONGEST_HEADING = 80
# Words of a term that deeper lines explain.
_MOST_WORDS_OF_TERM = 5


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
    """Reads the lines of a page once, from top to bottom.

    Running text is collected line by line as the *pending block*. What ends it either closes it, so that it becomes
    one of the blocks, or drops it. Four things make the reader skip lines of text:

    - fenced code, up to the line that closes the fence (`_closing_fence`);
    - a directive, the description of a parameter, an indented listing or a literal block: the lines that are indented
      deeper than its first line (`_skipped_deeper_than`);
    - a listing below a heading, up to the next heading (`_is_in_listing`);
    - a table or code that is not fenced, up to the next blank line (`_is_in_code`).

    Args:
        lines: The lines, without common indentation.
    """

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._blocks: list[Block] = []

        # The pending block: its lines, the indentation of its first line, and whether it is a list item.
        self._pending_lines: list[str] = []
        self._pending_indent = 0
        self._pending_is_item = False

        # What is skipped at present. The fence is the mark that closes it, and empty outside of fenced code.
        self._closing_fence = ""
        self._skipped_deeper_than: int | None = None
        self._is_in_listing = False
        self._is_in_code = False

    def read(self) -> list[Block]:
        """Return the blocks of running text."""
        for position, line in enumerate(self._lines):
            content = line.strip()
            if self._closing_fence:
                if content.startswith(self._closing_fence):
                    self._closing_fence = ""
                continue
            if not content:
                self._close_pending()
                self._is_in_code = False
                continue
            indent = len(line) - len(line.lstrip())
            self._read_line(position, content, indent)
        self._close_pending()
        return self._blocks

    def _read_line(self, position: int, content: str, indent: int) -> None:
        """Read a line that is not blank and not in fenced code: a fence, a heading, a rule, or text.

        Args:
            position: Index of the line in the page.
            content: The line without white space at both ends.
            indent: Number of spaces in front of it.
        """
        if self._skipped_deeper_than is not None:
            if indent > self._skipped_deeper_than:
                return
            self._skipped_deeper_than = None

        fence = _FENCE.match(content)
        if fence is not None:
            self._close_pending()
            mark = fence.group()
            is_closed_in_line = mark in content[len(mark) :]
            if not is_closed_in_line:
                self._closing_fence = mark
            return

        is_heading = self._is_underlined(position) or _HASH_HEADING.match(content)
        if is_heading:
            self._close_pending()
            self._is_in_listing = _names_listing(content)
            return

        is_rule = _UNDERLINE.match(content)
        if is_rule:
            self._close_pending()
            return

        if not self._is_in_listing and not self._is_in_code:
            self._read_text(content, indent)

    def _read_text(self, content: str, indent: int) -> None:
        """Read a line of text: code, a directive or field, the name of a section, or running text."""
        begins_code = not self._pending_lines and _CODE.match(content)
        if _TABLE.match(content) or _PROMPT.match(content) or begins_code:
            # The lines right above a table or a session are its caption or code as well.
            self._drop_pending()
            self._is_in_code = True
            return

        if _DIRECTIVE.match(content) or _FIELD.match(content):
            self._close_pending()
            self._skipped_deeper_than = indent
            return

        if content.endswith(":") and _is_section_name(content):
            self._close_pending()
            if _names_listing(content):
                self._skipped_deeper_than = indent
            return

        self._append(content, indent)
        announces_literal_block = content.endswith("::")
        if announces_literal_block:
            self._close_pending()
            self._skipped_deeper_than = indent

    def _append(self, content: str, indent: int) -> None:
        """Add a line of running text to the pending block, or begin a block with it."""
        bullet = _BULLET.match(content)
        if bullet is not None:
            # An item is indented as its text is, behind the bullet.
            self._close_pending()
            self._pending_is_item = True
            content = content[bullet.end() :]
            indent += bullet.end()
        elif self._pending_lines and indent > self._pending_indent:
            # A deeper line explains the term above it, or continues the paragraph with a hanging indent.
            if self._is_term():
                self._drop_pending()
        elif self._pending_lines and indent < self._pending_indent:
            self._close_pending()

        if not self._pending_lines:
            self._pending_indent = indent
        self._pending_lines.append(content)

    def _is_term(self) -> bool:
        """Whether the pending block is a term, such as a name in a definition list, and not a sentence."""
        if len(self._pending_lines) > 1 or self._pending_is_item:
            return False
        term = self._pending_lines[0]
        return len(term.split()) <= _MOST_WORDS_OF_TERM and not term.endswith((".", "!", "?", ","))

    def _close_pending(self) -> None:
        """End the pending block, if there is one, and keep it as one of the blocks."""
        if self._pending_lines:
            self._blocks.append(Block(" ".join(self._pending_lines), self._pending_is_item))
        self._drop_pending()

    def _drop_pending(self) -> None:
        """Forget the pending block."""
        self._pending_lines = []
        self._pending_is_item = False

    def _is_underlined(self, position: int) -> bool:
        """Whether the line below is an underline, which makes the line at `position` a heading."""
        if position + 1 == len(self._lines):
            return False
        below = self._lines[position + 1].strip()
        return len(below) > 2 and not below[0].isalnum() and _UNDERLINE.match(below) is not None


def _is_section_name(content: str) -> bool:
    """Whether a line that ends with a colon is short enough for the name of a section, such as "Returns:"."""
    is_short = len(content) < _LONGEST_SECTION_NAME and len(content.split()) <= _MOST_WORDS_OF_SECTION_NAME
    return is_short and _HEADING_WORDS.match(content) is not None


def _names_listing(heading: str) -> bool:
    """Whether a heading or the name of a section is one of `_LISTING_SECTIONS`."""
    words = _HEADING_WORDS.match(" ".join(heading[:_LONGEST_HEADING].split()))
    return words is not None and words.group(1).lower() in _LISTING_SECTIONS
