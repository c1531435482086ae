"""Prose out of docstrings and documentation pages: the text that a reader would read aloud.

Code, doctests, literal blocks, tables, directives, headings and parameter lists (Google, NumPy,
reStructuredText and epytext styles) are left out; paragraphs and prose-like list items remain, their inline
markup unwrapped.
"""

import re
from collections.abc import Callable
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


class _BlockReader:
    """Goes once through the lines of a page without common indentation; a line's meaning depends on the attributes."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._blocks: list[Block] = []
        self._pending: list[str] = []  # Lines of the block that is being read.
        self._pending_indent = 0
        self._pending_is_item = False
        self._fence = ""  # The mark that closes the fenced code being skipped.
        self._outer: int | None = None  # Lines indented deeper than this are skipped.
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
        if self._outer is not None:
            if indent > self._outer:
                return
            self._outer = None
        if fence := _FENCE.match(content):
            self._close()
            mark = fence.group()
            self._fence = "" if mark in content[len(mark) :] else mark
        elif self._is_underlined(position) or _HASH_HEADING.match(content):
            self._close()
            self._in_listing = _is_listing(content)
        elif _UNDERLINE.match(content):
            self._close()
        elif not self._in_listing and not self._in_code:
            self._read_text(content, indent)

    def _read_text(self, content: str, indent: int) -> None:
        if _TABLE.match(content) or _PROMPT.match(content) or (not self._pending and _CODE.match(content)):
            self._drop()  # The lines right above are code or a caption as well.
            self._in_code = True
        elif _DIRECTIVE.match(content) or _FIELD.match(content):
            self._close()
            self._outer = indent
        elif content.endswith(":") and _is_section_name(content):
            self._close()
            if _is_listing(content):
                self._outer = indent
        else:
            self._append(content, indent)
            if content.endswith("::"):
                self._close()
                self._outer = indent

    def _append(self, content: str, indent: int) -> None:
        if bullet := _BULLET.match(content):
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
        if self._pending:
            self._blocks.append(Block(" ".join(self._pending), self._pending_is_item))
        self._drop()

    def _drop(self) -> None:
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


# Most paragraphs hold none of these and are done at once.
_ANY_MARKUP = re.compile(r"[`*|\[\\<_{]|::|&")
_TARGET = re.compile(r"(?<!\s)\s*<[^<>]*>\Z")
_SPACES = re.compile(r"\s+")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&nbsp;": " "}


def unwrap_markup(text: str) -> str:
    """Return `text` with inline markup unwrapped and runs of white space made one space.

    For example ``:class:`~torch.nn.Linear` `` becomes ``Linear``, ``[a link](http://x)`` becomes ``a link``
    and ``**bold**`` becomes ``bold``.
    """
    if _ANY_MARKUP.search(text):
        for sign, pattern, shown in _MARKUP:
            if sign in text:
                text = pattern.sub(shown, text)
        for entity, character in _ENTITIES.items():
            text = text.replace(entity, character)
        text = re.sub(r"::(?=\s|\Z)", ":", text)
    return _SPACES.sub(" ", text).strip()


def _role_text(match: re.Match[str]) -> str:
    content = match.group(1)
    shown = _TARGET.sub("", content)
    if shown and shown != content:
        return shown
    if content.startswith("~"):
        return content.rpartition(".")[2].lstrip("~")
    return content.lstrip("!.")


def _quoted_text(match: re.Match[str]) -> str:
    content = match.group(1)
    shown = _TARGET.sub("", content) or content
    return shown.rpartition(".")[2].lstrip("~") if shown.startswith("~") else shown


# A sign that every match holds, the pattern, and the text in its place. Texts come from anywhere: no pattern may try a
# long stretch again from each of its characters.
_MARKUP: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    ("](", re.compile(r"!\[[^\[\]]*\]\([^()]*\)"), ""),
    ("](", re.compile(r"\[([^\[\]]+)\]\((?:[^()]|\([^()]*\))*+\)"), r"\1"),
    ("{", re.compile(r"\b[A-Z]\{([^{}]*)\}"), r"\1"),
    # :role:`text <target>`, :role:`~a.b`, :role:`!x`
    ("`", re.compile(r":[a-zA-Z][\w+.:-]{0,60}:`([^`]+)`"), _role_text),
    ("`", re.compile(r"``(.+?)``"), r"\1"),
    ("`", re.compile(r"`([^`\n]+)`_{0,2}"), _quoted_text),
    ("*", re.compile(r"(?<![\w*])\*\*(?=\S)((?:[^*]|\*(?!\*))+?)(?<=\S)\*\*(?![\w*])"), r"\1"),
    ("*", re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])"), r"\1"),
    ("|", re.compile(r"(?<![\w|])\|(\w[^|\n]*?)\|_{0,2}(?![\w|])"), r"\1"),
    ("[", re.compile(r"(?<!\s)\s*\[(?:\d+|#\w*|\*|[A-Z][\w.-]*)\]_"), ""),
    # HF and Google styles write cross-references as [`Name`]; the backquotes are gone by now.
    ("[", re.compile(r"\[~?([A-Za-z_][\w.]*(?:\(\))?)\](?![\w(\[])"), r"\1"),
    ("<", re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]*)?/?>"), ""),
    ("_", re.compile(r"(?<=\w)__?(?=[\s.,;:)]|\Z)"), ""),
    ("\\", re.compile(r"\\([^\w\s])|\\\s"), r"\1"),
)

_WORD = re.compile(r"[^\W\d_]{2,}")
_CODE_CHARACTERS = re.compile(r"[{}\[\]<>=_/\\|@#^~$+*`\d]")
_URL = re.compile(r"\s*\b(?:https?|ftp)://\S+|\s*\bwww\.\S+")

# Prose has three words or more, mostly letters and spaces, and few characters of code.
_FEWEST_WORDS = 3
_FEWEST_ITEM_WORDS = 6
_LETTERS_SHARE = 0.6
_CODE_SHARE = 0.1


class Prose(NamedTuple):
    """The prose of a text.

    Args:
        paragraphs: Prose paragraphs, one line each.
        has_summary: Whether the first of them is the very beginning of the text, so that it can stand as its
            summary.
    """

    paragraphs: list[str]
    has_summary: bool


def extract_prose(text: str) -> Prose:
    """Extract the prose paragraphs of a docstring or page whose common indentation is already removed."""
    paragraphs: list[str] = []
    has_summary = False
    for number, block in enumerate(_BlockReader(text.expandtabs().split("\n")).read()):
        paragraph = _as_prose(block.text, block.is_item)
        if paragraph is not None:
            has_summary = has_summary or number == 0
            paragraphs.append(paragraph)
    return Prose(paragraphs, has_summary)


def _as_prose(text: str, is_item: bool) -> str | None:
    """Return the unwrapped paragraph, or `None` if it does not read as prose."""
    paragraph = unwrap_markup(text)
    if "://" in paragraph or "www." in paragraph:
        paragraph = _URL.sub("", paragraph).strip(" <>()")
    words = len(_WORD.findall(paragraph))
    # Words cannot be counted in scripts that put no space between them.
    if words < (_FEWEST_ITEM_WORDS if is_item else _FEWEST_WORDS) and paragraph.isascii():
        return None
    letters = sum(map(str.isalpha, paragraph)) + paragraph.count(" ")
    if letters < _LETTERS_SHARE * len(paragraph):
        return None
    if len(_CODE_CHARACTERS.findall(paragraph)) > _CODE_SHARE * len(paragraph):
        return None
    return paragraph
