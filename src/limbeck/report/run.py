"""Reports of runs: steps, teacher beside student, layers, course, recipe, machine."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from limbeck.core import blocks, records, studies
from limbeck.core.blocks import AnyCell, Block, Cell, Notes, Paragraph, Table, counted, duration, number
from limbeck.core.escaping import one_line
from limbeck.core.intervals import Interval, of_share
from limbeck.core.paths import STUDENT, short_model_name
from limbeck.corpus import splitting
from limbeck.report import figures, plots
from limbeck.report.figures import LayerLinks, Measured, find_links, recorded_links
from limbeck.report.findings import RunFound, StageFound, run_state, without_path
from limbeck.report.quality import (
    AGREEMENT,
    comparison_notes,
    ends_of,
    format_count,
    metric_name,
    one_answer_line,
    only_answer,
    quality_table,
    rows_title,
)


@dataclass(frozen=True)
class Quality:
    """The figure that a run is judged by.

    Attributes:
        label: Its name.
        latency: What the latency is of.
        teacher: The teacher's value, where it has one.
        student: The student's.
        agreement: Whether it is how far the student agrees with the teacher.
        interval: Of the student's value, where there is one.
        over: What the interval is over, such as "872 rows".
    """

    label: str
    latency: str
    teacher: float | None
    student: float
    agreement: bool = False
    interval: Interval | None = None
    over: str = ""

    @property
    def kept(self) -> float | None:
        """The share of the teacher's value that the student has; an agreement with the teacher is none."""
        return self.student / self.teacher if self.student and self.teacher and not self.agreement else None

    def __str__(self) -> str:
        return f"{self.label} {self.student:.3f}"


def quality_of(run: RunFound) -> Quality | None:
    """Choose what a run is judged by: its task's development rows, else retrieval, else agreement with the teacher."""
    found = run.record.evaluation or records.RunEvaluation()
    latency, task = found.latency or records.Latency(), found.task or records.TaskFigures()
    of = f"batch {found.first_batch.batch_size}, {latency.length} tokens, {latency.device}"
    for scores in found.development:
        if (value := scores.student.get(scores.metric)) is not None:
            label = f"{metric_name(scores.metric)} on {rows_title(scores)}"
            within, over = ends_of(scores.intervals.get(scores.metric)), _counted(scores.rows, "row")
            if only_answer(scores) is not None:
                return Quality(label, of, None, value)
            return Quality(label, of, scores.teacher.get(scores.metric), value, interval=within, over=over)
    if task.metric and task.agreement is not None:
        over = _counted(task.rows, "row")
        is_share = task.metric == "accuracy" and task.task == "classification" and task.rows
        within = of_share(task.agreement, int(task.rows or 0)) if is_share else None
        return Quality(AGREEMENT.lower(), of, 1.0, task.agreement, agreement=True, interval=within, over=over)
    ours, theirs = (model.retrieval or records.Retrieval() for model in (found.student, found.teacher))
    if ours.mrr_at_10 is not None:
        over, within = _counted(ours.pool, "summary", "summaries"), ends_of(ours.interval)
        return Quality("held-out retrieval MRR@10", of, theirs.mrr_at_10, ours.mrr_at_10, interval=within, over=over)
    agreement = found.agreement or records.Agreement()
    if agreement.spearman is None:
        return None
    over, within = _counted(agreement.documents, "document"), ends_of(agreement.interval)
    label = "agreement with the teacher (Spearman)"
    return Quality(label, of, 1.0, agreement.spearman, agreement=True, interval=within, over=over)


SHARE_OF_LATENCY = "latency relative to the teacher's ({})"


def measured_models(run: RunFound, quality: Quality | None) -> list[Measured]:
    """Return the run's teacher and student as far as both latency and quality are known."""
    if quality is None or run.record.evaluation is None:
        return []
    batch, teacher = run.record.evaluation.first_batch, short_model_name(run.record.teacher.name_or_path) or "teacher"
    models = (
        (teacher, batch.teacher.median_ms, quality.teacher, True),
        (run.title, batch.student.median_ms, quality.student, False),
    )
    return figures.measured(models)


# The sections of a report: steps, results, layers, course, recipe, machine.


def _flow(run: RunFound) -> Iterator[Block]:
    yield blocks.Steps(tuple(_steps(run)))
    if run.status.status != "finished":
        yield run_state(run.status)
    yield Notes(tuple(warnings_of(run)), warning=True)


def warnings_of(run: RunFound) -> Iterator[str]:
    """Go through what a reader should know before the figures, the weightiest first."""
    yield from (*run.problems, *_unfinished(run))
    for found in (run.record.evaluation or records.RunEvaluation()).development:
        if (line := one_answer_line(found)) is not None:
            yield line
    yield from (*_untrained(run), *_of_stages(run), *_of_text(run))


def _steps(run: RunFound) -> Iterator[tuple[str, str]]:
    """Go through the steps: teacher, text, stages, student, evaluation."""
    teacher, student, text = run.record.teacher, run.record.student, run.record.corpus or records.CorpusText()
    yield "Teacher", _line(without_path(teacher.name_or_path), teacher.shape)
    sources = ", ".join(map(without_path, text.sources[:3]))
    more = f" and {len(text.sources) - 3} more" if len(text.sources) > 3 else ""
    yield "Text", _line(sources + more, _counted(text.documents, "document"), _counted(text.tokens, "token"))
    yield "Student initialisation", _line(student.shape, student.start[:1].lower() + student.start[1:])
    for index, stage in enumerate(run.stages, start=1):
        steps, yet = _so_far(stage, "steps", "step"), "" if stage.is_finished else " so far"
        done = "" if steps is None else f"{counted(steps, 'step')}{yet}"
        taught_by = f"taught by {stage.record.teacher}" if stage.record.teacher else ""
        named = stage.title if stage.title == stage.method else f"{stage.title}: {stage.method}"
        tokens = _counted(_so_far(stage, "tokens"), "token")
        yield f"Stage {index}: {named}", _line("not finished" if yet else "", done, tokens, taught_by)
    size = _counted(student.parameters, "parameter")
    yield "Student", _line(student.shape, size) if run.status.status == "finished" else "not finished"
    if quality := quality_of(run):
        speedup = run.record.evaluation.first_batch.speedup if run.record.evaluation else None
        speed = "" if speedup is None else f"{speedup:.2f}x as fast"
        yield "Evaluation", _line(str(quality), "" if quality.kept is None else f"{quality.kept:.1%} kept", speed)


def _counted(count: float | None, noun: str, several: str = "") -> str:
    return "" if count is None else f"{format_count(count)} {noun if count == 1 else several or f'{noun}s'}"


def _line(*parts: str) -> str:
    return ", ".join(part.rstrip(".") for part in parts if part) or "not recorded"


_SHOWN = 6
_HOW = {
    "running": "The run is still in progress{place}.",
    "dead": "The process of the run vanished without recording an end{place}; `limbeck distill --resume` continues it.",
    "interrupted": "The run was stopped{place}; `limbeck distill --resume` continues it.",
    "failed": "The run failed{place}.",
}


def _unfinished(run: RunFound) -> Iterator[str]:
    status = run.status
    if run.record.is_empty:
        return
    if status.status in _HOW:
        step = f", step {status.step:,} of {status.steps:,}" if status.step is not None and status.steps else ""
        at = status.stage or status.activity
        place, problem = f" (at {at}{step})" if at else "", run.record.problem
        # What a stopped run recorded says where, and how it goes on.
        alone = status.status == "interrupted" and problem
        yield " ".join(filter(None, ("" if alone else _HOW[status.status].format(place=place), problem)))
    missing = [stage.title for stage in run.stages if not stage.is_finished]
    if missing:
        yield f"Not finished: {', '.join(missing)}. Facts about unfinished stages come from the recipe and the logs."
    if status.status == "finished" and not (run.folder / STUDENT).is_dir():
        yield "The run is finished, but its student is not in its folder."


def _untrained(run: RunFound) -> Iterator[str]:
    untrained = run.record.untrained or records.Untrained()
    yield from (f"{line}." for line in untrained_rows(run.record))
    started, teachers = "left with initial values", "left with the teacher's values"
    names = records.read_by_student(untrained.names, run.folder / STUDENT)
    if not names:
        return
    taken = sum(map(run.record.holds_teachers, names))
    held = teachers if taken == len(names) else started
    if 0 < taken < len(names):
        held = f"{taken} {teachers}, the rest with initial values"
    groups, count = records.modules_of(names), len(names)
    more = f" and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else ""
    yield f"No stage trained {counted(count, 'tensor')} of the student ({', '.join(groups[:_SHOWN])}{more}): {held}."


def untrained_rows(record: records.Run) -> Iterator[str]:
    """Say of the rows of embeddings that no batch read how many there are, and whose values they hold."""
    rows = (record.untrained or records.Untrained()).rows
    start = record.student.initialisation
    projected = ", projected to its width" if isinstance(start, records.Initialisation) and start.projected else ""
    for held, teachers in ((f"keep the teacher's values{projected}", True), ("keep their starting values", False)):
        if found := [str(table) for table in rows if record.holds_teachers(table) == teachers]:
            yield f"{', '.join(found)} were never trained and {held}"


def _of_stages(run: RunFound) -> Iterator[str]:
    for stage in run.stages:
        if skipped := stage.record.skipped_steps:
            yield f"Stage '{stage.title}' skipped {counted(skipped, 'step')} with a bad loss or gradient."
        if rows := stage.record.rows_of_a_piece:
            yield f"Stage '{stage.title}' ran out of memory and cut its batches into pieces of {counted(rows, 'row')}."


def _of_text(run: RunFound) -> Iterator[str]:
    if (corpus := run.record.corpus) is None:
        return
    if passed := [f"{name} ({count:,})" for name, count in skipped(corpus.report).items()]:
        yield f"Skipped text: {', '.join(passed)}."
    yield from resembling(corpus.report)


_RESEMBLING = {
    splitting.LEAKED: ("development row", "share at least half of their three-word sequences with a training row"),
    splitting.NEAR: ("held-out row", "may resemble a training row"),
}


def skipped(report: records.SourceNotes) -> dict[str, float]:
    """Return how much text was skipped or repaired, by its kind."""
    return {name: count for name, count in report.counts.items() if count and name not in _RESEMBLING}


def resembling(report: records.SourceNotes, *, quoted: bool = True) -> Iterator[str]:
    """Say how many rows to score on are like a training row; they are scored all the same.

    Args:
        report: Of reading the text.
        quoted: Quote some of them.
    """
    for kind, (noun, how) in _RESEMBLING.items():
        if count := report.counts.get(kind):
            examples = report.examples.get(kind) if quoted else None
            such = f", e.g. {', '.join(map(str, examples[:2]))}" if isinstance(examples, list) and examples else ""
            shared = how.replace("share at", "shares at").replace("their", "its") if count == 1 else how
            yield f"{counted(count, noun)} {shared}{such}."


def _result(run: RunFound) -> Iterator[Block]:
    evaluation = run.record.evaluation
    if evaluation is None or evaluation.is_empty:
        goes_on = run.status.status == "running"
        yield Notes((f"Teacher and student {'are compared at the end' if goes_on else 'were not compared'}.",))
        return
    table = quality_table(evaluation, "Both models, and how the student compares with its teacher")
    rows = tuple((re.sub(r"^ +", "↳ ", str(label)), *cells) for label, *cells in table.rows)
    yield replace(table, rows=rows, words=(3,))
    yield Notes(tuple(comparison_notes(evaluation)))
    if quality := quality_of(run):
        latency = f"latency, ms ({quality.latency})"
        yield from figures.quality_figures(measured_models(run, quality), quality.label, latency, front=False)


# Answers: which classes are taken for which, F1 by class, where student and teacher disagree.


_MOST_DRAWN = 30
"""Classes of a drawn confusion matrix; of more each cell is too small to be seen."""
_MOST_LETTERS = 240


def _answers(run: RunFound) -> Iterator[Block]:
    """Show confusions and classes of each task; its scores are in the table of teacher and student."""
    for found in (run.record.evaluation or records.RunEvaluation()).development:
        yield from _confusions(found)
        yield from _by_label(found)


def _score(value: float | None) -> Cell:
    return Cell(value, "{:.3f}")


def _confusions(found: records.DevelopmentFigures) -> Iterator[blocks.Figure]:
    """Draw the classes that rows of each class are taken for, as shares of these rows."""
    names, counts = found.labels, found.confusion
    if not counts or len(names) > _MOST_DRAWN:
        return
    totals = [sum(row) for row in counts]
    shares = [[count / total if total else None for count in row] for row, total in zip(counts, totals, strict=True)]
    title = f"{rows_title(found)}: confusion matrix of the student"
    heat = plots.Heat(shares, names, names, "true class", "predicted class", 0.0, 1.0, "share of the true class")
    said = (
        f"{name}: {row[place]:,.0f} of {total:,.0f} right"
        for place, (name, row, total) in enumerate(zip(names, counts, totals, strict=True))
    )
    figure = figures.heat_figure(title, heat, f"Confusion matrix of {len(names)} classes. {'; '.join(said)}.")
    rows: list[tuple[AnyCell, ...]] = [(name, *map(number, row)) for name, row in zip(names, counts, strict=True)]
    yield replace(figure, data=Table("Rows of each true class, by predicted class", ("", *names), tuple(rows)))


def _by_label(found: records.DevelopmentFigures) -> Iterator[Table]:
    rows = tuple((one.label, number(one.rows), _score(one.teacher), _score(one.student)) for one in found.by_label)
    if rows:
        headings = ("", "Count", "Teacher's F1", "Student's F1")
        yield Table(f"{rows_title(found)}, label by label", headings, rows, folded=len(rows) > _MOST_DRAWN)


def _disagreements(run: RunFound) -> Iterator[Block]:
    """List what student and teacher are furthest apart on: rows of tasks, else pairs of sentences."""
    evaluation = run.record.evaluation or records.RunEvaluation()
    for found in evaluation.development:
        title = rows_title(found)
        if found.disagreements is not None and found.rows:
            share = found.disagreements / found.rows
            yield Notes(
                (f"{title}: student and teacher disagree on {counted(found.disagreements, 'row')} ({share:.1%}).",)
            )
        yield from _examples(f"{title}: rows on which student and teacher disagree most", "Row", found.examples)
    if evaluation.agreement is not None:
        caption = "Held-out sentence pairs whose similarity student and teacher rank most differently"
        yield from _examples(caption, "Pair", evaluation.agreement.examples)


def _examples(caption: str, what: str, examples: Sequence[records.Disagreement]) -> Iterator[Table]:
    rows: list[tuple[AnyCell, ...]] = [
        (_shown(one), *map(_cut, (one.label, one.teacher, one.student)), _score(one.distance)) for one in examples
    ]
    if rows:
        label = "Label" if what == "Row" else "From"
        yield Table(caption, (what, label, "Teacher", "Student", "Distance"), tuple(rows), words=(1, 2, 3))


def _shown(example: records.Disagreement) -> str:
    return " ‖ ".join(_cut(part) for part in (example.text, example.pair) if part)


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _MOST_LETTERS else f"{line[: _MOST_LETTERS - 1]}…"


def stage_links(run: RunFound, stage: StageFound) -> LayerLinks | None:
    """Find the layers that a stage joins: composed again, with all that is known of its terms, where the record agrees.

    What the stage's record says itself counts where it says something else, or the shapes of its models are not known.
    """
    own = stage.record.student.shape if stage.record.student else ""
    student = own or run.record.student.shape
    if stage.plan.student is not None and not stage.is_finished:
        student = ""
    teacher = _teacher_shape(run, stage)
    corpus = stage.plan.corpus or run.record.recipe.corpus or records.PlannedCorpus()
    composed = find_links(stage.plan.method, student, teacher, corpus.task_kind, stage.layer_cosines)
    recorded = recorded_links(stage.record.layers, student, teacher)
    return composed if recorded is None or (composed and composed.pairs == recorded.pairs) else recorded


def _teacher_shape(run: RunFound, stage: StageFound) -> str:
    """Return the shape of a stage's teacher; empty where only its name is recorded."""
    own = stage.plan.teacher
    if own is None or (own.model or "") == (run.record.recipe.teacher.model or "") != "":
        return run.record.teacher.shape
    students = [other.record.student for other in run.stages if other.title == own.stage]
    return students[0].shape if students and students[0] else ""


def _layers(run: RunFound) -> Iterator[Block]:
    unknown = []
    drawn: set[str] = set()
    for stage in run.stages:
        links = stage_links(run, stage)
        if links is None:
            unknown.append(f"'{stage.title}'")
        elif not links.joins:
            yield Paragraph(f"Stage '{stage.title}' ({stage.method}) uses no layer of a teacher.")
        else:
            title = f"Stage '{stage.title}': which layers learn from which"
            caption = "A line joins a teacher layer to a student layer that learns from it."
            figure = figures.layers_figure(title, links, caption)
            same = Paragraph(f"Stage '{stage.title}' joins the same layers with the same terms.")
            yield same if figure.description in drawn else figure
            drawn.add(figure.description)
    if unknown:
        names = ", ".join(unknown)
        yield Notes((f"The layers of {names} cannot be drawn: the record does not have the shapes of both models.",))


_FACTS = ("Method", "Steps", "Tokens", "Time", "Tokens/s", "Padding", "Precision", "Device", "Skipped steps")


def _training(run: RunFound) -> Iterator[Block]:
    if not run.stages:
        yield Notes(("No stage is recorded: the student is as initialised.",))
        return
    facts: tuple[tuple[AnyCell, ...], ...] = tuple((stage.title, *stage_facts(stage)) for stage in run.stages)
    yield Table("Stages", ("Stage", *_FACTS), facts, words=(1, 7, 8))
    if lengths := tuple(_lengths(run)):
        yield Table("Block lengths, in order", ("Stage", "Longest block, tokens", "Steps", "Tokens"), lengths)
    if rows := tuple(_terms(run)):
        yield Table("Terms of the loss", ("Stage", "Term", "Training, at the end", "Held-out text"), rows, words=(1,))
    for stage in run.stages:
        yield from figures.loss_blocks(stage, f"Stage '{stage.title}'")


def stage_facts(stage: StageFound) -> tuple[Cell, ...]:
    """Return method, steps, tokens, time, tokens a second, padding, precision, device and skipped steps.

    Of a stage that is not finished the steps, tokens and time are those of its log.
    """
    record, yet = stage.record, "" if stage.is_finished else " so far"
    seconds = _so_far(stage, "seconds")
    return (
        Cell(stage.method or None),
        Cell(_so_far(stage, "steps", "step"), f"{{:,.0f}}{yet}"),
        Cell(_so_far(stage, "tokens"), f"{{:,.0f}}{yet}"),
        Cell(None if seconds is None else f"{duration(seconds)}{yet}"),
        number(record.tokens_per_second),
        Cell(record.padding_share, "{:.1%}"),
        Cell(_precision(record) or None),
        Cell(record.device or None),
        number(record.skipped_steps),
    )


def _precision(record: records.Stage) -> str:
    """Return the number format of a stage, and of its teacher's linear maps where they were quantised."""
    teacher = f"teacher {record.teacher_precision}" if record.teacher_precision else ""
    return ", ".join(filter(None, (record.precision, teacher)))


def _lengths(run: RunFound) -> Iterator[tuple[AnyCell, ...]]:
    """List what was read at each length of a stage; the loss jumps where the length changes."""
    for stage in run.stages:
        for part in stage.record.lengths:
            yield stage.title, *(number(part.get(name)) for name in ("length", "steps", "tokens"))


def _so_far(stage: StageFound, name: str, logged: str = "") -> float | None:
    found: float | None = getattr(stage.record, name)
    return found if stage.is_finished else stage.log.reached.get(logged or name)


def _terms(run: RunFound) -> Iterator[tuple[AnyCell, ...]]:
    """List the last logged mean of every term, beside its value on held-out text."""
    for stage in run.stages:
        last, held_out = stage.record.final_terms, stage.record.held_out
        for name in dict.fromkeys([*last, *(name for name in held_out if name != "loss")]):
            yield stage.title, name, _loss(last.get(name)), _loss(held_out.get(name))
        last_loss, on_held_out = _last_loss(stage), held_out.get("loss")
        if last_loss is not None or on_held_out is not None:
            yield stage.title, "loss (weighted sum)", _loss(last_loss), _loss(on_held_out)


def _last_loss(stage: StageFound) -> float | None:
    """Return the last logged loss; earlier versions left it in the log alone, where a thinned curve ends in a mean."""
    curve = stage.log.curves.get("loss") if stage.is_finished else None
    logged = curve.points[-1][1] if curve is not None and curve.points and not curve.ranges else None
    return logged if stage.record.final_loss is None else stage.record.final_loss


def _loss(value: float | None) -> Cell:
    return Cell(value, "{:.5g}")


def _recipe(run: RunFound) -> Iterator[Block]:
    if run.recipe:
        yield Paragraph(
            "All defaults are filled in; `limbeck distill recipe.yaml --output runs/again` repeats the run."
        )
        yield blocks.Code("Resolved recipe", run.recipe, "yaml")


def _sources(run: RunFound) -> Iterator[Block]:
    """Name the papers of the methods, each once."""
    cited = {stage.citation.title: stage.citation for stage in run.record.stages if stage.citation is not None}
    for title, citation in cited.items():
        if title:
            is_web = citation.url.startswith(("https://", "http://"))
            yield Paragraph(f"{citation.authors}: {title}.", citation.url if is_web else "")
    if bibtex := [citation.bibtex for citation in cited.values() if citation.bibtex is not None]:
        yield blocks.Code("BibTeX", "\n\n".join(bibtex), "bibtex")


# What a result was made with: versions, commit, hardware, seeds, text.


_DIRTY = "-dirty"


def provenance_blocks(record: records.Made, folder: Path) -> Iterator[Block]:
    """Say how a result was made, as far as its record knows."""
    hardware, run = record.hardware, record if isinstance(record, records.Run) else records.Run()
    seeds, bound = ", ".join(f"{name} {seed}" for name, seed in run.seeds.items()), {}
    match record:
        case studies.Comparison():
            seeds, bound = ", ".join(map(str, record.plan.seeds)), record.fixed
        case studies.Search():
            seed, bound = record.identity.get("seed"), record.identity
            seeds = "" if seed is None else f"seed {seed}"
    changed = " with local changes" if (record.git_commit or "").endswith(_DIRTY) else ""
    cores = "" if hardware.cores is None else f"{hardware.cores} cores"
    pairs = {
        "Folder": str(folder),
        "Status": record.status,
        "Started": record.created,
        "Last updated": record.updated,
        "Seeds": seeds,
        "limbeck": record.versions.get("limbeck"),
        "Commit": (record.git_commit or "").removesuffix(_DIRTY) + changed,
        "Versions": ", ".join(f"{name} {version}" for name, version in record.versions.items() if name != "limbeck"),
        "Device": hardware.device,
        "Processor": ", ".join(filter(None, [hardware.cpu, cores])),
        "Threads": "" if hardware.threads is None else str(hardware.threads),
        "Memory": _gibibytes(hardware.memory_bytes, 1),
        "Peak memory": _gibibytes(run.peak_memory_bytes, 2),
        "Peak memory on the device": _gibibytes(run.peak_device_memory_bytes, 2),
        "Platform": hardware.platform,
        "Time": ", ".join(f"{name} {duration(seconds)}" for name, seconds in run.timings.items()),
    }
    yield blocks.Facts(tuple((name, value) for name, value in pairs.items() if value))
    if run.corpus is not None and run.corpus.views:
        headings = ("Stage", "Unit", "Longest block, tokens", "Blocks", "Tokens", "Fingerprint")
        yield Table("Text fingerprints", headings, tuple(map(_view, run.corpus.views)), words=(1, 5))
        yield from _mixes(run, run.corpus)
        yield from kinds_of_rows(run.corpus)
    if bound:
        yield blocks.Code("Identity", yaml.safe_dump(bound, sort_keys=False, allow_unicode=True), "yaml")


def _gibibytes(size: float | None, digits: int) -> str:
    return "" if size is None else f"{size / 2**30:.{digits}f} GiB"


def _view(view: records.CorpusView) -> tuple[Cell, ...]:
    counts = Cell(view.length, "{:.0f}"), number(view.blocks), number(view.tokens)
    return Cell(view.stage or None), Cell(view.unit or None), *counts, Cell(view.fingerprint or None)


def _mixes(run: records.Run, text: records.CorpusText) -> Iterator[Block]:
    """Show the shares of mixed sources, and of finished stages what was drawn of each."""
    drawn = {stage.name: stage.drawn.rows for stage in run.stages if stage.drawn is not None}
    for title, how in text.mixed.items():
        views, rows = [view.shares or {} for view in text.views if view.stage == title], drawn.get(title, {})
        # Shares by size differ between lengths; what was drawn is counted over all of them.
        lengths = [f" at {view.length} tokens" for view in text.views if view.stage == title and len(views) > 1] or [""]
        found: list[tuple[AnyCell, ...]] = [
            (without_path(name), *(Cell(view.get(name), "{:.2%}") for view in views), number(rows.get(name)))
            for name in (views[0] if views else {})
        ]
        headings = ("Source", *(f"Share{length}" for length in lengths), "Rows drawn")
        yield Table(f"Sources of {title}, mixed by {how}", headings, tuple(found), folded=True)


def kinds_of_rows(text: records.CorpusText) -> Iterator[Block]:
    """Show what rows are, by role and by unit."""
    for view in text.views:
        rows: list[tuple[AnyCell, ...]] = [(role, Cell(share, "{:.2%}")) for role, share in (view.roles or {}).items()]
        total = sum((view.pieces or {}).values()) or 1
        rows += [(unit, Cell(count / total, "{:.2%}")) for unit, count in (view.pieces or {}).items()]
        if rows:
            yield Table(f"Rows of {view.stage}, by role and unit", ("Kind", "Share"), tuple(rows))


SECTIONS: dict[str, Callable[[RunFound], Iterable[Block]]] = {
    "Overview": _flow,
    "Teacher and student": _result,
    "Largest disagreements": _disagreements,
    "Answers on development rows": _answers,
    "Layers": _layers,
    "Training": _training,
    "Recipe": _recipe,
    "Provenance": lambda run: provenance_blocks(run.record, run.folder),
    "References": _sources,
}
"""Of a run."""
