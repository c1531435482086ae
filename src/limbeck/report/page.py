"""Pages: the content of a report, before it becomes HTML or Markdown.

A page has a *part* for each folder, such as a run, and before these a part that compares the folders if there are
several. A part has *sections*, and a section has *blocks*: tables, figures, notes and other pieces.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from limbeck.core.blocks import NOTHING, AnyCell, Block, Figure, Notes, Section, Table, build_sections
from limbeck.core.plugins import load_plugins

# Each of these modules registers the sections of a kind of folder.
from limbeck.report import comparison_sections as comparison_sections
from limbeck.report import evaluation_sections as evaluation_sections
from limbeck.report import inspection_sections as inspection_sections
from limbeck.report import run as run
from limbeck.report import search_sections as search_sections
from limbeck.report.curves import course_figures
from limbeck.report.figures import is_single_point
from limbeck.report.names import title_of
from limbeck.report.run_quality import reason_without_quality
from limbeck.report.runs_beside import MAIN_HEADINGS, main_cells, run_blocks, training_seconds
from limbeck.report.sections import Highlight, facts_of, highlights_of, sections_of, summary_of
from limbeck.report.subjects import RunFolder, Subject


@dataclass(frozen=True)
class Part:
    """The report of one folder.

    Args:
        title: Its name.
        subtitle: Its subject, in a line.
        sections: In order.
        facts: What a reader must know beside the highlights, a plain sentence each.
        highlights: Figures that are set large, in one row.
    """

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    facts: tuple[str, ...] = ()
    highlights: tuple[Highlight, ...] = ()


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
                for block in section.blocks:
                    if isinstance(block, Figure):
                        yield block

    def warnings(self) -> list[str]:
        """Return all warnings, in order; of several folders each with its folder's name."""
        lines = []
        for part in self.parts:
            owner = f"{part.title}: " if len(self.parts) > 1 else ""
            for section in part.sections:
                for block in section.blocks:
                    if isinstance(block, Notes) and block.warning:
                        lines += [f"{owner}{line}" for line in block.lines]
        return lines


def build_page(subjects: Sequence[Subject]) -> Page:
    """Lay out a report.

    Args:
        subjects: The content of folders, one or more.
    """
    # Plugins may register sections. A plugin's section without `after` follows those of the modules imported above.
    load_plugins()
    titled = list(zip(_titles(subjects), subjects, strict=True))
    parts = [_part(title, subject) for title, subject in titled]
    first = parts[0].title
    if len(subjects) == 1:
        kind = summary_of(subjects[0]).kind
        return Page(f"{first}: {kind}", _number_figures(parts))

    # Several folders are compared first, then shown in full.
    compared = Part("Side by side", f"{len(subjects)} folders", tuple(side_by_side(titled)))
    title = f"{first} and {len(subjects) - 1} more"
    return Page(title, _number_figures([compared, *parts]))


def _titles(subjects: Sequence[Subject]) -> list[str]:
    """Return the titles of the parts: the names of their folders' content, or the folders of names that recur."""
    names = [title_of(subject.title, subject.folder) for subject in subjects]
    counts = Counter(names)
    titles = []
    for name, subject in zip(names, subjects, strict=True):
        if counts[name] == 1:
            titles.append(name)
            continue
        others = [str(other.folder.resolve()) for other in subjects if other is not subject]
        titles.append(_title_by_folder(subject.folder, [*others, *names]))
    return titles


def _title_by_folder(folder: Path, others: Sequence[str]) -> str:
    """Return the shortest end of a folder's path by which it is told apart: `first`, or `old/first` beside `new/first`.

    Args:
        folder: The folder.
        others: The paths of other folders, and names.
    """
    parts = folder.resolve().parts
    for count in range(1, len(parts)):
        end = parts[-count:]
        if not any(Path(other).parts[-count:] == end for other in others):
            return "/".join(end)
    return str(folder)


def _part(title: str, subject: Subject) -> Part:
    """Lay out the part of a folder; its subtitle has the form `Run: BERT to 6x384; finished`.

    Without highlights, the subtitle has the result too.
    """
    summary = summary_of(subject)
    highlights = tuple(highlights_of(subject))
    subtitle = summary.kind.capitalize()
    if summary.subject:
        subtitle += f": {summary.subject}"
    subtitle += f"; {summary.status}"
    if summary.result and not highlights:
        subtitle += f"; {summary.result}"
    return Part(title, subtitle, tuple(_sections(subject)), tuple(facts_of(subject)), highlights)


def _sections(subject: Subject) -> list[Section]:
    """Return the sections of a folder that have any block.

    A figure of a single point shows nothing, so a table of its numbers takes its place first.

    A run's folder may hold evaluations, searches and inspections. Their sections come before the run's recipe, with
    their names behind the titles.
    """
    sections = []
    for section in sections_of(subject):
        shown_section = _without_single_points(section)
        if shown_section.blocks:
            sections.append(shown_section)
    if not isinstance(subject, RunFolder):
        return sections

    sections_inside: list[Section] = []
    for measurement in subject.inside:
        name = measurement.title
        sections_inside += [replace(section, title=f"{section.title} ({name})") for section in _sections(measurement)]
    # A damaged run may lack the section of its recipe.
    titles = [section.title for section in sections]
    before_recipe = len(sections)
    if "Recipe" in titles:
        before_recipe = titles.index("Recipe")
    return [*sections[:before_recipe], *sections_inside, *sections[before_recipe:]]


def _without_single_points(section: Section) -> Section:
    """Replace figures of a single point by the tables of their numbers; a figure without a table is left out."""
    blocks: list[Block] = []
    for block in section.blocks:
        if not isinstance(block, Figure) or not is_single_point(block.drawing):
            blocks.append(block)
        elif block.data is not None:
            blocks.append(replace(block.data, caption=block.title))
    return replace(section, blocks=tuple(blocks))


def _number_figures(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts with unique names of figures, which are the names of their files.

    The second figure of a name gets the number 2 behind it, and so on.
    """
    counts: Counter[str] = Counter()
    numbered_parts = []
    for part in parts:
        sections = []
        for section in part.sections:
            blocks: list[Block] = []
            for block in section.blocks:
                if isinstance(block, Figure):
                    counts[block.name] += 1
                    is_first = counts[block.name] == 1
                    name = block.name if is_first else f"{block.name}-{counts[block.name]}"
                    blocks.append(replace(block, name=name))
                else:
                    blocks.append(block)
            sections.append(replace(section, blocks=tuple(blocks)))
        numbered_parts.append(replace(part, sections=tuple(sections)))
    return tuple(numbered_parts)


def side_by_side(subjects: Sequence[tuple[str, Subject]]) -> list[Section]:
    """Compare folders, each with its title: all of them in a row each, runs by their figures and their courses."""
    sections = build_sections(subjects, {"Side by side": _folders_table})
    runs = [(title, subject) for title, subject in subjects if isinstance(subject, RunFolder)]
    if len(runs) > 1:
        sections += build_sections(runs, {"Runs side by side": run_blocks, "Training side by side": course_figures})
    return sections


def _folders_table(subjects: Sequence[tuple[str, Subject]]) -> Iterator[Block]:
    """Yield a table with a row for each folder, whose name leads to its part of the page."""
    has_runs = any(isinstance(subject, RunFolder) for _, subject in subjects)
    # The longest training decides the unit of all times of training.
    longest = 0.0
    for _, subject in subjects:
        if isinstance(subject, RunFolder):
            longest = max(longest, training_seconds(subject))
    rows: list[tuple[AnyCell, ...]] = []
    for title, subject in subjects:
        summary = summary_of(subject)
        result = summary.result
        if not result and isinstance(subject, RunFolder):
            result = reason_without_quality(subject)
        cells: list[AnyCell] = [title, result or NOTHING]
        # Size, speed and time of a run; other folders have none.
        if isinstance(subject, RunFolder):
            cells += main_cells(subject, longest)
        elif has_runs:
            cells += [NOTHING] * len(MAIN_HEADINGS)
        rows.append((*cells, summary.status, summary.kind, str(subject.folder)))
    run_headings = MAIN_HEADINGS if has_runs else ()
    # A phone shows the first columns: the results, and the speed of runs.
    headings = ("", "Result", *run_headings, "Status", "Kind", "Folder")
    # The first part of the page is this comparison, so those of the folders begin with the second.
    links = tuple(part_anchor(number) for number in range(2, len(rows) + 2))
    table = Table("Folders in this report", headings, tuple(rows), links=links)
    yield table.with_words("Result", "Status", "Kind", "Folder")


def part_anchor(number: int) -> str:
    """Return the anchor of a part of a page, by its number from 1; the first part of several compares the others."""
    return f"part-{number}"
