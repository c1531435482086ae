"""What pages are made of: fenced blocks, links, headings, code between backticks.

A block may have a title, which names the file that it is (```yaml title="plan.yaml"), and may be marked as one that
is not run by a comment on the line before it: <!-- not run: REASON -->.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"(?P<indent> *)(?P<marks>`{3,}|~{3,}) *(?P<language>[\w-]*)(?P<info>.*)")
_TITLE = re.compile(r'title="([^"]+)"')
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_PICTURE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_INDENTED = re.compile(r" {4,}\S")
_LIST_ITEM = re.compile(r" *([-*+]|\d+\.) ")


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
    def text(self) -> str:
        """All of it."""
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        """Its fenced blocks, in order."""
        return [block for block, _ in self._fenced()]

    @cached_property
    def prose(self) -> str:
        """The page without its fenced blocks; the lines keep their numbers."""
        lines = self.text.splitlines()
        for _, numbers in self._fenced():
            for number in numbers:
                lines[number] = ""
        return "\n".join(lines)

    @property
    def links(self) -> list[str]:
        """Targets of links and pictures, without those to other hosts."""
        plain = re.sub(r"`[^`\n]*`", "", self.prose)
        found = [match["target"] for pattern in (_LINK, _PICTURE) for match in pattern.finditer(plain)]
        return [target for target in found if not re.match(r"https?://|mailto:", target)]

    @property
    def picture_texts(self) -> list[tuple[str, str]]:
        """What is said in the place of each picture, and its file."""
        return [(match["text"], match["target"]) for match in _PICTURE.finditer(self.prose)]

    @property
    def anchors(self) -> set[str]:
        """The anchors of its headings, as GitHub and the site make them."""
        made: Counter[str] = Counter()
        anchors = set()
        for heading in re.findall(r"^#+ (.+?)(?: *\{#.*\})?$", self.prose, re.MULTILINE):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
            slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
            anchors.add(f"{slug}-{made[slug]}" if made[slug] else slug)
            made[slug] += 1
        return anchors

    @property
    def codes(self) -> list[str]:
        """What stands between single backticks, with line breaks as spaces."""
        paragraphs = re.split(r"\n\s*\n", self.prose)
        found = [code for text in paragraphs for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
        return [" ".join(code.split()) for code in found]

    @property
    def indented_code(self) -> list[int]:
        """Lines of code blocks that are made by indentation, which say no language and so cannot be checked."""
        found, in_list, before = [], False, ""
        for number, line in enumerate(self.prose.splitlines(), start=1):
            if line.strip():
                in_list = bool(_LIST_ITEM.match(line)) or (in_list and line.startswith(" "))
                if _INDENTED.match(line) and not in_list and not before.strip():
                    found.append(number)
            before = line
        return found

    def _fenced(self) -> Iterator[tuple[Block, range]]:
        lines = self.text.splitlines()
        number = 0
        while number < len(lines):
            opened = _FENCE.fullmatch(lines[number])
            if opened is None:
                number += 1
                continue
            end = next(
                (i for i in range(number + 1, len(lines)) if lines[i].strip() == opened["marks"]), len(lines) - 1
            )
            indent, inside = len(opened["indent"]), lines[number + 1 : end]
            title = _TITLE.search(opened["info"])
            marker = _NOT_RUN.fullmatch(lines[number - 1].strip()) if number else None
            yield (
                Block(
                    page=self.path,
                    line=number + 1,
                    language=opened["language"],
                    title=title[1] if title else None,
                    text="\n".join(line[indent:] for line in inside) + "\n",
                    not_run=marker[1] if marker else None,
                ),
                range(number, end + 1),
            )
            number = end + 1


_DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
#: The pages whose code is run.
PAGES = [Page(path) for path in ("README.md", "CONTRIBUTING.md", *_DOCS)]
_BESIDE = ("CHANGELOG.md", "recipes/README.md", "examples/README.md")
#: The pages whose links are followed.
LINKED_PAGES = [*PAGES, *(Page(path) for path in _BESIDE if (ROOT / path).is_file())]
