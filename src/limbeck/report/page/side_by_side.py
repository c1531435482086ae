"""Several folders side by side: what they are, how good and fast their models are, how their training went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from limbeck.report.figures import comparison_rows
from limbeck.report.page.content import NOTHING, Block, Section, Table
from limbeck.report.page.course_figures import course_figures
from limbeck.report.page.findings import Found, RunFound
from limbeck.report.page.guarded import guarded
from limbeck.report.page.kinds import describe_kind
from limbeck.report.page.model_names import without_path
from limbeck.report.page.plain_values import mapping, number, text
from limbeck.report.page.quality_figures import Measured, quality_figure
from limbeck.report.page.run_facts import measured_models, quality_of
from limbeck.report.search_grid import duration


def side_by_side(found: Sequence[Found], titles: Sequence[str]) -> list[Section]:
    """Compare folders: all of them in a line each, runs by their figures and their courses.

    Args:
        found: What was collected.
        titles: What each is called.
    """
    runs = [(title, one) for title, one in zip(titles, found, strict=True) if isinstance(one, RunFound)]
    return [
        *guarded("Side by side", lambda: _all(found, titles)),
        *(guarded("Runs side by side", lambda: _runs(runs)) if len(runs) > 1 else []),
        *(guarded("Training side by side", lambda: course_figures(runs)) if len(runs) > 1 else []),
    ]


def _all(found: Sequence[Found], titles: Sequence[str]) -> Iterator[Block]:
    rows = tuple((title, *describe_kind(one), str(one.folder)) for title, one in zip(titles, found, strict=True))
    yield Table("What this report is about", ("", "What", "Status", "Result", "Folder"), rows, words=(1, 2, 3, 4))


def _runs(runs: Sequence[tuple[str, RunFound]]) -> Iterator[Block]:
    names = [title for title, _ in runs]
    facts = [_facts(run) for _, run in runs]
    labels = list(dict.fromkeys(label for found in facts for label in found))
    rows = tuple((label, *(found.get(label, NOTHING) for found in facts)) for label in labels)
    yield Table("Runs, a column each", ("", *names), rows)
    qualities = {
        quality.label: quality for _, run in runs if (quality := quality_of(mapping(run.record, "evaluation")))
    }
    models: dict[tuple[str, float], Measured] = {}
    for title, run in runs:
        for model in measured_models(run):
            name = model.name if model.teacher else title
            # One teacher is measured anew by every run; its first latency stands for all.
            key = (name, round(model.quality, 4)) if model.teacher else (name, model.latency)
            models.setdefault(key, Measured(name, model.latency, model.quality, model.teacher))
    if len(qualities) == 1 and len(models) > 1:
        quality = next(iter(qualities.values()))
        yield quality_figure(list(models.values()), quality.label, quality.latency)


def _facts(run: RunFound) -> dict[str, str]:
    record = run.record
    tokens = [number(stage.record, "tokens") for stage in run.stages]
    seconds = number(record, "timings", "total")
    found = {
        "Status": run.status.status,
        "Teacher": without_path(text(record, "teacher", "name_or_path")),
        "Student": text(record, "student", "shape"),
        "Methods": ", ".join(stage.method for stage in run.stages),
        "Tokens": f"{sum(count for count in tokens if count is not None):,.0f}" if any(tokens) else NOTHING,
        "Tokens/s": ", ".join(_rate(number(stage.record, "tokens_per_second")) for stage in run.stages),
        "Time": NOTHING if seconds is None else duration(seconds),
        "Held-out loss": ", ".join(_loss(number(stage.record, "held_out", "loss")) for stage in run.stages),
    }
    part = ""
    for row in comparison_rows(mapping(record, "evaluation")):
        label, _, student, change = row.cells()
        part = part if label.startswith(" ") else label
        named = f"{part},{label[1:]}" if label.startswith(" ") else label
        found[named] = f"{student} ({change})" if change else student
    return found


def _rate(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _loss(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4g}"
