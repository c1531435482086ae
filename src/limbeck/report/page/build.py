"""From what was collected to the page: a part for each folder, and one that puts several side by side."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.report.page.comparison_sections import comparison_sections
from limbeck.report.page.content import Page, Part, Section, name_uniquely
from limbeck.report.page.evaluation_sections import evaluation_sections
from limbeck.report.page.findings import (
    ComparisonFound,
    EvaluationFound,
    Found,
    InspectionFound,
    RunFound,
    SearchFound,
)
from limbeck.report.page.inspection_sections import inspection_sections
from limbeck.report.page.kinds import describe_kind, subtitle
from limbeck.report.page.run_sections import run_sections
from limbeck.report.page.search_sections import search_sections
from limbeck.report.page.side_by_side import side_by_side
from limbeck.report.titles import title_of


def build_page(found: Sequence[Found]) -> Page:
    """Lay out a report.

    Args:
        found: What was collected; one or more.
    """
    titles = _titles(found)
    parts = [Part(title, subtitle(one), tuple(_sections(one))) for title, one in zip(titles, found, strict=True)]
    if len(found) == 1:
        return Page(f"{titles[0]}: {describe_kind(found[0])[0]}", name_uniquely(parts))
    compared = Part("Side by side", f"{len(found)} folders", tuple(side_by_side(found, titles)))
    return Page(f"{titles[0]} and {len(found) - 1} more", name_uniquely([compared, *parts]))


def _sections(found: Found) -> list[Section]:
    match found:
        case RunFound():
            inside = [
                Section(f"{section.title} ({one.title})", section.blocks)
                for one in found.inside
                for section in _sections(one)
            ]
            own = run_sections(found)
            # What was measured of the student comes before recipe and provenance.
            place = next((i for i, section in enumerate(own) if section.title == "Recipe"), len(own))
            return [*own[:place], *inside, *own[place:]]
        case ComparisonFound():
            return comparison_sections(found)
        case SearchFound():
            return search_sections(found)
        case EvaluationFound():
            return evaluation_sections(found)
        case InspectionFound():
            return inspection_sections(found)


def _titles(found: Sequence[Found]) -> list[str]:
    """Name what was collected; where names come twice, with their folders."""
    names = [title_of(one.title, one.folder) for one in found]
    with_folder = [f"{name} ({one.folder.name})" for name, one in zip(names, found, strict=True)]
    with_path = [f"{name} ({one.folder})" for name, one in zip(names, found, strict=True)]
    choices = zip(names, with_folder, with_path, strict=True)
    return [
        name if names.count(name) == 1 else short if with_folder.count(short) == 1 else long
        for name, short, long in choices
    ]
