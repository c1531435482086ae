"""Reading a search's folder: its record, and of one that is not finished what its study holds."""

from __future__ import annotations

import time
from pathlib import Path

from limbeck.report.page.findings import Record, SearchFound
from limbeck.report.page.guarded import DAMAGED
from limbeck.report.page.plain_values import text
from limbeck.report.page.search_so_far import so_far
from limbeck.report.page.search_standing import standing
from limbeck.report.page.search_study import read_study
from limbeck.search.requests import JOURNAL


def collect_search(folder: Path, record: Record, problems: tuple[str, ...]) -> SearchFound:
    """Read a search.

    Args:
        folder: Its folder.
        record: Its record, as far as it can be read.
        problems: What is wrong with that.
    """
    title = text(record, "name") or folder.name
    if text(record, "status") == "finished":
        return SearchFound(folder, title, record, problems)
    study, more = read_study(folder, title)
    if study is None:
        return SearchFound(folder, title, record, (*problems, *more))
    try:
        silent = max(0.0, time.time() - (folder / JOURNAL).stat().st_mtime)
        stands, found = standing(study, silent), so_far(text(record, "kind"), study)
    except (*DAMAGED, OSError) as error:
        damaged = f"The study '{title}' in '{JOURNAL}' is damaged ({type(error).__name__})."
        return SearchFound(folder, title, record, (*problems, *more, damaged))
    return SearchFound(folder, title, record, (*problems, *more), so_far=found, standing=stands)
