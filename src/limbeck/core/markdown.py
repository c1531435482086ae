"""Markdown of blocks: plain in the files beside a result, and escaped in reports and cards, which hold foreign text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from limbeck.core.blocks import (
    AnyCell,
    Block,
    Cell,
    Code,
    Facts,
    Figure,
    Notes,
    Paragraph,
    Section,
    Steps,
    Table,
    counted,
)
from limbeck.core.escaping import code_block, escape_links_and_tags, escape_markdown, running_text

_MARKS = {"bold": "**", "italic": "*"}


def markdown_file(title: str, sections: Iterable[Section]) -> str:
    """Return the text of a file of tables, with names as they were given; sections without blocks are left out.

    Args:
        title: Of the file; without one there is none.
        sections: Those without a title follow the one before.
    """
    parts = [f"# {escape_links_and_tags(title)}"] if title else []
    for section in sections:
        blocks = [part for block in section.blocks for part in _plain(block)]
        parts += [f"## {section.title}"] * bool(section.title and blocks) + blocks
    return "\n\n".join(parts) + "\n"


def _plain(block: Block) -> Iterator[str]:
    match block:
        case Paragraph():
            yield running_text(block.text, escape_links_and_tags)
        case Notes(lines) if lines:
            yield notes_list(lines)
        case Table():
            yield plain_table(block)


def notes_list(lines: Iterable[str]) -> str:
    """Return lines as a list, with their names as they were given."""
    return "\n".join(f"- {running_text(line, escape_links_and_tags)}" for line in lines)


def plain_table(table: Table) -> str:
    """Return a table of names as they were given, with the marks of its cells."""
    rows = [list(map(_marked, row)) for row in table.rows]
    return _rows(table, list(map(escape_links_and_tags, _headings(table))), rows)


def _marked(cell: AnyCell) -> str:
    mark = _MARKS.get(cell.mark, "") if isinstance(cell, Cell) else ""
    return f"{mark}{escape_links_and_tags(cell)}{mark}"


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
            yield running_text(block.text, escape_markdown) + (
                f" <{escape_markdown(block.address)}>" if block.address else ""
            )
        case Notes():
            mark = "**Warning:** " if block.warning else ""
            yield "\n".join(f"- {mark}{running_text(line, escape_markdown)}" for line in block.lines)
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
                yield f"{counted(block.left_out, 'more row')} not shown."
        case Figure():
            title, caption = escape_markdown(block.title), escape_markdown(block.caption)
            yield f"**{title}** {caption}".strip()
            yield f"![{escape_markdown(block.description)}]({figures}/{block.name}.svg)"
            yield from _details("Data of this figure", _escaped(block.data, figures))
        case Code():
            yield from _details(block.title, [code_block(block.text, block.language)])


def _details(summary: str, parts: Iterable[str]) -> Iterator[str]:
    yield f"<details><summary>{escape_markdown(summary)}</summary>"
    yield from parts
    yield "</details>"


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
