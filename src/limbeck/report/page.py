"""From what was collected to the page: a part for each folder, and one that puts several side by side."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from limbeck.core.blocks import NOTHING, Block, Cell, Section, Table, duration, guarded, number
from limbeck.core.files import atomic_text
from limbeck.core.records import RunEvaluation
from limbeck.errors import OutputError, RecipeError
from limbeck.report import findings
from limbeck.report.collect import collect
from limbeck.report.comparison import comparison_sections
from limbeck.report.evaluation import evaluation_sections
from limbeck.report.figures import Measured, course_figures, quality_figure
from limbeck.report.html import MADE_BY_US, Page, Part, name_uniquely, render_html, render_markdown
from limbeck.report.inspection import inspection_sections
from limbeck.report.plot_drawing import write_figure
from limbeck.report.quality import labelled_rows
from limbeck.report.run import Quality, measured_models, quality_of, run_sections
from limbeck.report.search import result_of, search_sections

# A folder in a few words: its kind, how it stands, and its result.


def describe_kind(found: findings.Found) -> tuple[str, str, str]:
    """Return the kind of a folder, how it stands, and its result."""
    kind, status, result = "inspection", "finished", ""
    match found:
        case findings.RunFound():
            kind, status, result = "run", found.status.status, _of_run(found)
        case findings.ComparisonFound():
            kind, status, result = "comparison", found.record.status or NOTHING, f"{len(found.record.cells)} runs"
        case findings.SearchFound():
            kind, status, result = f"{found.record.kind or ''} search".strip(), found.status, result_of(found)
        case findings.EvaluationFound():
            status = "not finished" if found.summary.is_empty else "finished"
            kind, result = "evaluation", f"{len(found.cells)} cells"
        case findings.InspectionFound():
            result = ", ".join(found.results)
    return kind, status, result or NOTHING


def _of_run(found: findings.RunFound) -> str:
    quality = quality_of(found)
    kept = f" ({quality.kept:.1%} of the teacher's)" if quality is not None and quality.kept is not None else ""
    return "" if quality is None else f"{quality}{kept}"


def subtitle(found: findings.Found) -> str:
    """Say in a line what a part of the report is about."""
    kind, status, result = describe_kind(found)
    subject = kind.capitalize()
    if isinstance(found, findings.RunFound):
        teacher, student = findings.last_part(found.record.teacher.name_or_path), found.record.student.shape
        subject += f": {teacher} to {student}" if teacher and student else ""
    return f"{subject}; {status}" + (f"; {result}" if result != NOTHING else "")


# Several folders side by side: kind, quality and speed of their models, course of their training.


def side_by_side(found: Sequence[findings.Found], titles: Sequence[str]) -> list[Section]:
    """Compare folders: all of them in a line each, runs by their figures and their courses.

    Args:
        found: What was collected.
        titles: What each is called.
    """
    runs = [(title, one) for title, one in zip(titles, found, strict=True) if isinstance(one, findings.RunFound)]
    sections = guarded("Side by side", lambda: _all(found, titles))
    if len(runs) > 1:
        sections += guarded("Runs side by side", lambda: _runs(runs))
        sections += guarded("Training side by side", lambda: course_figures(runs))
    return sections


def _all(found: Sequence[findings.Found], titles: Sequence[str]) -> Iterator[Block]:
    rows = tuple((title, *describe_kind(one), str(one.folder)) for title, one in zip(titles, found, strict=True))
    yield Table("What this report is about", ("", "What", "Status", "Result", "Folder"), rows, words=(1, 2, 3, 4))


def _runs(runs: Sequence[tuple[str, findings.RunFound]]) -> Iterator[Block]:
    facts = [dict(_facts(run)) for _, run in runs]
    labels = dict.fromkeys(label for found in facts for label in found)
    rows = tuple((label, *(found.get(label, NOTHING) for found in facts)) for label in labels)
    yield Table("Runs, a column each", ("", *(title for title, _ in runs)), rows)
    qualities: dict[str, Quality] = {}
    models: dict[tuple[str, float], Measured] = {}
    for title, run in runs:
        if (quality := quality_of(run)) is None:
            continue
        qualities[quality.label] = quality
        for model in measured_models(run, quality):
            name = model.name if model.teacher else title
            # One teacher is measured anew by every run; its first latency stands for all.
            key = (name, round(model.quality, 4)) if model.teacher else (name, model.latency)
            models.setdefault(key, replace(model, name=name))
    if len(qualities) == 1 and len(models) > 1:
        [quality] = qualities.values()
        yield quality_figure(list(models.values()), quality.label, quality.latency)


def _facts(run: findings.RunFound) -> Iterator[tuple[str, str]]:
    record, stages = run.record, [stage.record for stage in run.stages]
    seconds = record.timings.get("total")
    yield "Status", run.status.status
    yield "Teacher", findings.without_path(record.teacher.name_or_path)
    yield "Student", record.student.shape
    yield "Methods", ", ".join(stage.method for stage in run.stages)
    yield "Tokens", str(number(sum(stage.tokens or 0 for stage in stages) or None))
    yield "Tokens/s", ", ".join(str(number(stage.tokens_per_second)) for stage in stages)
    yield "Time", NOTHING if seconds is None else duration(seconds)
    yield "Held-out loss", ", ".join(str(Cell(stage.held_out.get("loss"), "{:.4g}")) for stage in stages)
    for label, row in labelled_rows(record.evaluation or RunEvaluation()):
        _, _, student, change = row.cells()
        yield label, f"{student} ({change})" if change else student


def build_page(found: Sequence[findings.Found]) -> Page:
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


def _sections(found: findings.Found) -> list[Section]:
    if not isinstance(found, findings.RunFound):
        return _SECTIONS[type(found)](found)
    inside = [
        Section(f"{section.title} ({one.title})", section.blocks) for one in found.inside for section in _sections(one)
    ]
    own = run_sections(found)
    # What was measured of the student comes before recipe and provenance.
    place = next((i for i, section in enumerate(own) if section.title == "Recipe"), len(own))
    return [*own[:place], *inside, *own[place:]]


_SECTIONS: dict[type[findings.Found], Callable[[Any], list[Section]]] = {
    findings.ComparisonFound: comparison_sections,
    findings.SearchFound: search_sections,
    findings.EvaluationFound: evaluation_sections,
    findings.InspectionFound: inspection_sections,
}


def _titles(found: Sequence[findings.Found]) -> list[str]:
    """Name what was collected; where names come twice, with their folders."""
    names = [findings.title_of(one.title, one.folder) for one in found]
    short = [f"{name} ({one.folder.name})" for name, one in zip(names, found, strict=True)]
    whole = [f"{name} ({one.folder})" for name, one in zip(names, found, strict=True)]
    choices = zip(names, short, whole, strict=True)
    return [
        name if names.count(name) == 1 else with_folder if short.count(with_folder) == 1 else with_path
        for name, with_folder, with_path in choices
    ]


# `write_report`: folders to a page, as HTML, as Markdown and as figures for papers.


NAME = "report.html"
_SUFFIXES = (".html", ".htm")
_HEAD = 2000


@dataclass(frozen=True)
class WrittenReport:
    """A report that was written.

    Args:
        page: Its content.
        html: The HTML file.
        markdown: The Markdown file, where it was asked for.
        figures: The figures' files, where they were asked for.
    """

    page: Page
    html: Path
    markdown: Path | None
    figures: tuple[Path, ...]

    @property
    def sections(self) -> tuple[str, ...]:
        """The titles of its sections, in order."""
        return tuple(section.title for part in self.page.parts for section in part.sections)


def write_report(
    folders: Sequence[Path | str],
    output: Path | str | None = None,
    *,
    markdown: bool = False,
    figures: Path | str | None = None,
) -> WrittenReport:
    """Write a report of runs, comparisons, searches, evaluations and inspections.

    What is unfinished or damaged is reported as far as it goes, with a warning; nothing in the folders is changed,
    except for the report itself where it goes into one of them.

    Args:
        folders: Its subjects; several are put side by side.
        output: The HTML file; by default `report.html` in the folder, or in the current one for several.
        markdown: Write the same as Markdown beside it, with its figures.
        figures: A folder for the figures as SVG and PNG; with Markdown by default beside it.

    Raises:
        RecipeError: for no folder, an output that is no HTML file, or a file where the figures' folder would be.
        OutputError: for a folder that holds nothing of ours, and for files that cannot be written, or are not a report
            and would be replaced.
    """
    if not folders:
        raise RecipeError("A report is of one folder or more: limbeck report runs/mine.")
    paths = [Path(folder) for folder in folders]
    html = _output(paths, output)
    if figures is not None:
        _check_folder(Path(figures).expanduser())
    page = build_page(collect(paths))
    beside = html.with_suffix(".md") if markdown else None
    place = Path(figures).expanduser() if figures is not None else html.with_name(f"{html.stem}-figures")
    drawn: list[Path] = []
    for figure in page.figures() if markdown or figures is not None else ():
        files = [place / f"{figure.name}{suffix}" for suffix in (".svg", ".png")]
        for file in files:
            write_figure(figure, file)
        drawn += files
    _write(html, render_html(page))
    if beside is not None:
        relative = Path(os.path.relpath(place, beside.parent)).as_posix()
        _write(beside, render_markdown(page, relative))
    return WrittenReport(page, html, beside, tuple(drawn))


def _output(folders: Sequence[Path], output: Path | str | None) -> Path:
    """Choose and check where the page goes, before anything is read."""
    if output is None:
        first = folders[0].expanduser()
        home = (first if first.is_dir() else first.parent) if len(folders) == 1 else Path()
        path = home / NAME
    else:
        path = Path(output).expanduser()
    if path.suffix.lower() not in _SUFFIXES or path.is_dir():
        raise RecipeError(f"--output '{path}' is no HTML file; give a name that ends with .html.")
    if path.exists() and MADE_BY_US not in _head(path):
        raise OutputError(f"'{path}' is there already and is not a report of limbeck; give another --output.")
    return path


def _check_folder(path: Path) -> None:
    """Refuse what cannot become a folder of figures, before anything is read."""
    file = next((place for place in (path, *path.parents) if place.exists() and not place.is_dir()), None)
    if file is not None:
        raise RecipeError(f"--figures '{path}' is to be a folder, and '{file}' is a file; give another folder.")


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise OutputError(f"'{path}' cannot be read: {error.strerror}.") from None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_text(path, text)
    except OSError as error:
        raise OutputError(f"'{path}' cannot be written: {error.strerror or error}.") from None
