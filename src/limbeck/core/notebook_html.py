"""Text from rich as HTML of a notebook's cell."""

from rich.console import Console

_TABLE = (
    '<pre style="font-family:monospace;white-space:pre;line-height:normal;overflow-x:auto;padding-bottom:.25em">'
    "{code}</pre>"
)
"""A table's columns need letters of one width, and a narrow page scrolls.

A box that scrolls is cut at its edges: without the padding, the underscores of the last line are not seen.
"""
_LINES = (
    '<pre style="font-family:monospace;white-space:pre-wrap;word-break:normal;overflow-wrap:break-word;'
    'line-height:normal;padding-bottom:.25em">{code}</pre>'
)
"""Notes and other lines wrap at the edge of the page, however wide it is.

Without `word-break:normal`, the style of JupyterLab for outputs breaks lines inside of words.
"""


def html_of_page(page: Console, *, are_lines: bool = False) -> str:
    """Return what a console has recorded as HTML.

    Args:
        page: The console, which records what is printed.
        are_lines: Whether it is lines, which the page wraps; a table is printed as wide as in a terminal.
    """
    return page.export_html(inline_styles=True, clear=False, code_format=_LINES if are_lines else _TABLE)
