"""Figures as pictures: inside a page, and as files."""

import io
import textwrap
import warnings
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from matplotlib.figure import Figure as Sheet
from matplotlib.style import context as style_context

from limbeck.core.blocks import Drawing, Figure
from limbeck.core.escaping import printable
from limbeck.core.files import atomic_file, writing

_STYLE = Path(__file__).with_name("templates") / "figure.mplstyle"
_LOCK = Lock()
"""Held while a figure is drawn, since matplotlib's settings are those of the whole process."""
_TITLE_LETTERS_AN_INCH = 14
"""Letters of a title that fit into an inch of the width."""
_HEADING_LINE_INCHES = 0.2
"""Height of a line of title or caption."""


@contextmanager
def drawn(
    drawing: Drawing, title: str = "", caption: str = "", height: float | None = None, width: float | None = None
) -> Iterator[Sheet]:
    """Draw a plot on a sheet, which must be saved within the context, under limbeck's settings of matplotlib.

    Args:
        drawing: The plot.
        title: A title above the plot; empty for none.
        caption: A caption between title and plot; empty for none.
        height: Height of the plot in inches, without title and caption; None takes that of `drawing.size`.
        width: Its width in inches; None likewise.
    """
    default_width, default_height = drawing.size
    if height is None:
        height = default_height
    if width is None:
        width = default_width
    letters_per_line = int(width * _TITLE_LETTERS_AN_INCH)
    heading_lines = [
        *textwrap.wrap(printable(title), letters_per_line),
        *textwrap.wrap(printable(caption), letters_per_line),
    ]
    with _LOCK, style_context(_STYLE, after_reset=True), warnings.catch_warnings():
        # matplotlib's own font lacks some scripts. An SVG file holds text, not shapes: its viewer's fonts show it.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")
        # Very long names can leave no room for the plot. The report is still useful: its tables hold the same numbers.
        warnings.filterwarnings("ignore", "constrained_layout not applied")
        sheet = Sheet()
        sheet.set_size_inches(width, height + _HEADING_LINE_INCHES * len(heading_lines))
        if heading_lines:
            sheet.suptitle("\n".join(heading_lines))
        drawing.draw(sheet)
        yield sheet


def svg_of(
    figure: Figure, *, height: float | None = None, width: float | None = None, transparent: bool = True
) -> bytes:
    """Return a figure as an SVG document; equal figures give equal bytes.

    Args:
        figure: The figure.
        height: Its height in inches; None for that of its drawing.
        width: Its width in inches; None likewise.
        transparent: Whether it has no background.
    """
    file = io.BytesIO()
    with drawn(figure.drawing, height=height, width=width) as sheet:
        sheet.savefig(file, format="svg", transparent=transparent, metadata={"Date": None})
    return file.getvalue()


def picture_address(
    figure: Figure, height: float | None = None, width: float | None = None, *, transparent: bool = True
) -> str:
    """Return a figure as an address that holds all of it, for the `src` of an image.

    Args:
        figure: The figure.
        height: Its height in inches; None for that of its drawing.
        width: Its width in inches; None likewise.
        transparent: Whether it has no background.
    """
    svg = svg_of(figure, height=height, width=width, transparent=transparent)
    return f"data:image/svg+xml;base64,{b64encode(svg).decode()}"


def write_figure(figure: Figure, path: Path, *, titled: bool = False) -> None:
    """Write a figure as `.svg`, `.png` or `.pdf`, whole or not at all; title and description go into its metadata.

    Args:
        figure: A figure of a report.
        path: The file; its folder is made if missing.
        titled: Write title and caption above the drawing, for a file that stands alone.

    Raises:
        OutputError: if the file cannot be written.
    """
    title = figure.title if titled else ""
    caption = figure.caption if titled else ""
    format_name = path.suffix.removeprefix(".")
    with (
        drawn(figure.drawing, title, caption) as sheet,
        writing(path),
        # `shared`, since several workers of a search may end together, and each writes its figures.
        atomic_file(path, shared=True) as partial,
    ):
        sheet.savefig(partial, format=format_name, metadata=_metadata(figure, path.suffix))


def _metadata(figure: Figure, suffix: str) -> dict[str, Any]:
    """Return title and description by a format's names for them, without a date: equal figures give equal files."""
    title = printable(figure.title)
    description = printable(f"{figure.caption} {figure.description}".strip())
    if suffix == ".pdf":
        return {"Title": title, "Subject": description, "CreationDate": None}
    metadata: dict[str, Any] = {"Title": title, "Description": description}
    if suffix == ".svg":
        metadata["Date"] = None
    return metadata
