"""Pages: a part for each folder, and one that puts several side by side; as one HTML file, as Markdown, as figures."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from limbeck.core import paths
from limbeck.core.blocks import (
    NOTHING,
    Block,
    Cell,
    Code,
    Figure,
    Notes,
    Section,
    Table,
    counted,
    duration,
    guarded,
    number,
)
from limbeck.core.escaping import escape_markdown, printable
from limbeck.core.files import atomic_text, writing
from limbeck.core.markdown import escaped_blocks
from limbeck.core.paths import REPORT_PAGE
from limbeck.core.records import RunEvaluation
from limbeck.errors import OutputError, RecipeError
from limbeck.report import comparison, evaluation, findings, inspection, plot_drawing, plots, run, search
from limbeck.report.collect import collect
from limbeck.report.figures import Measured, course_figures, quality_figures
from limbeck.report.quality import labelled_rows
from limbeck.report.verdicts import verdict
from limbeck.version import __version__

_GENERATOR = f"limbeck {__version__}"
_MADE_BY_US = '<meta name="generator" content="limbeck '
"""Near the beginning of a page of any version."""


@dataclass(frozen=True)
class Part:
    """All that is said of one folder.

    Args:
        title: Its name.
        subtitle: Its subject, in a line.
        sections: What is said.
        verdict: What it comes to, in one or two sentences; empty where that cannot be told.
    """

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    verdict: str = ""


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
                yield from (block for block in section.blocks if isinstance(block, Figure))

    @property
    def has_recipe(self) -> bool:
        """Whether it shows a recipe, whole."""
        blocks = (block for part in self.parts for section in part.sections for block in section.blocks)
        return any(isinstance(block, Code) and "recipe" in block.title.lower() for block in blocks)

    def warnings(self) -> list[str]:
        """Return all warnings, in order; of several folders each with its folder's name."""
        found = [
            (part.title, line)
            for part in self.parts
            for section in part.sections
            for block in section.blocks
            if isinstance(block, Notes) and block.warning
            for line in block.lines
        ]
        return [f"{title}: {line}" if len(self.parts) > 1 else line for title, line in found]


def name_uniquely(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Number the names of figures that come twice, in order."""
    seen: dict[str, int] = {}

    def renamed(block: Block) -> Block:
        if not isinstance(block, Figure):
            return block
        seen[block.name] = seen.get(block.name, 0) + 1
        return block if seen[block.name] == 1 else replace(block, name=f"{block.name}-{seen[block.name]}")

    def named(section: Section) -> Section:
        return replace(section, blocks=tuple(map(renamed, section.blocks)))

    return tuple(replace(part, sections=tuple(map(named, part.sections))) for part in parts)


def render_html(page: Page) -> str:
    """Return a report as HTML; whatever the folders hold is escaped."""
    return _template().render(page=page, generator=_GENERATOR, themes=plots.THEMES)


@cache
def _template() -> Template:
    environment = templates(autoescape=True, finalize=_printable, undefined=StrictUndefined)
    environment.filters |= {"groupby_kind": _runs_of_figures, "with_code": _with_code, "counted": counted}
    environment.filters["drawn"] = lambda figure: Markup(plot_drawing.svg_of(figure))
    return environment.get_template("report_page.html.j2")


def templates(**options: Any) -> Environment:
    """Return the templates of pages and cards."""
    return Environment(loader=PackageLoader("limbeck.report"), trim_blocks=True, lstrip_blocks=True, **options)


def _printable(value: Any) -> Any:
    """Replace control characters in what is not the template's own, which is Markup."""
    return printable(str(value)) if type(value) in (str, Cell) else value


def _with_code(text: str) -> Markup:
    """Set what stands between backticks as code, everything escaped."""
    parts = (escape(printable(part)) for part in text.split("`"))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if odd else part for part, odd in zip(parts, cycle((False, True)))
    )


def _runs_of_figures(blocks: Sequence[Block]) -> Iterator[tuple[bool, list[Block]]]:
    """Part blocks into figures that follow one another, which stand side by side, and what is between them."""
    for pictured, found in groupby(blocks, key=lambda block: block.kind == "figure"):
        yield pictured, list(found)


def render_markdown(page: Page, figures: str) -> str:
    """Return a report as Markdown.

    Args:
        page: The report.
        figures: Where its figures lie, as seen from the file: a relative path with forward slashes.
    """
    parts = [f"# {escape_markdown(page.title)}"]
    several = len(page.parts) > 1
    for part in page.parts:
        if several:
            parts.append(f"## {escape_markdown(part.title)}")
        parts.append(escape_markdown(part.subtitle))
        if part.verdict:
            parts.append(f"**{escape_markdown(part.verdict)}**")
        for section in part.sections:
            parts.append(f"{'###' if several else '##'} {escape_markdown(section.title)}")
            parts += escaped_blocks(section.blocks, figures)
    return "\n\n".join(parts) + "\n"


# A folder in a few words: its kind, how it stands, and its result.


def describe_kind(found: findings.Found) -> tuple[str, str, str]:
    """Return the kind of a folder, how it stands, and its result."""
    kind, status, result = "inspection", "finished", ""
    match found:
        case findings.RunFound():
            quality = run.quality_of(found)
            kept = f" ({quality.kept:.1%} of the teacher's)" if quality and quality.kept is not None else ""
            kind, status, result = "run", found.status.status, f"{quality or ''}{kept}"
        case findings.ComparisonFound():
            kind, status, result = "comparison", found.record.status or NOTHING, counted(len(found.record.cells), "run")
        case findings.SearchFound():
            kind, status, result = f"{found.record.kind or ''} search".strip(), found.status, search.result_of(found)
        case findings.EvaluationFound():
            status = "not finished" if found.summary.is_empty else "finished"
            kind, result = "evaluation", counted(len(found.cells), "cell")
        case findings.InspectionFound():
            result = ", ".join(found.results)
    return kind, status, result or NOTHING


def subtitle(found: findings.Found) -> str:
    """Say in a line what a part of the report is about."""
    kind, status, result = describe_kind(found)
    subject = kind.capitalize()
    if isinstance(found, findings.RunFound):
        teacher, student = paths.short_model_name(found.record.teacher.name_or_path), found.record.student.shape
        subject += f": {teacher} to {student}" if teacher and student else ""
    return f"{subject}; {status}" + (f"; {result}" if result != NOTHING else "")


# Several folders side by side: kind, quality and speed of their models, course of their training.


def side_by_side(found: Sequence[tuple[str, findings.Found]]) -> list[Section]:
    """Compare folders, each with its title: all of them in a line each, runs by their figures and their courses."""
    runs = [(title, one) for title, one in found if isinstance(one, findings.RunFound)]
    sections = guarded(found, {"Side by side": _all})
    if len(runs) > 1:
        sections += guarded(runs, {"Runs side by side": _runs, "Training side by side": course_figures})
    return sections


def _all(found: Sequence[tuple[str, findings.Found]]) -> Iterator[Block]:
    rows = tuple((title, *describe_kind(one), str(one.folder)) for title, one in found)
    yield Table("Folders in this report", ("", "Kind", "Status", "Result", "Folder"), rows, words=(1, 2, 3, 4))


def _runs(runs: Sequence[tuple[str, findings.RunFound]]) -> Iterator[Block]:
    facts = [dict(_facts(one)) for _, one in runs]
    labels = dict.fromkeys(label for found in facts for label in found)
    rows = tuple((label, *(found.get(label, NOTHING) for found in facts)) for label in labels)
    yield Table("Runs, one per column", ("", *(title for title, _ in runs)), rows)
    qualities = [(title, one, found) for title, one in runs if (found := run.quality_of(one)) is not None]
    models: dict[tuple[str, float], Measured] = {}
    for title, one, quality in qualities:
        batch = (one.record.evaluation or RunEvaluation()).first_batch
        for model in run.measured_models(one, quality) if batch.speedup else ():
            name = model.name if model.teacher else title
            share = 1.0 if model.teacher else 1 / (batch.speedup or 1.0)
            models.setdefault((name, round(model.quality, 4)), model._replace(name=name, latency=share))
    # Each run timed its own teacher beside its student: shares of one teacher's latency compare, milliseconds do not.
    teachers = {one.record.teacher.name_or_path for _, one, _ in qualities}
    if len({quality.label for *_, quality in qualities}) == len(teachers) == 1:
        yield from quality_figures(
            [*models.values()], quality.label, run.SHARE_OF_LATENCY.format(quality.latency), front=False
        )


def _facts(found: findings.RunFound) -> Iterator[tuple[str, str]]:
    record, stages = found.record, [stage.record for stage in found.stages]
    seconds = record.timings.get("total")
    yield "Status", found.status.status
    yield "Teacher", findings.without_path(record.teacher.name_or_path)
    yield "Student", record.student.shape
    yield "Methods", ", ".join(stage.method for stage in found.stages)
    yield "Tokens", str(number(sum(stage.tokens or 0 for stage in stages) or None))
    yield "Tokens/s", ", ".join(str(number(stage.tokens_per_second)) for stage in stages)
    yield "Time", NOTHING if seconds is None else duration(seconds)
    yield "Held-out loss", ", ".join(str(Cell(stage.held_out.get("loss"), "{:.4g}")) for stage in stages)
    for label, row in labelled_rows(record.evaluation or RunEvaluation()):
        _, _, student, change = row.cells()
        if row.kind == "milliseconds":  # Of another time on the machine than those of other runs.
            yield label.replace(", ms", ""), f"{change} than its teacher" if row.speedup is not None else NOTHING
        else:
            yield label, f"{student} ({change})" if change else student


def build_page(found: Sequence[findings.Found]) -> Page:
    """Lay out a report.

    Args:
        found: The content of folders, one or more.
    """
    titled = list(zip(_titles(found), found, strict=True))
    parts = [Part(title, subtitle(one), tuple(_sections(one)), verdict(one)) for title, one in titled]
    if len(found) == 1:
        return Page(f"{parts[0].title}: {describe_kind(found[0])[0]}", name_uniquely(parts))
    compared = Part("Side by side", f"{len(found)} folders", tuple(side_by_side(titled)))
    return Page(f"{parts[0].title} and {len(found) - 1} more", name_uniquely([compared, *parts]))


_SECTIONS: dict[type[findings.Found], Mapping[str, Callable[[Any], Iterable[Block]]]] = {
    findings.RunFound: run.SECTIONS,
    findings.ComparisonFound: comparison.SECTIONS,
    findings.SearchFound: search.SECTIONS,
    findings.EvaluationFound: evaluation.SECTIONS,
    findings.InspectionFound: inspection.SECTIONS,
}


def _sections(found: findings.Found) -> list[Section]:
    own = guarded(found, _SECTIONS[type(found)])
    inside = found.inside if isinstance(found, findings.RunFound) else ()
    of_student = [replace(part, title=f"{part.title} ({one.title})") for one in inside for part in _sections(one)]
    # Measurements of the student come before recipe and provenance.
    place = next((i for i, section in enumerate(own) if section.title == "Recipe"), len(own))
    return [*own[:place], *of_student, *own[place:]]


def _titles(found: Sequence[findings.Found]) -> list[str]:
    """Name the parts; where names come twice, with their folders."""
    names = [findings.title_of(one.title, one.folder) for one in found]
    short = [f"{name} ({one.folder.name})" for name, one in zip(names, found, strict=True)]
    whole = [f"{name} ({one.folder})" for name, one in zip(names, found, strict=True)]
    return [
        name if names.count(name) == 1 else with_folder if short.count(with_folder) == 1 else with_path
        for name, with_folder, with_path in zip(names, short, whole, strict=True)
    ]


# `write_report`: folders to a page, as HTML, as Markdown and as figures for papers.


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
        raise RecipeError("A report needs at least one folder: limbeck report runs/mine.")
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
            plot_drawing.write_figure(figure, file)
        drawn += files
    texts = {html: render_html(page)}
    if beside is not None:
        texts[beside] = render_markdown(page, Path(os.path.relpath(place, beside.parent)).as_posix())
    for path, text in texts.items():
        with writing(path):
            atomic_text(path, text)
    return WrittenReport(page, html, beside, tuple(drawn))


def _output(folders: Sequence[Path], output: Path | str | None) -> Path:
    """Choose and check where the page goes, before anything is read."""
    if output is None:
        first = folders[0].expanduser()
        home = (first if first.is_dir() else first.parent) if len(folders) == 1 else Path()
        path = home / REPORT_PAGE
    else:
        path = Path(output).expanduser()
    if path.suffix.lower() not in _SUFFIXES or path.is_dir():
        raise RecipeError(f"--output '{path}' is not an HTML file; give a name that ends with .html.")
    if path.exists() and _MADE_BY_US not in _head(path):
        raise OutputError(f"'{path}' exists and is not a limbeck report; give another --output.")
    return path


def _check_folder(path: Path) -> None:
    """Refuse what cannot become a folder of figures, before anything is read."""
    file = next((place for place in (path, *path.parents) if place.exists() and not place.is_dir()), None)
    if file is not None:
        raise RecipeError(f"--figures '{path}' must be a folder, but '{file}' is a file; give another folder.")


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise OutputError(f"'{path}' cannot be read: {error.strerror}.") from None
