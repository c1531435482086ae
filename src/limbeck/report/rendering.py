"""A report as HTML and as Markdown: blocks are rendered by one template and by `limbeck.core.markdown`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from limbeck.core import yaml
from limbeck.core.blocks import AnyCell, Block, Cell, Figure, counted
from limbeck.core.escaping import escape_markdown, printable
from limbeck.core.markdown import escaped_blocks
from limbeck.core.progress import Count, Report, no_progress
from limbeck.report.page import Page
from limbeck.report.pictures import picture_address
from limbeck.report.plots import WIDTH, Lines
from limbeck.report.sections import Highlight
from limbeck.version import __version__

MARKDOWN_MARK = "<!-- generator: limbeck "
"""Begins the Markdown of a report; its version follows. Renderers hide it."""
_PALETTE = Path(__file__).with_name("templates") / "palette.yaml"


def render_html(page: Page, report: Report = no_progress) -> str:
    """Return a report as HTML; whatever the folders hold is escaped.

    Args:
        page: The report.
        report: Receives the progress: a picture takes a few tenths of a second.
    """
    draw = _Drawing(sum(1 for _ in page.figures()), report)
    return _template().render(page=page, generator=f"limbeck {__version__}", themes=read_themes(), draw=draw)


class _Drawing:
    """Draws figures as the template comes to them, and reports each.

    Args:
        count: The number of all figures, for the share that is done.
        report: Receives the progress.
    """

    def __init__(self, count: int, report: Report) -> None:
        self._count = count
        self._report = report
        self._done = 0

    def __call__(self, figure: Figure, height: float | None) -> str:
        """Return a figure as the address of an image, with a height in inches or that of its drawing."""
        self._report(self._done / self._count, "drawing", Count(self._done, "figures"))
        address = picture_address(figure, height)
        self._done += 1
        return address

    def for_phone(self, figure: Figure, height: float | None) -> str:
        """Return a figure as it is drawn for a phone, with larger letters; empty where the usual one is shown there."""
        if not isinstance(figure.drawing, Lines) or figure.drawing.phone_width is None:
            return ""
        return picture_address(figure, height, figure.drawing.phone_width)


@cache
def read_themes() -> dict[str, dict[str, str]]:
    """Return the colours of both themes, by role."""
    palette = yaml.read_document(_PALETTE, f"'{_PALETTE}'", "install limbeck again.")
    light = {}
    dark = {}
    for role, (light_colour, dark_colour) in palette.items():
        light[role] = light_colour
        dark[role] = dark_colour
    return {"light": light, "dark": dark}


@cache
def _template() -> Template:
    """Load the template of a page, with the functions that it calls."""
    environment = Environment(
        loader=PackageLoader("limbeck.report"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["groups"] = _groups
    environment.filters["cell_parts"] = _cell_parts
    environment.filters["with_code"] = _with_code
    environment.filters["counted"] = counted
    return environment.get_template("report_page.html.j2")


def _printable(value: Any) -> Any:
    """Replace control characters in a value that the template inserts into the page.

    The output of the template's own macros and filters is `Markup`, a subclass of `str`, which is returned as it is.
    """
    is_plain_text = type(value) in (str, Cell)
    return printable(str(value)) if is_plain_text else value


def _cell_parts(cell: AnyCell) -> tuple[str, str]:
    """Return the value of a cell as it is written, and its detail; empty for none."""
    if isinstance(cell, Cell):
        return cell.main, cell.detail
    return cell, ""


def _with_code(text: str) -> Markup:
    """Return a text as HTML, with the parts between backticks as code; all of it is escaped."""
    html = Markup("")
    for number, part in enumerate(text.split("`")):
        escaped = escape(printable(part))
        # Parts 0, 2, 4 … are outside of backticks, parts 1, 3, 5 … are between two.
        is_code = number % 2 == 1
        if is_code:
            html += Markup("<code>{}</code>").format(escaped)
        else:
            html += escaped
    return html


@dataclass(frozen=True)
class _Group:
    """Blocks that follow one another, laid out alike: figures side by side, wide figures, or other blocks.

    Args:
        layout: `figures`, `wide`, or empty for other blocks.
        blocks: The blocks.
    """

    layout: str
    blocks: tuple[Block, ...]

    @property
    def height(self) -> float | None:
        """The height of figures side by side in inches, that of the tallest; None for other blocks."""
        if self.layout != "figures":
            return None
        return max(block.drawing.size[1] for block in self.blocks if isinstance(block, Figure))


def _groups(blocks: Sequence[Block]) -> Iterator[_Group]:
    """Yield blocks in groups that are laid out alike."""
    for layout, group in groupby(blocks, key=_layout_of):
        yield _Group(layout, tuple(group))


def _layout_of(block: Block) -> str:
    """Return the layout of a block, as `_Group` has it."""
    if not isinstance(block, Figure):
        return ""
    width, _ = block.drawing.size
    return "wide" if width > WIDTH else "figures"


def render_markdown(page: Page, figures: str) -> str:
    """Return a report as Markdown.

    Args:
        page: The report.
        figures: The folder of its figures, as a path relative to the Markdown file with forward slashes.
    """
    # If there are several folders, each has a heading of its own, and the headings of sections are a level deeper.
    texts = [f"{MARKDOWN_MARK}{__version__} -->", f"# {escape_markdown(page.title)}"]
    has_parts = len(page.parts) > 1
    for part in page.parts:
        if has_parts:
            texts.append(f"## {escape_markdown(part.title)}")
        texts.append(escape_markdown(part.subtitle))
        if part.highlights:
            texts.append("\n".join(_highlight_line(highlight) for highlight in part.highlights))
        if part.facts:
            texts.append("\n".join(f"- {escape_markdown(fact)}" for fact in part.facts))
        for section in part.sections:
            level = "###" if has_parts else "##"
            texts.append(f"{level} {escape_markdown(section.title)}")
            texts += escaped_blocks(section.blocks, figures)
    return "\n\n".join(texts) + "\n"


def _highlight_line(highlight: Highlight) -> str:
    """Return a highlight as a line of a list in Markdown."""
    line = f"- **{escape_markdown(highlight.value)}** {escape_markdown(highlight.label)}"
    if highlight.detail:
        line += f": {escape_markdown(highlight.detail)}"
    return line
