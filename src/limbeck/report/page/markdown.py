"""Rendering a report as Markdown: the same text, tables and numbers, with figures as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle

from limbeck.report.model_card import code_block, escape_markdown, inline_code
from limbeck.report.page.content import Block, Code, Facts, Figure, Notes, Page, Paragraph, Steps, Table


def render_markdown(page: Page, figures: str) -> str:
    """Return a report as Markdown.

    Args:
        page: The report.
        figures: Where its figures lie, as seen from the file: a relative path with forward slashes.
    """
    parts = [f"# {escape_markdown(page.title)}"]
    several = len(page.parts) > 1
    for part in page.parts:
        if several:
            parts.append(f"## {escape_markdown(part.title)}")
        parts.append(escape_markdown(part.subtitle))
        for section in part.sections:
            parts.append(f"{'###' if several else '##'} {escape_markdown(section.title)}")
            for block in section.blocks:
                parts += _render(block, figures)
    return "\n\n".join(parts) + "\n"


def _render(block: Block, figures: str) -> Iterator[str]:
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
            yield f"<details><summary>{escape_markdown(block.caption)}</summary>"
            yield from _render(replace(block, folded=False), figures)
            yield "</details>"
        case Table():
            yield f"*{escape_markdown(block.caption)}*"
            yield _table(block)
            if block.left_out:
                yield f"{block.left_out:,} more rows are not shown."
        case Figure():
            words = escape_markdown(block.description)
            yield f"**{escape_markdown(block.title)}**" + (
                f" {escape_markdown(block.caption)}" if block.caption else ""
            )
            yield f"![{words}]({figures}/{block.name}.svg)"
            yield "<details><summary>Numbers of this figure</summary>"
            yield from _render(block.data, figures)
            yield "</details>"
        case Code():
            yield f"<details><summary>{escape_markdown(block.title)}</summary>"
            yield code_block(block.text, block.language)
            yield "</details>"


def _running(text: str) -> str:
    """Set what stands between backticks as code, and the rest as plain text."""
    parts = zip(text.split("`"), cycle((False, True)))
    return "".join(inline_code(part) if code else _spaced(part) for part, code in parts)


def _spaced(text: str) -> str:
    """Escape a text that may begin or end at a word's edge."""
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{before[:1]}{escape_markdown(text)}{after[:1]}" if text.strip() else text[:1]


def _table(table: Table) -> str:
    rules = ["---", *("---" if index in table.words else "---:" for index in range(1, len(table.headings)))]
    rows = [
        [f"**{cell}**" if index in table.strong and cell else cell for cell in map(escape_markdown, row)]
        for index, row in enumerate(table.rows)
    ]
    return "\n".join([_row(map(escape_markdown, table.headings)), _row(rules, ""), *(_row(row) for row in rows)])


def _row(cells: Sequence[str] | Iterator[str], gap: str = " ") -> str:
    return f"|{gap}" + f"{gap}|{gap}".join(cells) + f"{gap}|"
