"""Warnings of a run, which a reader should know before its figures: unfinished parts, untrained tensors, damaged text.

A tensor or a row of embeddings is *untrained* if no stage changed it. It keeps the values that the student began with,
which are the teacher's or random.
"""

from collections.abc import Collection, Iterator

from limbeck.core import records
from limbeck.core.blocks import counted
from limbeck.core.paths import STUDENT
from limbeck.core.run_status import RunStatus
from limbeck.corpus.building import splitting
from limbeck.corpus.source_report import PAIR
from limbeck.models.sentence_reader import without_unread_pooler
from limbeck.report.quality_notes import score_warnings
from limbeck.report.scored_rows import one_answer_line, one_answer_line_of_task
from limbeck.report.subjects import RunFolder
from limbeck.report.text_notes import list_notes, skipped_text

_MOST_MODULES = 6
"""Modules that are named in the warning of untrained tensors."""
_STATUSES = {
    "running": "The run is still in progress{place}.",
    "dead": "The process of the run vanished without recording an end{place}; `limbeck distill --resume` continues it.",
    "interrupted": "The run was stopped{place}; `limbeck distill --resume` continues it.",
    "failed": "The run failed{place}.",
}
"""Warnings by the status of a run. `{place}` becomes the stage and step of the run, such as ` (at minilmv2 (1 of 2),
step 5 of 10)`, or nothing where these are not known."""


def warnings_of(run: RunFolder) -> Iterator[str]:
    """Yield the warnings of a run, the most important first."""
    yield from run.problems
    if not run.record.is_empty:
        yield from _status_warnings(run)
    evaluation = run.record.evaluation or records.RunEvaluation()
    for scores in evaluation.development:
        one_answer_warning = one_answer_line(scores)
        if one_answer_warning is not None:
            yield one_answer_warning
    task_warning = one_answer_line_of_task(evaluation.task or records.TaskFigures())
    if task_warning is not None:
        yield task_warning
    yield from score_warnings(evaluation)
    yield from _untrained_warnings(run)
    yield from _stage_warnings(run)
    if run.record.corpus is not None:
        source_notes = run.record.corpus.report
        skipped = skipped_text(source_notes)
        if skipped:
            in_stage = "" if run.record.corpus.stage is None else f" in stage '{run.record.corpus.stage}'"
            yield f"Skipped text{in_stage}: {list_notes(skipped, of_pairs=run.record.corpus.has_pairs)}."
        yield from resembling_rows(run.record.corpus)


def _status_warnings(run: RunFolder) -> Iterator[str]:
    """Yield warnings of a run or a stage that is not finished, and of a student that is missing."""
    status = run.status.status
    problem = run.record.problem
    # The problem of an interrupted run already names the place, and the way to continue.
    if status == "interrupted" and problem:
        yield problem
    elif status in _STATUSES:
        warning = _STATUSES[status].format(place=_place_of(run.status))
        if problem:
            warning += f" {problem}"
        yield warning

    # The best step of a stage, a change of its steps and an early end are records whose text is a sentence.
    for stage in run.record.stages:
        if stage.best is not None:
            yield f"{stage.best}."
    for change in run.record.steps_changes:
        yield f"{change}."
    skipped_stages: list[str] = []
    if run.record.ended_early is not None:
        yield f"{run.record.ended_early}."
        skipped_stages = run.record.ended_early.skipped
    # A stage that an early end skipped is named by the sentence on that.
    unfinished = [stage.title for stage in run.stages if not stage.is_finished and stage.title not in skipped_stages]
    if unfinished:
        yield f"Not finished: {', '.join(unfinished)}. Facts about unfinished stages come from the recipe and the logs."
    if status == "finished" and not (run.folder / STUDENT).is_dir():
        yield "The run is finished, but its student is not in its folder."


def _place_of(status: RunStatus) -> str:
    """Return the stage and the step of a run in brackets, with a space before; empty where the stage is not known."""
    activity = status.stage or status.activity
    if not activity:
        return ""
    if status.step is None or not status.steps:
        return f" (at {activity})"
    return f" (at {activity}, step {status.step:,} of {status.steps:,})"


def _untrained_warnings(run: RunFolder) -> Iterator[str]:
    """Yield warnings of rows of embeddings and of whole tensors that no stage trained."""
    for line in untrained_rows(run.record):
        yield f"{line}."
    # An untrained pooler (BERT's layer on the first token) does no harm where the student does not use it.
    untrained = run.record.untrained or records.Untrained()
    names = without_unread_pooler(untrained.names, run.folder / STUDENT)
    if not names:
        return
    modules = records.modules_of(names)
    module_list = ", ".join(modules[:_MOST_MODULES])
    if len(modules) > _MOST_MODULES:
        module_list += f" and {len(modules) - _MOST_MODULES} more"
    values = untrained_values(run.record, names)
    yield f"No stage trained {counted(len(names), 'tensor')} of the student ({module_list}), {values}."


def untrained_values(run: records.Run, names: list[str]) -> str:
    """Return a phrase on the values of untrained tensors: those of a checkpoint, of the teacher, or initial ones.

    Args:
        run: The run's record.
        names: The names of the tensors, one or more.
    """
    if names and _are_of_checkpoint(run, names):
        return "left with the values of the checkpoint that the student started from"
    from_teacher = len(names) - len(initial_tensors(run, names))
    if from_teacher == len(names):
        return "left with the teacher's values"
    if from_teacher:
        return f"left with the teacher's values ({from_teacher} of them) or initial values (the rest)"
    return "left with initial values"


def initial_tensors(run: records.Run, names: list[str]) -> list[str]:
    """Return those of the untrained tensors that have initial values, and neither a checkpoint's nor the teacher's."""
    if _are_of_checkpoint(run, names):
        return []
    return [name for name in names if not run.holds_teachers(name)]


def _are_of_checkpoint(run: records.Run, names: list[str]) -> bool:
    """Return whether all of the untrained tensors have the values of a checkpoint that the student started from."""
    from_checkpoint: Collection[str] = ()
    if run.untrained is not None:
        from_checkpoint = run.untrained.from_checkpoint or ()
    return all(name in from_checkpoint for name in names)


def untrained_rows(run: records.Run) -> Iterator[str]:
    """Yield a sentence on the rows of embeddings that no batch read and that keep the teacher's values.

    Another follows on those that keep their own starting values. Neither has a full stop, and either may be missing.
    Rows that no batch reads are those of words that the text does not have, and of positions beyond its longest block.
    """
    untrained = run.untrained or records.Untrained()
    from_teacher = []
    from_start = []
    for rows in untrained.rows:
        # As text it is the number of the rows with the name of their table.
        if run.holds_teachers(rows):
            from_teacher.append(str(rows))
        else:
            from_start.append(str(rows))
    if from_teacher:
        line = f"{', '.join(from_teacher)} were never trained and keep the teacher's values"
        # A student that is narrower than its teacher begins with projections of the teacher's vectors. Older records
        # have the initialisation as text.
        initialisation = run.student.initialisation
        if isinstance(initialisation, records.Initialisation) and initialisation.projected:
            line += ", projected to its width"
        yield line
    if from_start:
        yield f"{', '.join(from_start)} were never trained and keep their starting values"


def _stage_warnings(run: RunFolder) -> Iterator[str]:
    """Yield warnings of steps that were skipped, and of batches that had to be cut into pieces."""
    for stage in run.stages:
        skipped = stage.record.skipped_steps
        if skipped:
            yield f"Stage '{stage.title}' skipped {counted(skipped, 'step')} with a bad loss or gradient."
        piece_rows = stage.record.rows_of_a_piece
        if piece_rows:
            pieces = f"pieces of {counted(piece_rows, 'row')}"
            yield f"Stage '{stage.title}' ran out of memory and cut its batches into {pieces}."


def resembling_rows(corpus: records.CorpusText, *, quoted: bool = True) -> Iterator[str]:
    """Yield the numbers of scored rows that repeat or resemble a training row, which may make scores too high.

    Args:
        corpus: The corpus, with what was counted while its text was read.
        quoted: Quote two of the rows.
    """
    report = corpus.report
    row = PAIR if corpus.has_pairs else "row"
    # The counts are by the reasons of `limbeck.corpus.building.splitting`: LEAKED and REPEATED for development rows,
    # and NEAR for rows that were held out from the training rows.
    leaked_count = report.counts.get(splitting.LEAKED)
    if leaked_count:
        examples = _examples(report, splitting.LEAKED) if quoted else ""
        verb = "resembles" if leaked_count == 1 else "resemble"
        leaked_rows = counted(leaked_count, f"development {row}")
        yield f"{leaked_rows} {verb} a training {row}{examples}. So the scores of both models may be too good."
    repeated_count = report.counts.get(splitting.REPEATED)
    if repeated_count:
        yield (
            f"Development {row}s repeat {counted(repeated_count, f'training {row}')}, which the student has not read. "
            "If the teacher was trained on them, the scores of both models are too high."
        )
    near_count = report.counts.get(splitting.NEAR)
    if near_count:
        examples = _examples(report, splitting.NEAR) if quoted else ""
        near_rows = counted(near_count, f"held-out {row}")
        yield f"{near_rows} may resemble a training {row}{examples}. So the scores of both models may be too good."


def _examples(report: records.SourceNotes, reason: str) -> str:
    """Return two of the rows that were counted under a reason, as the end of a sentence; empty without any."""
    examples = report.examples.get(reason)
    if not isinstance(examples, list) or not examples:
        return ""
    return f", e.g. {', '.join(map(str, examples[:2]))}"
