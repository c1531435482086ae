"""Rendering a report as one HTML file that needs nothing beside it: no network, no scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle, groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from limbeck.report.content import Block, Code, Facts, Figure, Notes, Page, Paragraph, Steps, Table
from limbeck.report.marks import WIDTH, Point
from limbeck.report.model_card import code_block, escape_markdown, inline_code
from limbeck.report.palette import HEAT_LEVELS, SERIES, THEMES, ink_on_heat
from limbeck.version import __version__

_TEMPLATE = "report_page.html.j2"
GENERATOR = f"limbeck {__version__}"
MADE_BY_US = '<meta name="generator" content="limbeck '
"""What a page of any version has near its beginning."""


def render_html(page: Page) -> str:
    """Return a report as HTML; whatever the folders hold is escaped."""
    heat_inks = {
        name: [ink_on_heat(theme, level) for level in range(HEAT_LEVELS + 1)] for name, theme in THEMES.items()
    }
    return _template().render(
        page=page,
        generator=GENERATOR,
        themes=THEMES,
        heat_inks=heat_inks,
        heat_levels=range(HEAT_LEVELS + 1),
        series=range(1, SERIES + 1),
        width=WIDTH,
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("limbeck.report"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(n=_number, points=_points, groupby_kind=_runs_of_figures, with_code=_with_code)
    return environment.get_template(_TEMPLATE)


def _printable(value: Any) -> Any:
    """Keep control characters out, among them those that turn the direction of text around."""
    if type(value) is not str:  # Markup is the template's own.
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in value)


def _number(value: float) -> str:
    """Write a length with a decimal at most."""
    return f"{value:.1f}".removesuffix(".0")


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _with_code(text: str) -> Markup:
    """Set what stands between backticks as code, everything escaped."""
    parts = (escape(_printable(part)) for part in text.split("`"))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if odd else part for part, odd in zip(parts, cycle((False, True)))
    )


def _runs_of_figures(blocks: Sequence[Block]) -> Iterator[tuple[bool, list[Block]]]:
    """Part blocks into figures that follow one another, which stand side by side, and what is between them."""
    for pictured, found in groupby(blocks, key=lambda block: block.kind == "figure"):
        yield pictured, list(found)


# Rendering a report as Markdown: the same text, tables and numbers, with figures as files.


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
