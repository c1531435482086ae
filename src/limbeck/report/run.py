"""Sections of a run: steps, teacher beside student, layers, course, recipe, machine."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from limbeck.core import records, timing
from limbeck.core.blocks import (
    NOTHING,
    AnyCell,
    Block,
    Cell,
    Code,
    Figure,
    Notes,
    Paragraph,
    Steps,
    Table,
    counted,
    duration,
    interval,
    number,
)
from limbeck.core.intervals import Interval, of_share
from limbeck.core.paths import short_model_name
from limbeck.report.curves import loss_blocks
from limbeck.report.development import answer_blocks, disagreement_blocks
from limbeck.report.figures import Measured, measured, quality_figures
from limbeck.report.layers import layers_table
from limbeck.report.names import metric_name, without_path
from limbeck.report.provenance import run_provenance
from limbeck.report.quality import (
    AGREEMENT,
    comparison_notes,
    ends_of,
    format_count,
    labelled_rows,
    only_answer,
    quality_table,
    rows_title,
)
from limbeck.report.run_warnings import warnings_of
from limbeck.report.sections import Summary, facts, section, summary
from limbeck.report.statuses import run_status
from limbeck.report.subjects import RunFolder, StageFolder

_MOST_SOURCES = 3
SHARE_OF_LATENCY = "latency relative to the teacher's ({})"


@dataclass(frozen=True)
class Quality:
    """The figure that a run is judged by.

    Attributes:
        label: Its name.
        teacher: The teacher's value, where it has one.
        student: The student's.
        is_agreement: Whether it is how far the student agrees with the teacher, of which there is no share.
        interval: Of the student's value, where there is one.
        over: What the interval is over, such as "872 rows".
    """

    label: str
    teacher: float | None
    student: float
    is_agreement: bool = False
    interval: Interval | None = None
    over: str = ""

    @property
    def share(self) -> float | None:
        """The share of the teacher's value that the student has."""
        if self.is_agreement or not self.student or not self.teacher:
            return None
        return self.student / self.teacher

    def __str__(self) -> str:
        return f"{self.label} {self.student:.3f}"


def quality_of(run: RunFolder) -> Quality | None:
    """Return the figure that a run is judged by, the nearest to its use that was measured.

    In this order: a score on development rows, agreement on held-out task rows, retrieval, agreement of vectors.
    """
    evaluation = run.record.evaluation or records.RunEvaluation()
    for scores in evaluation.development:
        value = scores.student.get(scores.metric)
        if value is not None:
            return _development_quality(scores, value)
    task = evaluation.task
    if task is not None and task.metric and task.agreement is not None:
        return _task_quality(task, task.agreement)
    retrieval = evaluation.student.retrieval
    if retrieval is not None and retrieval.mrr_at_10 is not None:
        teacher = evaluation.teacher.retrieval or records.Retrieval()
        return Quality(
            "held-out retrieval MRR@10",
            teacher.mrr_at_10,
            retrieval.mrr_at_10,
            interval=ends_of(retrieval.interval),
            over=_count(retrieval.pool, "summary", "summaries"),
        )
    agreement = evaluation.agreement
    if agreement is None or agreement.spearman is None:
        return None
    return Quality(
        "agreement with the teacher (Spearman)",
        1.0,
        agreement.spearman,
        is_agreement=True,
        interval=ends_of(agreement.interval),
        over=_count(agreement.documents, "document"),
    )


def _development_quality(scores: records.DevelopmentFigures, value: float) -> Quality:
    label = f"{metric_name(scores.metric)} on {rows_title(scores)}"
    # A student with one answer has no share of its teacher's score: its own says nothing.
    if only_answer(scores) is not None:
        return Quality(label, teacher=None, student=value)
    return Quality(
        label,
        scores.teacher.get(scores.metric),
        value,
        interval=ends_of(scores.intervals.get(scores.metric)),
        over=_count(scores.rows, "row"),
    )


def _task_quality(task: records.TaskFigures, agreement: float) -> Quality:
    # The interval is that of a share of rows, which only the accuracy of a classification is.
    ends = None
    if task.metric == "accuracy" and task.task == "classification" and task.rows:
        ends = of_share(agreement, int(task.rows))
    over = _count(task.rows, "row")
    return Quality(AGREEMENT.lower(), 1.0, agreement, is_agreement=True, interval=ends, over=over)


def latency_conditions(run: RunFolder) -> str:
    """Return the conditions of a run's latency: batch size, length and device."""
    evaluation = run.record.evaluation or records.RunEvaluation()
    latency = evaluation.latency or records.Latency()
    return f"batch {evaluation.first_batch.batch_size}, {latency.length} tokens, {latency.device}"


def measured_models(run: RunFolder, quality: Quality) -> list[Measured]:
    """Return the run's teacher and student as far as both latency and quality are known."""
    if run.record.evaluation is None:
        return []
    batch = run.record.evaluation.first_batch
    teacher = short_model_name(run.record.teacher.name_or_path) or "teacher"
    return [
        *measured(teacher, batch.teacher.median_ms, quality.teacher, teacher=True),
        *measured(run.title, batch.student.median_ms, quality.student),
    ]


@summary(RunFolder)
def run_summary(run: RunFolder) -> Summary:
    """Describe a run in short."""
    quality = quality_of(run)
    result = ""
    if quality is not None:
        result = str(quality)
        if quality.share is not None:
            result += f" ({quality.share:.1%} of the teacher's)"
    teacher = short_model_name(run.record.teacher.name_or_path)
    student = run.record.student.shape
    subject = f"{teacher} to {student}" if teacher and student else ""
    return Summary("run", run.status.status, result, subject)


@facts(RunFolder)
def run_facts(run: RunFolder) -> Iterator[str]:
    """Yield how the student was made, how good it is and how fast."""
    quality = quality_of(run)
    teacher = short_model_name(run.record.teacher.name_or_path)
    # `6x384` of `bert 6x384, 12 heads, …`.
    shape = run.record.student.shape.partition(",")[0].rpartition(" ")[2]
    is_described = bool(shape and teacher)
    if is_described:
        methods = ", ".join(dict.fromkeys(stage.method for stage in run.stages))
        training_phrase = f"taught by {methods}" if methods else "as initialised, without training"
        yield f"A {shape} student of {teacher}, {training_phrase}."

    if quality is not None:
        yield _quality_fact(quality)
    elif is_described and run.status.status == "running":
        yield "Its quality is measured at the end."
    elif is_described:
        yield "Its quality was not measured."

    evaluation = run.record.evaluation or records.RunEvaluation()
    batch = evaluation.first_batch
    if batch.speedup:
        yield f"Speed: {batch.speedup:.1f} times as fast at batch size {batch.batch_size}."
        if timing.is_doubtful(batch.teacher.median_ms, batch.student.median_ms, batch.speedup, batch.rounds):
            yield "The machine was busy while speed was measured."


def _quality_fact(quality: Quality) -> str:
    """Return the figure of a run, its interval and its share of the teacher's in a sentence."""
    line = f"Quality: {quality}"
    if quality.interval is not None:
        line += f" (95 %: {interval(quality.interval, 3)}, over {quality.over})"
    if quality.share is not None:
        line += f", {quality.share:.1%} of the teacher's"
    return f"{line}."


@section(RunFolder, "Overview")
def overview(run: RunFolder) -> Iterator[Block]:
    """Show the steps from teacher to result, the status of an unfinished run, and warnings."""
    yield Steps(tuple(_steps(run)))
    if run.status.status != "finished":
        yield run_status(run.status)
    yield Notes(tuple(warnings_of(run)), warning=True)


def _steps(run: RunFolder) -> Iterator[tuple[str, str]]:
    """Yield the steps: teacher, text, stages, student, evaluation."""
    teacher = run.record.teacher
    student = run.record.student
    text = run.record.corpus or records.CorpusText()
    yield "Teacher", _join(without_path(teacher.name_or_path), teacher.shape)
    yield "Text", _join(_sources(text), _count(text.documents, "document"), _count(text.tokens, "token"))
    start = student.start[:1].lower() + student.start[1:]
    yield "Student initialisation", _join(student.shape, start)
    for place, stage in enumerate(run.stages, start=1):
        name = stage.title if stage.title == stage.method else f"{stage.title}: {stage.method}"
        yield f"Stage {place}: {name}", _stage_step(stage)

    if run.status.status == "finished":
        yield "Student", _join(student.shape, _count(student.parameters, "parameter"))
    else:
        yield "Student", "not finished"
    quality = quality_of(run)
    if quality is not None:
        yield "Evaluation", _evaluation_step(run, quality)


def _sources(text: records.CorpusText) -> str:
    """Name the sources of a run's text, of many the first ones."""
    names = ", ".join(map(without_path, text.sources[:_MOST_SOURCES]))
    left_out = len(text.sources) - _MOST_SOURCES
    return f"{names} and {left_out} more" if left_out > 0 else names


def _evaluation_step(run: RunFolder, quality: Quality) -> str:
    """Return quality, share and speed of the student in a line."""
    share = "" if quality.share is None else f"{quality.share:.1%} kept"
    evaluation = run.record.evaluation or records.RunEvaluation()
    speedup = evaluation.first_batch.speedup
    speed = "" if speedup is None else f"{speedup:.2f}x as fast"
    return _join(str(quality), share, speed)


def _stage_step(stage: StageFolder) -> str:
    """Return a stage in a line: steps, tokens, and a teacher of its own."""
    steps = ""
    if stage.steps is not None:
        steps = counted(stage.steps, "step")
        if not stage.is_finished:
            steps += " so far"
    unfinished = "" if stage.is_finished else "not finished"
    teacher = f"taught by {stage.record.teacher}" if stage.record.teacher else ""
    return _join(unfinished, steps, _count(stage.tokens, "token"), teacher)


def _count(count: float | None, noun: str, plural: str = "") -> str:
    if count is None:
        return ""
    if count == 1:
        return f"{format_count(count)} {noun}"
    return f"{format_count(count)} {plural or f'{noun}s'}"


def _join(*parts: str) -> str:
    return ", ".join(part.rstrip(".") for part in parts if part) or "not recorded"


@section(RunFolder, "Teacher and student")
def result(run: RunFolder) -> Iterator[Block]:
    """Show the table of teacher and student, its notes, and quality against latency."""
    evaluation = run.record.evaluation
    if evaluation is None or evaluation.is_empty:
        is_running = run.status.status == "running"
        state = "are compared at the end" if is_running else "were not compared"
        yield Notes((f"Teacher and student {state}.",))
        return
    table = quality_table(evaluation, "Both models, and how the student compares with its teacher")
    rows = tuple((re.sub(r"^ +", "↳ ", str(row[0])), *row[1:]) for row in table.rows)
    yield replace(table, rows=rows, words=(3,))
    yield Notes(tuple(comparison_notes(evaluation)))
    quality = quality_of(run)
    if quality is not None:
        latency = f"latency, ms ({latency_conditions(run)})"
        yield from quality_figures(measured_models(run, quality), quality.label, latency, front=False)


@section(RunFolder, "Largest disagreements")
def disagreements(run: RunFolder) -> Iterable[Block]:
    """List the rows that student and teacher are furthest apart on."""
    return disagreement_blocks(run.record.evaluation or records.RunEvaluation())


@section(RunFolder, "Answers on development rows")
def answers(run: RunFolder) -> Iterable[Block]:
    """Show confused classes, and F1 by label."""
    return answer_blocks(run.record.evaluation or records.RunEvaluation())


@section(RunFolder, "Layers")
def layers(run: RunFolder) -> Iterator[Block]:
    """Show which layers learn from which in each finished stage."""
    named_stages = [(stage.title, stage.record) for stage in run.stages]
    table = layers_table("Which layers learn from which", "Stage", named_stages)
    if table is not None:
        yield table


@section(RunFolder, "Training")
def training(run: RunFolder) -> Iterator[Block]:
    """Show the stages and the terms of their losses as tables, then their curves."""
    if not run.stages:
        yield Notes(("No stage is recorded: the student is as initialised.",))
        return
    yield _stages_table(run.stages)
    yield from _lengths_table(run.stages)
    yield from _terms_table(run.stages)
    for stage in run.stages:
        yield from loss_blocks(stage, f"Stage '{stage.title}'")


def _stages_table(stages: Iterable[StageFolder]) -> Table:
    columns = ("Method", "Steps", "Tokens", "Time", "Tokens/s", "Padding", "Precision", "Device", "Skipped steps")
    rows: list[tuple[AnyCell, ...]] = [(stage.title, *stage_cells(stage)) for stage in stages]
    return Table("Stages", ("Stage", *columns), tuple(rows), words=(1, 7, 8))


def stage_cells(stage: StageFolder) -> tuple[Cell, ...]:
    """Return method, steps, tokens, time, tokens a second, padding, precision, device and skipped steps of a stage."""
    record = stage.record
    so_far = "" if stage.is_finished else " so far"
    time = None if stage.seconds is None else f"{duration(stage.seconds)}{so_far}"
    precisions = [record.precision or ""]
    if record.teacher_precision:
        precisions.append(f"teacher {record.teacher_precision}")
    precision = ", ".join(filter(None, precisions))
    return (
        Cell(stage.method or None),
        Cell(stage.steps, f"{{:,.0f}}{so_far}"),
        Cell(stage.tokens, f"{{:,.0f}}{so_far}"),
        Cell(time),
        number(record.tokens_per_second),
        Cell(record.padding_share, "{:.1%}"),
        Cell(precision or None),
        Cell(record.device or None),
        number(record.skipped_steps),
    )


def _lengths_table(stages: Iterable[StageFolder]) -> Iterator[Table]:
    """Yield what was read at each length of a schedule; the loss jumps where the length changes."""
    rows: list[tuple[AnyCell, ...]] = []
    for stage in stages:
        for part in stage.record.lengths:
            cells = [number(part.get(name)) for name in ("length", "steps", "tokens")]
            rows.append((stage.title, *cells))
    if rows:
        headings = ("Stage", "Longest block, tokens", "Steps", "Tokens")
        yield Table("Block lengths, in order", headings, tuple(rows))


def _terms_table(stages: Iterable[StageFolder]) -> Iterator[Table]:
    """Yield the last logged mean of every term, beside its value on held-out text."""
    rows: list[tuple[AnyCell, ...]] = []
    for stage in stages:
        terms = stage.record.final_terms
        held_out = stage.record.held_out
        names = dict.fromkeys([*terms, *held_out])
        names.pop("loss", None)
        rows += [(stage.title, name, _loss(terms.get(name)), _loss(held_out.get(name))) for name in names]
        last_loss = _last_loss(stage)
        if last_loss is not None or held_out.get("loss") is not None:
            rows.append((stage.title, "loss (weighted sum)", _loss(last_loss), _loss(held_out.get("loss"))))
    if rows:
        headings = ("Stage", "Term", "Training, at the end", "Held-out text")
        yield Table("Terms of the loss", headings, tuple(rows), words=(1,))


def _last_loss(stage: StageFolder) -> float | None:
    """Return the last logged loss of a finished stage.

    Earlier versions left it in the log alone, where a thinned curve ends in a mean.
    """
    if stage.record.final_loss is not None:
        return stage.record.final_loss
    curve = stage.log.curves.get("loss")
    if not stage.is_finished or curve is None or curve.ranges or not curve.points:
        return None
    return curve.points[-1][1]


def _loss(value: float | None) -> Cell:
    return Cell(value, "{:.5g}")


@section(RunFolder, "Recipe")
def recipe(run: RunFolder) -> Iterator[Block]:
    """Show the recipe with all its defaults."""
    if run.recipe:
        text = "All defaults are filled in; `limbeck distill recipe.yaml --output runs/again` repeats the run."
        yield Paragraph(text)
        yield Code("Resolved recipe", run.recipe, "yaml")


@section(RunFolder, "Provenance")
def provenance(run: RunFolder) -> Iterable[Block]:
    """Describe how the run was made."""
    return run_provenance(run.record, run.folder)


@section(RunFolder, "References")
def references(run: RunFolder) -> Iterator[Block]:
    """Name the papers of the methods, each once."""
    citations = {}
    for stage in run.record.stages:
        if stage.citation is not None:
            citations[stage.citation.title] = stage.citation
    for title, citation in citations.items():
        if title:
            is_web = citation.url.startswith(("https://", "http://"))
            yield Paragraph(f"{citation.authors}: {title}.", citation.url if is_web else "")
    entries = [citation.bibtex for citation in citations.values() if citation.bibtex is not None]
    if entries:
        yield Code("BibTeX", "\n\n".join(entries), "bibtex")


def runs_side_by_side(runs: list[tuple[str, RunFolder]]) -> Table:
    """Lay out runs beside each other, one per column."""
    headings = [""]
    facts_of_runs = []
    labels: dict[str, None] = {}
    for title, run in runs:
        headings.append(title)
        facts_of_run = dict(_facts_beside(run))
        facts_of_runs.append(facts_of_run)
        labels |= dict.fromkeys(facts_of_run)

    # A run may lack a fact that others have, such as a metric of its task.
    rows: list[tuple[AnyCell, ...]] = []
    for label in labels:
        cells = [facts_of_run.get(label, NOTHING) for facts_of_run in facts_of_runs]
        rows.append((label, *cells))
    return Table("Runs, one per column", tuple(headings), tuple(rows))


def _facts_beside(run: RunFolder) -> Iterator[tuple[str, str]]:
    """Yield the facts of a run by which it is compared with others, a value a stage where stages have their own."""
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
    yield "Status", run.status.status
    yield "Teacher", without_path(record.teacher.name_or_path)
    yield "Student", record.student.shape
    yield "Methods", ", ".join(methods)
    yield "Tokens", str(number(tokens or None))
    yield "Tokens/s", ", ".join(rates)
    yield "Time", NOTHING if seconds is None else duration(seconds)
    yield "Held-out loss", ", ".join(losses)
    for label, row in labelled_rows(record.evaluation or records.RunEvaluation()):
        _, _, student, change = row.cells()
        if row.unit == "milliseconds":
            # Another time on the machine than that of other runs: only the speedup compares.
            speed = f"{change} than its teacher" if row.speedup is not None else NOTHING
            yield label.replace(", ms", ""), speed
        else:
            yield label, f"{student} ({change})" if change else student


def quality_of_runs(runs: list[tuple[str, RunFolder]]) -> Iterator[Figure]:
    """Draw runs by quality and latency, where all are judged by one figure and have one teacher.

    Each run timed its own teacher beside its student: shares of one teacher's latency compare, milliseconds do not.
    """
    models: dict[tuple[str, float], Measured] = {}
    labels = set()
    teachers = set()
    conditions = ""
    for title, run in runs:
        quality = quality_of(run)
        if quality is None:
            continue
        labels.add(quality.label)
        teachers.add(run.record.teacher.name_or_path)
        conditions = latency_conditions(run)
        speedup = run.record.evaluation.first_batch.speedup if run.record.evaluation else None
        if not speedup:
            continue
        for model in measured_models(run, quality):
            point = replace(model, latency=1.0)
            if not model.teacher:
                point = replace(model, name=title, latency=1 / speedup)
            # A teacher that several runs share is drawn once for each quality that it has.
            models.setdefault((point.name, round(point.quality, 4)), point)
    if len(labels) == 1 and len(teachers) == 1:
        latency = SHARE_OF_LATENCY.format(conditions)
        yield from quality_figures([*models.values()], labels.pop(), latency, front=False)
