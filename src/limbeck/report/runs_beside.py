"""Several runs beside each other: a table with a column for each run, and a figure of quality against latency."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from limbeck.core.blocks import NOTHING, AnyCell, Block, Cell, Figure, Notes, Table, duration, number
from limbeck.core.paths import short_model_name
from limbeck.core.records import RunEvaluation
from limbeck.report.figures import MeasuredModel, quality_against_latency, quality_rows
from limbeck.report.names import without_path
from limbeck.report.quality import labelled_rows
from limbeck.report.reliable import reliable_speedup
from limbeck.report.run_quality import quality_of
from limbeck.report.subjects import RunFolder

TitledRuns: TypeAlias = Sequence[tuple[str, RunFolder]]
"""Runs, each after its title on the page."""


def run_blocks(runs: TitledRuns) -> Iterator[Block]:
    """Compare runs by their facts and figures, and draw their quality against their latency."""
    facts_by_run = {title: _facts_of(run) for title, run in runs}
    # A run may lack a fact that others have, such as a metric of its task. The labels are those of any run, in the
    # order in which they first come; a dictionary keeps that order.
    labels: dict[str, None] = {}
    for facts in facts_by_run.values():
        for label in facts:
            labels[label] = None
    rows: list[tuple[AnyCell, ...]] = []
    for label in labels:
        cells = [facts.get(label, NOTHING) for facts in facts_by_run.values()]
        rows.append((label, *cells))
    yield Table("Runs, one per column", ("", *facts_by_run), tuple(rows))
    if len(_measures_of(runs)) > 1:
        yield Notes(
            (
                "Some of these runs were measured by an earlier version of limbeck, on easier pairs and smaller pools: "
                "'Retrieval' and 'Agreement' cannot be compared with 'Passage retrieval' and 'Agreement, far to near'.",
            )
        )
    yield from _quality_figures(runs)


def _measures_of(runs: TitledRuns) -> set[str | None]:
    """Return the names of the retrievals and agreements of runs: None and a name for runs of several versions."""
    names: set[str | None] = set()
    for _, run in runs:
        evaluation = run.record.evaluation or RunEvaluation()
        # Either figure tells which version measured a run.
        figures = evaluation.student.retrieval or evaluation.agreement
        if figures is not None:
            names.add(None if figures.measure is None else "this version")
    return names


def _facts_of(run: RunFolder) -> dict[str, str]:
    """Return the facts by which a run is compared with others.

    Method, speed and loss have a value for each stage, in the order of the stages.
    """
    record = run.record
    methods = []
    rates = []
    losses = []
    tokens = 0.0
    for stage in run.stages:
        methods.append(stage.method)
        rates.append(str(number(stage.record.tokens_per_second)))
        losses.append(str(Cell(stage.record.held_out.get("loss"), "{:.4g}")))
        tokens += stage.record.tokens or 0
    seconds = record.timings.get("total")
    facts = {
        "Status": run.status.status,
        "Teacher": without_path(record.teacher.name_or_path),
        "Student": record.student.shape,
        "Methods": ", ".join(methods),
        "Tokens": str(number(tokens or None)),
        "Tokens/s": ", ".join(rates),
        "Time": NOTHING if seconds is None else duration(seconds),
        "Held-out loss": ", ".join(losses),
    }
    for label, row in labelled_rows(record.evaluation or RunEvaluation()):
        _, _, student, change = row.cells()
        if row.unit == "milliseconds":
            # Latencies of several runs were measured at different times, when the machine may have been more or less
            # busy. The speedup over the teacher, which was measured beside the student, can be compared.
            label_of_speedup = label.replace(", ms", "")
            facts[label_of_speedup] = NOTHING if row.speedup is None else f"{change} than its teacher"
        else:
            facts[label] = f"{student} ({change})" if change else student
    return facts


def _quality_figures(runs: TitledRuns) -> Iterator[Figure]:
    """Draw the quality of runs, also against latency, where all are judged by one figure and have one teacher.

    The latency of a student is given as a share of the teacher's, since each run has timed the teacher beside its
    student: milliseconds of different runs cannot be compared.
    """
    models = []
    labels = set()
    teacher_quality_by_name: dict[str, float | None] = {}
    for title, run in runs:
        quality = quality_of(run)
        if quality is None or run.record.evaluation is None:
            continue
        labels.add(quality.label)
        teacher_quality_by_name[run.record.teacher.name_or_path] = quality.teacher
        speedup = reliable_speedup(run.record.evaluation.first_batch)
        latency = 1 / speedup if speedup else None
        models.append(MeasuredModel(title, quality.student, quality.interval, latency))
    # Runs that are judged by different figures, or learned from different teachers, have no common axes.
    if len(labels) != 1 or len(teacher_quality_by_name) != 1:
        return
    [label] = labels
    # The one teacher is a point of the figure too, with a latency of 1.
    [(name, teacher_quality)] = teacher_quality_by_name.items()
    if teacher_quality is not None:
        models.insert(0, MeasuredModel(short_model_name(name) or "teacher", teacher_quality, latency=1.0))
    yield from quality_rows(models, label, teacher_quality)
    yield from quality_against_latency(models, label, "latency relative to the teacher's", front=False)
