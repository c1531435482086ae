"""`report`: one page of what folders hold."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from limbeck.api.calls import python_call
from limbeck.api.requests.report import ReportRequest
from limbeck.api.requests.values import as_list
from limbeck.api.results import Result, write_page
from limbeck.errors import RecipeError

if TYPE_CHECKING:
    from limbeck.report.writing import WrittenReport


def carry_out_report(request: ReportRequest) -> WrittenReport:
    """Write one HTML page of what runs, comparisons, searches, evaluations and inspections found.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.

    Example:
        >>> page = limbeck.report("runs/e5")
        >>> page.html
        PosixPath('runs/e5/report.html')
    """
    folders = []
    for value in as_list(request.folders):
        if isinstance(value, Result):
            folders.append(value.folder)
        elif isinstance(value, str | PathLike):
            folders.append(Path(value))
        else:
            raise RecipeError(f"folders: {value!r:.80} is no folder; give paths of folders, or results of limbeck.")
    return write_page(
        folders,
        request.output,
        markdown=request.markdown,
        figures=request.figures,
        show=request.show,
        console=request.console,
    )


report = python_call("report", ReportRequest, carry_out_report)
