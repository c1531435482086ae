"""Markdown of blocks: plain in the files beside a result, and escaped in reports and cards, which hold foreign text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from limbeck.core.blocks import AnyCell, Block, Cell, Code, Facts, Figure, Notes, Paragraph, Section, Table, counted
from limbeck.core.escaping import code_block, escape_links_and_tags, escape_markdown, running_text

_MARKS = {"bold": "**", "italic": "*"}
"""What stands on both sides of a cell with a mark."""


def markdown_file(title: str, sections: Iterable[Section]) -> str:
    """Return the text of a Markdown file of tables, in which names are not escaped.

    Args:
        title: The title of the file; "" for none.
        sections: The sections. One without a title goes on with the section before, and one without blocks is left out.
    """
    parts = []
    if title:
        parts.append(f"# {escape_links_and_tags(title)}")
    for section in sections:
        texts: list[str] = []
        for block in section.blocks:
            texts += _plain_texts(block)
        if section.title and texts:
            parts.append(f"## {section.title}")
        parts += texts
    return "\n\n".join(parts) + "\n"


def _plain_texts(block: Block) -> Iterator[str]:
    """Yield the texts of a block in a file of tables; figures, facts and code are not part of these."""
    match block:
        case Paragraph():
            yield running_text(block.text, escape_links_and_tags)
        case Notes(lines) if lines:
            yield notes_list(lines)
        case Table():
            yield plain_table(block)


def notes_list(lines: Iterable[str]) -> str:
    """Return lines as a list, with names as they are."""
    return "\n".join(f"- {running_text(line, escape_links_and_tags)}" for line in lines)


def plain_table(table: Table) -> str:
    """Return a table with names as they are, and with the marks of its cells."""
    headings = [escape_links_and_tags(table.heading(index)) for index in range(len(table.headings))]
    rows = [[_marked(cell) for cell in row] for row in table.rows]
    return _table_text(headings, rows, table.words)


def _marked(cell: AnyCell) -> str:
    """Return the text of a cell, between asterisks where it is bold or italic."""
    text = escape_links_and_tags(cell)
    if not isinstance(cell, Cell) or cell.mark not in _MARKS:
        return text
    mark = _MARKS[cell.mark]
    return f"{mark}{text}{mark}"


def escaped_blocks(blocks: Iterable[Block], figures: str = "") -> Iterator[str]:
    """Render blocks for a report: whatever their texts hold is shown, and nothing of it is Markdown.

    Args:
        blocks: The blocks, in order.
        figures: The folder of their figures, relative to the file, with forward slashes.
    """
    for block in blocks:
        yield from _escaped_texts(block, figures)


def _escaped_texts(block: Block, figures: str) -> Iterator[str]:
    """Yield the texts of a block, with the names and texts in it escaped; `figures` is the folder of the figures."""
    match block:
        case Paragraph():
            text = running_text(block.text, escape_markdown)
            if block.address:
                text += f" <{escape_markdown(block.address)}>"
            yield text
        case Notes():
            mark = "**Warning:** " if block.warning else ""
            yield "\n".join(f"- {mark}{running_text(line, escape_markdown)}" for line in block.lines)
        case Facts():
            yield "\n".join(f"- {escape_markdown(name)}: {escape_markdown(value)}" for name, value in block.pairs)
        case Table(folded=True):
            yield from _details(block.caption, _escaped_texts(replace(block, folded=False), figures))
        case Table():
            yield f"*{escape_markdown(block.caption)}*"
            yield _escaped_table(block)
            if block.left_out:
                yield f"{counted(block.left_out, 'more row')} not shown."
        case Figure():
            yield f"**{escape_markdown(block.title)}** {escape_markdown(block.caption)}".strip()
            yield f"![{escape_markdown(block.description)}]({figures}/{block.name}.svg)"
            if block.data is not None:
                yield from _details("Data of this figure", _escaped_texts(block.data, figures))
        case Code():
            yield from _details(block.title, [code_block(block.text, block.language)])


def _details(summary: str, parts: Iterable[str]) -> Iterator[str]:
    """Yield parts that are closed until a reader opens them."""
    yield f"<details><summary>{escape_markdown(summary)}</summary>"
    yield from parts
    yield "</details>"


def _escaped_table(table: Table) -> str:
    """Return a table in Markdown, in which no text of a record counts as markup."""
    headings = [escape_markdown(table.heading(index)) for index in range(len(table.headings))]
    rows = []
    for index, row in enumerate(table.rows):
        cells = [escape_markdown(cell) for cell in row]
        if index in table.strong:
            cells = [_bold(cell) for cell in cells]
        rows.append(cells)
    # The first column holds the names of the rows, so it is one of words too.
    return _table_text(headings, rows, words=(*table.words, 0))


def _bold(cell: str) -> str:
    """Return the text of a cell in bold type."""
    # Two pairs of stars without a text between them would be shown as stars.
    return f"**{cell}**" if cell else ""


def _table_text(headings: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int]) -> str:
    """Return a table of cells that are escaped; columns of words are aligned to the left."""
    # Below the headings Markdown has a line that says how each column is aligned.
    alignments = ["---|" if index in words else "---:|" for index in range(len(headings))]
    lines = [f"| {' | '.join(headings)} |", f"|{''.join(alignments)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)
