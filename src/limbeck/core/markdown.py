"""Markdown of blocks: plain in the files beside a result, and escaped in reports and cards, which hold foreign text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from limbeck.core.blocks import AnyCell, Block, Cell, Code, Facts, Figure, Notes, Paragraph, Section, Steps, Table

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$])")
_MARKS = {"bold": "**", "italic": "*"}


def one_line(value: Any) -> str:
    """Return any value as one printable line without runs of space; empty for None."""
    if value is None:
        return ""
    text = "".join(character if character.isprintable() else " " for character in str(value))
    return " ".join(text.split())


def escape_markdown(value: Any) -> str:
    """Return any value as one line of plain text: nothing in it is Markdown, HTML or a table cell's end."""
    return _MARKDOWN.sub(r"\\\1", one_line(value))


def inline_code(value: Any) -> str:
    """Return any value as one code span, whatever backticks it holds."""
    line = one_line(value).replace("|", "¦")  # A bar ends a table cell even inside a code span.
    fence = "`" * (_longest_run_of_backticks(line) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"


def code_block(value: Any, language: str = "") -> str:
    """Return any value as a fenced block that nothing inside it can close."""
    text = "".join(c for c in str(value) if c.isprintable() or c in "\n\t").strip("\n")
    fence = "`" * max(3, _longest_run_of_backticks(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _longest_run_of_backticks(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def markdown_file(title: str, sections: Iterable[Section]) -> str:
    """Return the text of a file of tables, whose names are as they were given; sections without blocks are left out.

    Args:
        title: Of the file; without one there is none.
        sections: Those without a title follow the one before.
    """
    parts = [f"# {title}"] if title else []
    for section in sections:
        blocks = [part for block in section.blocks for part in _plain(block)]
        parts += [f"## {section.title}"] * bool(section.title and blocks) + blocks
    return "\n\n".join(parts) + "\n"


def _plain(block: Block) -> Iterator[str]:
    match block:
        case Paragraph():
            yield block.text
        case Notes(lines) if lines:
            yield "\n".join(f"- {line}" for line in lines)
        case Table():
            yield plain_table(block)


def plain_table(table: Table) -> str:
    """Return a table of names as they were given, with the marks of its cells."""
    rows = [[_marked(cell).replace("|", r"\|") for cell in row] for row in table.rows]
    return _rows(table, [heading.replace("|", r"\|") for heading in _headings(table)], rows)


def _marked(cell: AnyCell) -> str:
    mark = _MARKS.get(cell.mark, "") if isinstance(cell, Cell) else ""
    return f"{mark}{str(cell).strip()}{mark}"


def escaped_blocks(blocks: Iterable[Block], figures: str = "") -> Iterator[str]:
    """Render blocks for a report: whatever their texts hold is shown, and nothing of it is Markdown.

    Args:
        blocks: In order.
        figures: The folder of their figures, relative to the file, with forward slashes.
    """
    for block in blocks:
        yield from _escaped(block, figures)


def _escaped(block: Block, figures: str) -> Iterator[str]:
    match block:
        case Paragraph():
            yield _running(block.text) + (f" <{escape_markdown(block.address)}>" if block.address else "")
        case Notes():
            mark = "**Warning:** " if block.warning else ""
            yield "\n".join(f"- {mark}{_running(line)}" for line in block.lines)
        case Facts():
            yield "\n".join(f"- {escape_markdown(name)}: {escape_markdown(value)}" for name, value in block.pairs)
        case Steps():
            lines = [f"{escape_markdown(title)}: {escape_markdown(said)}" for title, said in block.steps]
            yield "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))
        case Table(folded=True):
            yield from _details(block.caption, _escaped(replace(block, folded=False), figures))
        case Table():
            yield f"*{escape_markdown(block.caption)}*"
            yield _escaped_table(block)
            if block.left_out:
                yield f"{block.left_out:,} more rows are not shown."
        case Figure():
            title, caption = escape_markdown(block.title), escape_markdown(block.caption)
            yield f"**{title}** {caption}".strip()
            yield f"![{escape_markdown(block.description)}]({figures}/{block.name}.svg)"
            yield from _details("Numbers of this figure", _escaped(block.data, figures))
        case Code():
            yield from _details(block.title, [code_block(block.text, block.language)])


def _details(summary: str, parts: Iterable[str]) -> Iterator[str]:
    yield f"<details><summary>{escape_markdown(summary)}</summary>"
    yield from parts
    yield "</details>"


def _running(text: str) -> str:
    """Set text between backticks as code, and the rest as plain text."""
    parts = zip(text.split("`"), cycle((False, True)))
    return "".join(inline_code(part) if code else _spaced(part) for part, code in parts)


def _spaced(text: str) -> str:
    """Escape a text that may begin or end at a word's edge."""
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{before[:1]}{escape_markdown(text)}{after[:1]}" if text.strip() else text[:1]


def _escaped_table(table: Table) -> str:
    rows = [
        [f"**{cell}**" if index in table.strong and cell else cell for cell in map(escape_markdown, row)]
        for index, row in enumerate(table.rows)
    ]
    words = (*table.words, 0)
    return _rows(replace(table, words=words), list(map(escape_markdown, _headings(table))), rows)


def _headings(table: Table) -> list[str]:
    return [table.heading(index) for index in range(len(table.headings))]


def _rows(table: Table, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = "".join("---|" if index in table.words else "---:|" for index in range(len(headings)))
    lines = (f"| {' | '.join(row)} |" for row in (headings, *rows))
    return "\n".join((next(lines), f"|{rule}", *lines))
