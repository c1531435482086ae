"""What a reader should know before the figures of a run: unfinished parts, untrained tensors, skipped text."""

from collections.abc import Iterator

from limbeck.core import records
from limbeck.core.blocks import counted
from limbeck.core.paths import STUDENT
from limbeck.corpus import splitting
from limbeck.report.quality import one_answer_line
from limbeck.report.subjects import RunFolder

_MOST_MODULES = 6
_STATUSES = {
    "running": "The run is still in progress{place}.",
    "dead": "The process of the run vanished without recording an end{place}; `limbeck distill --resume` continues it.",
    "interrupted": "The run was stopped{place}; `limbeck distill --resume` continues it.",
    "failed": "The run failed{place}.",
}


def warnings_of(run: RunFolder) -> Iterator[str]:
    """Yield the warnings of a run, the weightiest first."""
    yield from run.problems
    if not run.record.is_empty:
        yield from _status_warnings(run)
    evaluation = run.record.evaluation or records.RunEvaluation()
    for scores in evaluation.development:
        line = one_answer_line(scores)
        if line is not None:
            yield line
    yield from _untrained_warnings(run)
    yield from _stage_warnings(run)
    if run.record.corpus is not None:
        report = run.record.corpus.report
        counts = [f"{name} ({count:,})" for name, count in skipped_text(report).items()]
        if counts:
            yield f"Skipped text: {', '.join(counts)}."
        yield from resembling_rows(report)


def _status_warnings(run: RunFolder) -> Iterator[str]:
    status = run.status
    problem = run.record.problem
    if status.status == "interrupted" and problem:
        yield problem  # It names the place, and how to continue.
    elif status.status in _STATUSES:
        place = status.stage or status.activity or ""
        if place and status.step is not None and status.steps:
            place += f", step {status.step:,} of {status.steps:,}"
        if place:
            place = f" (at {place})"
        line = _STATUSES[status.status].format(place=place)
        yield f"{line} {problem}" if problem else line

    unfinished = [stage.title for stage in run.stages if not stage.is_finished]
    if unfinished:
        yield f"Not finished: {', '.join(unfinished)}. Facts about unfinished stages come from the recipe and the logs."
    if status.status == "finished" and not (run.folder / STUDENT).is_dir():
        yield "The run is finished, but its student is not in its folder."


def _untrained_warnings(run: RunFolder) -> Iterator[str]:
    for line in untrained_rows(run.record):
        yield f"{line}."
    # A pooler that sentence vectors are made without is no loss.
    untrained = run.record.untrained or records.Untrained()
    names = records.read_by_student(untrained.names, run.folder / STUDENT)
    if not names:
        return
    modules = records.modules_of(names)
    shown = ", ".join(modules[:_MOST_MODULES])
    if len(modules) > _MOST_MODULES:
        shown += f" and {len(modules) - _MOST_MODULES} more"
    values = untrained_values(run.record, names)
    yield f"No stage trained {counted(len(names), 'tensor')} of the student ({shown}): {values}."


def untrained_values(run: records.Run, names: list[str]) -> str:
    """Return whose values tensors hold that no stage trained."""
    from_teacher = sum(run.holds_teachers(name) for name in names)
    if from_teacher == len(names):
        return "left with the teacher's values"
    if from_teacher:
        return f"{from_teacher} left with the teacher's values, the rest with initial values"
    return "left with initial values"


def untrained_rows(run: records.Run) -> Iterator[str]:
    """Yield how many rows of embeddings no batch read, and whose values they hold."""
    untrained = run.untrained or records.Untrained()
    start = run.student.initialisation
    is_projected = isinstance(start, records.Initialisation) and bool(start.projected)
    projected = ", projected to its width" if is_projected else ""
    from_teacher = [str(table) for table in untrained.rows if run.holds_teachers(table)]
    others = [str(table) for table in untrained.rows if not run.holds_teachers(table)]
    if from_teacher:
        yield f"{', '.join(from_teacher)} were never trained and keep the teacher's values{projected}"
    if others:
        yield f"{', '.join(others)} were never trained and keep their starting values"


def _stage_warnings(run: RunFolder) -> Iterator[str]:
    for stage in run.stages:
        skipped = stage.record.skipped_steps
        if skipped:
            yield f"Stage '{stage.title}' skipped {counted(skipped, 'step')} with a bad loss or gradient."
        rows = stage.record.rows_of_a_piece
        if rows:
            yield f"Stage '{stage.title}' ran out of memory and cut its batches into pieces of {counted(rows, 'row')}."


def skipped_text(report: records.SourceNotes) -> dict[str, float]:
    """Return how much text was skipped or repaired, by the reason."""
    is_about_rows = (splitting.LEAKED, splitting.NEAR)
    return {reason: count for reason, count in report.counts.items() if count and reason not in is_about_rows}


def resembling_rows(report: records.SourceNotes, *, quoted: bool = True) -> Iterator[str]:
    """Yield how many rows to score on are like a training row; they are scored all the same.

    Args:
        report: Of reading the text.
        quoted: Quote some of them.
    """
    leaked = report.counts.get(splitting.LEAKED)
    if leaked:
        verb = "share at least half of their" if leaked != 1 else "shares at least half of its"
        examples = _examples(report, splitting.LEAKED) if quoted else ""
        row = counted(leaked, "development row")
        yield f"{row} {verb} three-word sequences with a training row{examples}."
    near = report.counts.get(splitting.NEAR)
    if near:
        examples = _examples(report, splitting.NEAR) if quoted else ""
        yield f"{counted(near, 'held-out row')} may resemble a training row{examples}."


def _examples(report: records.SourceNotes, reason: str) -> str:
    examples = report.examples.get(reason)
    if not isinstance(examples, list) or not examples:
        return ""
    return f", e.g. {', '.join(map(str, examples[:2]))}"
