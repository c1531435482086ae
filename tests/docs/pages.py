"""What pages are made of: fenced blocks, links, headings, code between backticks.

A block may have a title, which names the file that it is (```yaml title="plan.yaml"), and may be marked as one that
is not run by a comment on the line before it: <!-- not run: REASON -->.
"""

from __future__ import annotations

import re
import runpy
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_TITLE = re.compile(r'title="([^"]+)"')
#: The line of a page below which it is made by `make references`; its code is signatures.
MADE_BELOW = re.compile(r"<!-- limbeck[^>]* by `make references` -->\n")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->\n")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        page: The page's path in the repository.
        line: Where its fence opens, from 1.
        language: As written after the fence; empty if nothing is.
        title: The file that it is, or None.
        text: What is inside, without the fence's indentation.
        not_run: Why it is not run; None if it is.
    """

    page: str
    line: int
    language: str
    title: str | None
    text: str
    not_run: str | None

    @property
    def place(self) -> str:
        """For messages: `docs/start.md:12`."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A Markdown page of the repository."""

    path: str

    @cached_property
    def _tokens(self) -> list[Token]:
        return _MARKDOWN.parse((ROOT / self.path).read_text(encoding="utf-8"))

    @cached_property
    def _written(self) -> list[Token]:
        """Without what is made by `make references`."""
        made = (i for i, token in enumerate(self._tokens) if MADE_BELOW.fullmatch(token.content))
        return self._tokens[: next(made, None)]

    @cached_property
    def _words(self) -> list[Token]:
        return [part for token in self._tokens for part in token.children or ()]

    @cached_property
    def blocks(self) -> list[Block]:
        """Its fenced blocks, in order."""
        found = []
        for before, token in pairwise([Token("start", "", 0), *self._written]):
            if token.type == "fence" and token.map is not None:
                language, _, info = token.info.partition(" ")
                title, marker = _TITLE.search(info), _NOT_RUN.fullmatch(before.content)
                reason = marker[1] if marker else None
                title_of = title[1] if title else None
                found.append(Block(self.path, token.map[0] + 1, language, title_of, token.content, reason))
        return found

    @property
    def links(self) -> list[str]:
        """Targets of links and pictures, without those to other hosts."""
        found = [str(part.attrs.get("href", part.attrs.get("src", "https://"))) for part in self._words]
        return [target for target in found if not re.match(r"https?://|mailto:", target)]

    @property
    def picture_texts(self) -> list[tuple[str, str]]:
        """What is said in the place of each picture, and its file."""
        return [(part.content, str(part.attrs["src"])) for part in self._words if part.type == "image"]

    @property
    def anchors(self) -> set[str]:
        """The anchors of its headings, as GitHub and the site make them."""
        made: Counter[str] = Counter()
        anchors = set()
        for before, token in pairwise(self._tokens):
            if before.type == "heading_open":
                plain = "".join(part.content for part in token.children or ()).lower()
                slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
                anchors.add(f"{slug}-{made[slug]}" if made[slug] else slug)
                made[slug] += 1
        return anchors

    @property
    def codes(self) -> list[str]:
        """What stands between backticks, with line breaks as spaces."""
        parts = [part for token in self._written for part in token.children or ()]
        return [" ".join(part.content.split()) for part in parts if part.type == "code_inline"]

    @property
    def indented_code(self) -> list[int]:
        """Lines of code blocks that are made by indentation, which say no language and so cannot be checked."""
        return [token.map[0] + 1 for token in self._written if token.type == "code_block" and token.map is not None]


_DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
#: The pages whose code is run.
PAGES = [Page(path) for path in ("README.md", "CONTRIBUTING.md", *_DOCS)]
_BESIDE = ("CHANGELOG.md", "recipes/README.md", "examples/README.md")
#: The pages whose links are followed.
LINKED_PAGES = [*PAGES, *(Page(path) for path in _BESIDE if (ROOT / path).is_file())]


def script(path: str) -> SimpleNamespace:
    """Return the names that a script of the documentation defines."""
    return SimpleNamespace(**runpy.run_path(str(ROOT / path)))
