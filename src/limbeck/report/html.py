"""A report as a page: its parts, and its rendering as one HTML file without network or scripts, and as Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from limbeck.core.blocks import Block, Cell, Figure, Notes, Section
from limbeck.core.markdown import escape_markdown, escaped_blocks
from limbeck.report.plot_drawing import svg_of
from limbeck.report.plots import THEMES, printable
from limbeck.version import __version__

_TEMPLATE = "report_page.html.j2"
GENERATOR = f"limbeck {__version__}"
MADE_BY_US = '<meta name="generator" content="limbeck '
"""What a page of any version has near its beginning."""


@dataclass(frozen=True)
class Part:
    """All that is said of one folder.

    Args:
        title: Its name.
        subtitle: Its subject, in a line.
        sections: What is said.
    """

    title: str
    subtitle: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Page:
    """A report.

    Args:
        title: Of the whole.
        parts: One for each folder, after one that compares them where there are several.
    """

    title: str
    parts: tuple[Part, ...]

    def figures(self) -> Iterator[Figure]:
        """Go through all figures, in order."""
        for part in self.parts:
            for section in part.sections:
                yield from (block for block in section.blocks if isinstance(block, Figure))

    def warnings(self) -> list[str]:
        """Return all warnings, in order; of several folders each with its folder's name."""
        found = [
            (part.title, line)
            for part in self.parts
            for section in part.sections
            for block in section.blocks
            if isinstance(block, Notes) and block.warning
            for line in block.lines
        ]
        return [f"{title}: {line}" if len(self.parts) > 1 else line for title, line in found]


def name_uniquely(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Number the names of figures that come twice, in order."""
    seen: dict[str, int] = {}

    def renamed(block: Block) -> Block:
        if not isinstance(block, Figure):
            return block
        seen[block.name] = seen.get(block.name, 0) + 1
        return block if seen[block.name] == 1 else replace(block, name=f"{block.name}-{seen[block.name]}")

    def named(section: Section) -> Section:
        return replace(section, blocks=tuple(map(renamed, section.blocks)))

    return tuple(replace(part, sections=tuple(map(named, part.sections))) for part in parts)


def render_html(page: Page) -> str:
    """Return a report as HTML; whatever the folders hold is escaped."""
    return _template().render(page=page, generator=GENERATOR, themes=THEMES)


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
    environment.filters.update(
        groupby_kind=_runs_of_figures, with_code=_with_code, drawn=lambda figure: Markup(svg_of(figure))
    )
    return environment.get_template(_TEMPLATE)


def _printable(value: Any) -> Any:
    """Replace control characters in what is not the template's own, which is Markup."""
    return printable(str(value)) if type(value) in (str, Cell) else value


def _with_code(text: str) -> Markup:
    """Set what stands between backticks as code, everything escaped."""
    parts = (escape(printable(part)) for part in text.split("`"))
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
            parts += escaped_blocks(section.blocks, figures)
    return "\n\n".join(parts) + "\n"
