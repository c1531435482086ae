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
from limbeck.core.files import writing

_STYLE = Path(__file__).with_name("templates") / "figure.mplstyle"
_LOCK = Lock()
"""Settings of matplotlib are those of the whole process."""
_TITLE_LETTERS_AN_INCH = 14


@contextmanager
def drawn(drawing: Drawing, title: str = "", caption: str = "") -> Iterator[Sheet]:
    """Draw a plot, below a title and a caption if there are any, to be saved within the context."""
    with _LOCK, style_context(_STYLE, after_reset=True), warnings.catch_warnings():
        # Text stays text in SVG files, which are read in their reader's fonts.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")
        # Names that leave no room for the plot spoil the picture alone; the table below it has all numbers.
        warnings.filterwarnings("ignore", "constrained_layout not applied")
        sheet = Sheet()
        width, height = drawing.size
        letters = int(width * _TITLE_LETTERS_AN_INCH)
        lines = textwrap.wrap(printable(title), letters) + textwrap.wrap(printable(caption), letters)
        if lines:
            sheet.suptitle("\n".join(lines))
        sheet.set_size_inches(width, height + 0.2 * len(lines))
        drawing.draw(sheet)
        yield sheet


def svg_of(figure: Figure, *, transparent: bool = True) -> bytes:
    """Return a figure as an SVG document; equal figures give equal bytes."""
    file = io.BytesIO()
    with drawn(figure.drawing) as sheet:
        sheet.savefig(file, format="svg", transparent=transparent, metadata={"Date": None})
    return file.getvalue()


def picture_address(figure: Figure, *, transparent: bool = True) -> str:
    """Return a figure as an address that holds all of it, for the `src` of an image."""
    svg = svg_of(figure, transparent=transparent)
    return f"data:image/svg+xml;base64,{b64encode(svg).decode()}"


def write_figure(figure: Figure, path: Path, *, titled: bool = False) -> None:
    """Write a figure as `.svg`, `.png` or `.pdf`; title and description go into its metadata.

    Args:
        figure: A figure of a report.
        path: The file; its folder is made if missing.
        titled: Write title and caption above the drawing, for a file that stands alone.

    Raises:
        OutputError: if the file cannot be written.
    """
    title = figure.title if titled else ""
    caption = figure.caption if titled else ""
    with drawn(figure.drawing, title, caption) as sheet, writing(path):
        sheet.savefig(path, metadata=_metadata(figure, path.suffix))


def _metadata(figure: Figure, suffix: str) -> dict[str, Any]:
    """Title and description by the names that each format has for them, and no dates: equal figures, equal files."""
    title = printable(figure.title)
    description = printable(f"{figure.caption} {figure.description}".strip())
    if suffix == ".pdf":
        return {"Title": title, "Subject": description, "CreationDate": None}
    metadata: dict[str, Any] = {"Title": title, "Description": description}
    if suffix == ".svg":
        metadata["Date"] = None
    return metadata
