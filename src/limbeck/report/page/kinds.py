"""What a folder is, how it stands and what came of it, in a few words each."""

from __future__ import annotations

from limbeck.report.page.content import NOTHING
from limbeck.report.page.findings import (
    ComparisonFound,
    EvaluationFound,
    Found,
    InspectionFound,
    RunFound,
    SearchFound,
)
from limbeck.report.page.guarded import DAMAGED
from limbeck.report.page.model_names import last_part
from limbeck.report.page.plain_values import entries, mapping, text
from limbeck.report.page.run_facts import quality_of
from limbeck.report.page.search_sections import what_was_found


def describe_kind(found: Found) -> tuple[str, str, str]:
    """Return what a folder is, how it stands, and what came of it."""
    match found:
        case RunFound():
            return "run", found.status.status, _of_run(found)
        case ComparisonFound():
            cells = entries(found.record, "cells")
            return "comparison", text(found.record, "status") or NOTHING, f"{len(cells)} runs"
        case SearchFound():
            kind = f"{text(found.record, 'kind')} search".strip()
            return kind, found.status, _of_search(found)
        case EvaluationFound():
            return "evaluation", "finished" if found.summary else "not finished", f"{len(found.cells)} cells"
        case InspectionFound():
            return "inspection", "finished", ", ".join(found.results) or NOTHING


def subtitle(found: Found) -> str:
    """Say in a line what a part of the report is about."""
    kind, status, result = describe_kind(found)
    what = kind.capitalize()
    if isinstance(found, RunFound):
        teacher = last_part(text(found.record, "teacher", "name_or_path"))
        student = text(found.record, "student", "shape")
        what = f"{what}: {teacher} to {student}" if teacher and student else what
    return f"{what}; {status}" + (f"; {result}" if result != NOTHING else "")


def _of_run(found: RunFound) -> str:
    quality = quality_of(mapping(found.record, "evaluation"))
    if quality is None or quality.student is None:
        return NOTHING
    kept = f" ({quality.kept:.1%} of the teacher's)" if quality.kept is not None else ""
    return f"{quality.label} {quality.student:.3f}{kept}"


def _of_search(found: SearchFound) -> str:
    try:
        if found.status == "finished":
            return what_was_found(found.record)
        return f"{what_was_found({**found.record, **found.so_far})}, so far" if found.so_far.get("best") else NOTHING
    except DAMAGED:
        return NOTHING  # A damaged record; its own part of the report says so.
