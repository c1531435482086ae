"""The file of a report, as a notebook shows it."""

import os
from html import escape
from pathlib import PosixPath
from urllib.parse import quote


class ReportPage(PosixPath):
    """The HTML file of a report; a notebook shows it as a link, relative to the folder of the notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        address = quote(os.path.relpath(self))
        return f'<a href="{address}" target="_blank">{escape(str(self))}</a>'
