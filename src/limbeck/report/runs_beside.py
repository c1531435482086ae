"""Several runs beside each other: tables with a row for each run, and figures of their quality."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from limbeck.core.blocks import NOTHING, AnyCell, Block, Cell, Figure, Notes, Table, duration, number
from limbeck.core.paths import short_model_name
from limbeck.core.records import CorpusText, RunEvaluation
from limbeck.report.chance import GUESSERS
from limbeck.report.curves import COMPARE_LOSSES
from limbeck.report.figures import MeasuredModel, quality_against_latency, quality_rows
from limbeck.report.names import without_path
from limbeck.report.quality import STARTS, format_count, labelled_rows
from limbeck.report.reliable import caution_of_speedup, reliable_speedup
from limbeck.report.run_quality import quality_of, reason_without_quality
from limbeck.report.same_text import different_text_notes
from limbeck.report.scored_rows import TOO_GOOD
from limbeck.report.subjects import RunFolder

MAIN_HEADINGS = ("As fast as its teacher", "Parameters", "Training")
"""Headings of the facts of a run in a table of folders of any kind."""
_SIZE_UNITS = ("count", "megabytes")
"""Units of the figures of size; figures in milliseconds are of speed, and all others are of quality."""
TitledRuns: TypeAlias = Sequence[tuple[str, RunFolder]]
"""Runs, each after its title on the page."""
TitledFacts: TypeAlias = Sequence[tuple[str, Mapping[str, AnyCell]]]
"""Facts of runs by name, each after the run's title on the page."""


def main_cells(run: RunFolder, longest: float) -> list[AnyCell]:
    """Return the cells of a run below `MAIN_HEADINGS`: its speed, size and time of training.

    Args:
        run: The run.
        longest: The longest training of the table, in seconds; it decides the unit of the times.
    """
    evaluation = run.record.evaluation or RunEvaluation()
    # A run without an evaluation, such as one of `--steps 0`, has counted its student too.
    parameters = evaluation.student.parameters.total
    if parameters is None:
        parameters = run.record.student.parameters
    batch = evaluation.first_batch
    seconds = training_seconds(run)
    return [
        Cell(reliable_speedup(batch), "{:.1f}x", detail=caution_of_speedup(batch)),
        Cell(None if parameters is None else format_count(parameters)),
        Cell(
            duration(seconds, longest=longest) if seconds else None,
            detail="with the assistants" if run.has_assistants else "",
        ),
    ]


def training_seconds(run: RunFolder) -> float:
    """Return the seconds of all stages of a run, 0 where none is recorded."""
    return sum(stage.seconds or 0 for stage in run.stages)


def run_blocks(runs: TitledRuns) -> Iterator[Block]:
    """Compare runs by their facts and figures, a run a row, and draw their quality."""
    yield from _quality_figures(runs)
    longest = max(_total_seconds(run) or 0.0 for _, run in runs)
    training_facts = [(title, _training_facts(run, longest)) for title, run in runs]
    training = _facts_table("Training of the runs", training_facts)
    yield training.with_words("Teacher", "Student", "Methods")
    if _have_losses(runs):
        yield Notes((COMPARE_LOSSES,))
    yield _facts_table("Size and speed, compared with the teacher", [(title, _size_facts(run)) for title, run in runs])
    yield from _quality_blocks(runs)
    yield Notes(tuple(different_text_notes([run.record for _, run in runs])))
    if _were_measured_differently(runs):
        yield Notes(
            (
                "Some of these runs were measured by an earlier version of limbeck, on easier pairs and smaller pools: "
                "'Retrieval' and 'Agreement' cannot be compared with 'Passage retrieval' and 'Agreement, far to near'.",
            )
        )


def _quality_blocks(runs: TitledRuns) -> Iterator[Block]:
    """Lay out the quality of runs: a table for all runs that share a figure, so that a row is not all dashes.

    Runs without any figure have no table; a note names them.
    """
    groups: list[list[tuple[str, Mapping[str, AnyCell]]]] = []
    without_figure = []
    for title, run in runs:
        facts = _quality_facts(run)
        if not facts:
            without_figure.append(f"{title} ({reason_without_quality(run)})")
            continue
        group = next((group for group in groups if _shares_a_name(facts, group)), None)
        if group is None:
            group = []
            groups.append(group)
        group.append((title, facts))
    for group in groups:
        caption = "Quality of the students"
        if len(groups) > 1:
            caption += f": {', '.join(title for title, _ in group)}"
        yield _facts_table(caption, group)
    if without_figure:
        yield Notes((f"Without a figure of quality: {'; '.join(without_figure)}.",))


def _shares_a_name(facts: Mapping[str, AnyCell], titled_facts: TitledFacts) -> bool:
    """Return whether any of some facts is known of one of some runs."""
    return any(facts.keys() & facts_of_run.keys() for _, facts_of_run in titled_facts)


def _facts_table(caption: str, titled_facts: TitledFacts) -> Table:
    """Lay out facts of runs, a run a row and a fact a column."""
    # A run may lack a fact that others have, such as a metric of its task. The columns are the facts of any run, in the
    # order in which they first come; a dictionary keeps that order.
    names: dict[str, None] = {}
    for _, facts in titled_facts:
        for name in facts:
            names[name] = None
    rows: list[tuple[AnyCell, ...]] = []
    for title, facts in titled_facts:
        cells = [facts.get(name, NOTHING) for name in names]
        rows.append((title, *cells))
    return Table(caption, ("", *names), tuple(rows))


def _have_losses(runs: TitledRuns) -> bool:
    """Whether at least two runs have a loss on held-out text."""
    count = 0
    for _, run in runs:
        losses = [stage.record.held_out.get("loss") for stage in run.stages]
        if any(loss is not None for loss in losses):
            count += 1
    return count > 1


def _were_measured_differently(runs: TitledRuns) -> bool:
    """Whether some runs were measured by this version of limbeck, and others by an earlier one."""
    versions: set[str] = set()
    for _, run in runs:
        evaluation = run.record.evaluation or RunEvaluation()
        figures = evaluation.student.retrieval or evaluation.agreement
        if figures is None:
            continue
        # Figures of earlier versions do not name their measure.
        versions.add("earlier" if figures.measure is None else "present")
    return len(versions) > 1


def _total_seconds(run: RunFolder) -> float | None:
    """Return the seconds of a run from its start to its end; None until its end is recorded."""
    if not run.status.has_recorded_end:
        return None
    return run.record.timings.get("total")


def _training_facts(run: RunFolder, longest: float) -> dict[str, AnyCell]:
    """Return models and methods, which are words, then the course of the training.

    Method, speed and loss have a value for each stage, in the order of the stages.

    Args:
        run: The run.
        longest: The longest total time of the table, in seconds; it decides the unit of the times.
    """
    methods = []
    rates = []
    losses = []
    tokens = 0.0
    for stage in run.stages:
        methods.append(stage.method)
        rates.append(str(number(stage.record.tokens_per_second)))
        losses.append(str(Cell(stage.record.held_out.get("loss"), "{:.4g}")))
        # Those of an assistant were not read by the run's student.
        if not stage.trains_assistant:
            tokens += stage.record.tokens or 0
    seconds = _total_seconds(run)
    return {
        "Teacher": without_path(run.record.teacher.name_or_path),
        "Student": run.record.student.shape,
        "Methods": ", ".join(methods),
        "Tokens": number(tokens or None),
        "Tokens/s": ", ".join(rates),
        "Total time": NOTHING if seconds is None else duration(seconds, longest=longest),
        "Held-out loss": ", ".join(losses),
    }


def _size_facts(run: RunFolder) -> dict[str, AnyCell]:
    """Return the sizes and latencies of the student, each compared with its teacher's."""
    facts: dict[str, AnyCell] = {}
    for label, row in labelled_rows(run.record.evaluation or RunEvaluation()):
        cells = row.cells()
        if row.unit == "milliseconds":
            # Latencies of several runs were measured at different times, when the machine may have been more or less
            # busy. The speedup over the teacher, which was measured beside the student, can be compared.
            facts[label.replace(", ms", "")] = Cell(row.speed, detail=row.caution)
        elif row.unit in _SIZE_UNITS:
            facts[label] = Cell(cells.student, detail=cells.change)
    return facts


def _quality_facts(run: RunFolder) -> dict[str, AnyCell]:
    """Return the main figures of the student's quality.

    Each has its interval, its share of the teacher's or the teacher's figure, and that of the start or of a guesser.
    """
    facts: dict[str, AnyCell] = {}
    main_label = ""
    for label, row in labelled_rows(run.record.evaluation or RunEvaluation()):
        if row.unit == "milliseconds" or row.unit in _SIZE_UNITS:
            continue
        cells = row.cells()
        if not row.is_part:
            main_label = label
            details = [cells.change]
            # A share names how far the student is below its teacher; without it, the teacher's own figure does.
            if row.share is None and row.teacher is not None:
                details.append(f"teacher {cells.teacher}")
            if row.chose_step and row.unit != "meaningless":
                details.append(TOO_GOOD)
            facts[label] = Cell(cells.student, detail=_joined(details))
        elif row.label in (*STARTS, *GUESSERS):
            # Without it, a figure that the student had before its training, or that takes no reading of the rows, would
            # look like a result of the training.
            main_cell = facts[main_label]
            assert isinstance(main_cell, Cell)
            beside = f"{row.label} {cells.student}"
            if cells.change:
                beside += f" ({cells.change})"
            facts[main_label] = replace(main_cell, detail=_joined([main_cell.detail, beside]))
        # The table of each run has the other parts of these figures too.
    return facts


def _joined(details: Sequence[str]) -> str:
    """Join the details of a cell; empty ones are left out."""
    return "; ".join(detail for detail in details if detail)


@dataclass
class _JudgedRuns:
    """Runs with their figures of quality, gathered for plots.

    Attributes:
        models: The students that are drawn.
        labels: Names of the figures that they are judged by.
        teacher_paths: Names or paths of their teachers.
        teacher_qualities: The values of the teachers, rounded; without those that are not known.
        sources: The sources of each run whose teacher's value is not known.
        without_figure: The runs that are left out of both plots, each with the reason.
        without_latency: Those that are left out of the plot against latency alone, likewise.
        too_good: The runs whose figure is on the data that chose their step.
    """

    models: list[MeasuredModel] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    teacher_paths: set[str] = field(default_factory=set)
    teacher_qualities: set[float] = field(default_factory=set)
    sources: set[tuple[str, ...]] = field(default_factory=set)
    without_figure: list[str] = field(default_factory=list)
    without_latency: list[str] = field(default_factory=list)
    too_good: list[str] = field(default_factory=list)

    @property
    def have_common_axes(self) -> bool:
        """Whether all are judged by one figure, on the same text, and have one teacher.

        Where the teacher has different values of one figure, these were measured on different text. Without a value of
        the teacher the names of the files alone tell the rows of two runs apart.
        """
        have_one_figure = len(self.labels) == 1
        have_one_teacher = len(self.teacher_paths) == 1
        have_same_text = len(self.teacher_qualities) <= 1 and len(self.sources) <= 1
        return have_one_figure and have_one_teacher and have_same_text

    @property
    def teacher(self) -> MeasuredModel | None:
        """The teacher of runs with common axes; None where its value is not known."""
        if not self.teacher_qualities:
            return None
        [quality] = self.teacher_qualities
        [path] = self.teacher_paths
        # Its latency is 1, as a share of its own.
        return MeasuredModel(short_model_name(path) or "teacher", quality, latency=1.0)


def _quality_figures(runs: TitledRuns) -> Iterator[Figure]:
    """Draw the quality of runs, also against latency, where all are judged by one figure and have one teacher.

    A run whose figure is meaningless is not drawn. The caption names the runs that are left out, and those whose figure
    is on the data that chose their step.

    The latency of a student is given as a share of the teacher's, since each run has timed the teacher beside its
    student: milliseconds of different runs cannot be compared.
    """
    judged = _judge_runs(runs)
    if not judged.have_common_axes:
        return
    [label] = judged.labels
    models = judged.models
    teacher_quality = None
    # The common teacher is drawn too, before its students.
    teacher = judged.teacher
    if teacher is not None:
        models = [teacher, *models]
        teacher_quality = teacher.quality
    selection = _selection(judged.without_figure, judged.too_good)
    yield from quality_rows(models, label, teacher_quality, selection=selection)
    selection = _selection([*judged.without_figure, *judged.without_latency], judged.too_good)
    latency = "latency relative to the teacher's"
    yield from quality_against_latency(models, label, latency, front=False, selection=selection)


def _judge_runs(runs: TitledRuns) -> _JudgedRuns:
    """Gather the figures of runs, and the reasons for which some have none."""
    judged = _JudgedRuns()
    for title, run in runs:
        quality = quality_of(run)
        evaluation = run.record.evaluation
        if quality is None or evaluation is None:
            judged.without_figure.append(f"{title} ({reason_without_quality(run)})")
            continue
        if quality.caution:
            judged.without_figure.append(f"{title} (its {quality.label} is {quality.caution})")
            continue
        if quality.chose_step:
            judged.too_good.append(title)
        judged.labels.add(quality.label)
        judged.teacher_paths.add(run.record.teacher.name_or_path)
        if quality.teacher is not None:
            # Two measurements of one teacher on the same rows may differ in the last digits.
            judged.teacher_qualities.add(round(quality.teacher, 3))
        else:
            corpus = run.record.corpus or CorpusText()
            judged.sources.add(tuple(corpus.sources))

        batch = evaluation.first_batch
        speedup = reliable_speedup(batch)
        share_of_latency = None
        if speedup:
            share_of_latency = 1 / speedup
        else:
            reason = "it has no reliable speedup" if batch.speedup else "its latency was not measured"
            judged.without_latency.append(f"{title} ({reason})")
        judged.models.append(MeasuredModel(title, quality.student, quality.interval, share_of_latency))
    return judged


def _selection(left_out: Sequence[str], too_good: Sequence[str]) -> str:
    """Return sentences on the runs that a plot leaves out, and on those whose figure is too good; "" without any.

    Args:
        left_out: The runs that are left out, each with the reason.
        too_good: The runs whose figure is on the data that chose their step.
    """
    sentences = []
    if left_out:
        sentences.append(f"Left out: {'; '.join(left_out)}.")
    if too_good:
        sentences.append(f"The same data chose the step, so the figure is too good: {'; '.join(too_good)}.")
    return " ".join(sentences)
