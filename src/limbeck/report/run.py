"""Sections of a run's page: teacher beside student, answers on development rows, layers, training, recipe, provenance.

Each function with the decorator `section` yields the blocks of one section, such as tables and notes; a section
without blocks is left out. A run has one or more *stages*, each with a method of training.
"""

from collections.abc import Iterable, Iterator, Sequence

from limbeck.core import records
from limbeck.core.blocks import (
    AnyCell,
    Block,
    Cell,
    Code,
    Facts,
    Figure,
    Notes,
    Paragraph,
    Table,
    counted,
    duration,
    number,
)
from limbeck.core.paths import short_model_name
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.report.curves import loss_blocks
from limbeck.report.development import answer_blocks, disagreement_blocks
from limbeck.report.languages import FEW_TEXTS, NOTE, has_rough_figures, languages_table
from limbeck.report.layers import layers_table
from limbeck.report.names import without_path
from limbeck.report.provenance import run_provenance
from limbeck.report.quality import PART_MARK_OF_TEXT, quality_table
from limbeck.report.quality_notes import notes_blocks
from limbeck.report.run_quality import has_uncounted_parameters, quality_of
from limbeck.report.run_warnings import warnings_of
from limbeck.report.scored_rows import TOO_GOOD
from limbeck.report.sections import Summary, section, summary
from limbeck.report.statuses import run_status
from limbeck.report.subjects import RunFolder, StageFolder
from limbeck.report.text_notes import changed_text, list_notes, taken_text
from limbeck.report.text_size import fitted_size, has_development_rows, held_out_size, trained_size

_MOST_SOURCES = 3
"""Sources of the text that are named in the overview."""


@summary(RunFolder)
def run_summary(run: RunFolder) -> Summary:
    """Describe a run in short."""
    quality = quality_of(run)
    result = ""
    if quality is not None:
        result = str(quality)
        if quality.share is not None:
            result += f" ({100 * quality.share:.1f} % of the teacher's)"
        if quality.start_words:
            result += f"; {quality.start_words}"
        if quality.start_share is not None:
            result += f" ({100 * quality.start_share:.1f} %)"
        # A share is given only where the teacher is clearly above a guesser.
        if quality.share is None and quality.guesser:
            result += f"; {quality.guesser}"
        if quality.caution:
            result += f" ({quality.caution})"
        elif quality.chose_step:
            result += f" ({TOO_GOOD})"
    teacher = short_model_name(run.record.teacher.name_or_path)
    student = run.record.student.shape
    subject = f"{teacher} to {student}" if teacher and student else ""
    return Summary("run", run.status.shown, result, subject)


@section(RunFolder, "Overview")
def overview(run: RunFolder) -> Iterator[Block]:
    """Show the models and the text of a run, its status if it is not finished, and warnings."""
    teacher = run.record.teacher
    student = run.record.student
    parameters = "" if student.parameters is None else counted(student.parameters, "parameter")
    if has_uncounted_parameters(run.record):
        parameters += " with pooler and head"
    corpus = run.record.corpus or records.CorpusText()
    # Of several teachers, `teacher` of the record is only the first. All of them are listed in its place.
    one_teacher = ""
    if not run.record.teachers:
        one_teacher = _join(without_path(teacher.name_or_path), teacher.shape)
    facts = {
        "Teacher": one_teacher,
        "Teachers": "; ".join(describe_teacher(member) for member in run.record.teachers),
        "Student": _join(student.shape, parameters),
        "Initialisation": student.start.rstrip("."),
        "Text": _text(run.record),
        "Changed text": list_notes(changed_text(corpus.report), of_pairs=corpus.has_pairs),
        "How text was read": list_notes(taken_text(corpus.report)),
    }
    yield Facts(tuple((name, value) for name, value in facts.items() if value))
    if run.status.status != "finished":
        yield run_status(run.status)
    yield Notes(tuple(warnings_of(run)), warning=True)


def describe_teacher(teacher: records.RunTeacher) -> str:
    """Return one of several teachers, its share, and what it taught, in one line."""
    line = f"{teacher.name}: {without_path(teacher.title)}"
    if teacher.weight is not None:
        line += f", {teacher.weight:.0%}"
    taught = [f"{' and '.join(streams)} of {stage}" for stage, streams in teacher.taught.items()]
    if taught:
        line += f" ({', '.join(taught)})"
    return line


def _text(run: records.Run) -> str:
    """Return the first sources of a run's text, how much of it is trained on or fitted to, and how much is held out."""
    text = run.corpus or records.CorpusText()
    sources = ", ".join(map(without_path, text.sources[:_MOST_SOURCES]))
    left_out = len(text.sources) - _MOST_SOURCES
    if left_out > 0:
        sources += f" and {left_out} more"
    tokens = "" if text.tokens is None else counted(text.tokens, "token")
    amount = _join(trained_size(run), tokens)
    fitted = fitted_size(run, tokens)
    if fitted:
        amount = f"{fitted} for the fit"
    elif amount:
        amount += " to train on"
        if text.stage is not None:
            amount += f" in stage '{text.stage}'"
    held_out = held_out_size(run)
    if held_out and not has_development_rows(run):
        held_out += " held out"
    size = "; ".join(part for part in (amount, held_out) if part)
    return _join(sources, size)


def _join(*parts: str) -> str:
    """Join the parts that are not empty by commas."""
    return ", ".join(part for part in parts if part)


@section(RunFolder, "Teacher and student")
def result(run: RunFolder) -> Iterator[Block]:
    """Show the table of teacher and student with its notes."""
    evaluation = run.record.evaluation
    if evaluation is None or evaluation.is_empty:
        is_running = run.status.status == "running"
        state = "are compared at the end" if is_running else "were not compared"
        yield Notes((f"Teacher and student {state}.",))
        return
    # Other tables indent a detail of the row above by spaces. HTML does not show these, so the page has an arrow.
    caption = "Both models, and how the student compares with its teacher"
    yield quality_table(evaluation, caption, part_mark=PART_MARK_OF_TEXT)
    yield from notes_blocks(evaluation)


@section(RunFolder, "Languages")
def languages(run: RunFolder) -> Iterator[Block]:
    """Show the text and the held-out figures of each language."""
    evaluation = run.record.evaluation or records.RunEvaluation()
    table = languages_table(run.record, evaluation)
    if table is None:
        return
    yield table
    notes = [NOTE]
    if has_rough_figures(evaluation):
        notes.append(f"{FEW_TEXTS}, and the model card leaves them out.")
    yield Notes(tuple(notes))


@section(RunFolder, "Largest disagreements")
def disagreements(run: RunFolder) -> Iterable[Block]:
    """List the rows for which the answers of student and teacher differ most."""
    return disagreement_blocks(run.record.evaluation or records.RunEvaluation())


@section(RunFolder, "Answers on development rows")
def answers(run: RunFolder) -> Iterable[Block]:
    """Show which classes the student confuses, and F1 of each label."""
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
    if _may_have_dropout(run) and any(stage.record.held_out for stage in run.stages):
        yield Notes(
            (
                "If the student has dropout, the dropout raises the terms in training. Held-out text is scored without "
                "dropout.",
            )
        )
    has_curves = False
    for stage in run.stages:
        for block in loss_blocks(stage, f"Stage '{stage.title}'", _positive_class(run, stage)):
            has_curves = has_curves or isinstance(block, Figure)
            yield block
    if has_curves:
        yield Notes(("The numbers of these curves are in `log.jsonl` in the folder of each stage.",))


def _may_have_dropout(run: RunFolder) -> bool:
    """Return whether a student is trained with dropout; without a number in the recipe it has that of its teacher."""
    student = run.record.recipe.to_dict().get("student")
    return not (isinstance(student, dict) and student.get("dropout") == 0)


def _positive_class(run: RunFolder, stage: StageFolder) -> str | None:
    """Return the class that the score `f1` on a stage's development rows is of; None where it is not known."""
    # A stage without a text of its own reads the run's.
    corpus = stage.plan.corpus or run.record.recipe.corpus
    if corpus is None or corpus.task is None:
        return None
    # A recipe names a built-in task, or the file of a task of the user's own, or it describes the task itself.
    name = corpus.task.get("name")
    if isinstance(name, str) and name in TASKS:
        return TASKS[name].positive
    positive = corpus.task.get("positive")
    if isinstance(positive, str):
        return positive
    # The class of a file's task is known once the student is scored.
    if run.record.evaluation is not None:
        for scores in run.record.evaluation.development:
            if scores.positive is not None and scores.stage == stage.title:
                return scores.positive
    return None


def _stages_table(stages: Sequence[StageFolder]) -> Table:
    """Lay out method, steps, time and speed of each stage."""
    columns = ("Method", "Steps", "Tokens", "Time", "Tokens/s", "Padding", "Precision", "Device", "Skipped steps")
    # The longest stage decides the unit of all times in the column.
    longest = max((stage.seconds or 0 for stage in stages), default=0)
    rows: list[tuple[AnyCell, ...]] = [(stage.title, *stage_cells(stage, longest)) for stage in stages]
    return Table("Stages", ("Stage", *columns), tuple(rows)).with_words("Method", "Precision", "Device")


def stage_cells(stage: StageFolder, longest: float) -> tuple[Cell, ...]:
    """Return the cells of a stage in the table of stages.

    Steps, tokens and time of an unfinished stage come from its log and are marked "so far"; the other cells come from
    the record, which is written at the end.

    Args:
        stage: The stage.
        longest: The longest stage of the table, in seconds; it decides the unit of the times.
    """
    record = stage.record
    so_far = "" if stage.is_finished else " so far"
    time = None if stage.seconds is None else f"{duration(stage.seconds, longest=longest)}{so_far}"
    # The record names a teacher only if it is another one than the run's.
    method = stage.method
    if record.teacher:
        method = _join(method, f"taught by {record.teacher}")
    # It has the teacher's precision only if the teacher's weights were quantised to int8.
    precision = record.precision or ""
    if record.teacher_precision:
        precision = _join(precision, f"teacher {record.teacher_precision}")
    return (
        Cell(method or None),
        # The format of these cells is `{:,.0f}`, or `{:,.0f} so far`.
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
    """Yield a table of the lengths of stages whose blocks of text grow during training; nothing where none do.

    The loss jumps where the length changes, which the reader of the curves should know.
    """
    rows: list[tuple[AnyCell, ...]] = []
    for stage in stages:
        for trained_length in stage.record.lengths:
            cells = [number(trained_length.get(name)) for name in ("length", "steps", "tokens")]
            rows.append((stage.title, *cells))
    if rows:
        headings = ("Stage", "Longest block, tokens", "Steps", "Tokens")
        yield Table("Block lengths, in order", headings, tuple(rows))


def _terms_table(stages: Iterable[StageFolder]) -> Iterator[Table]:
    """Yield a table of the terms of each stage's loss: the last logged mean, and the value on held-out text."""
    rows: list[tuple[AnyCell, ...]] = []
    for stage in stages:
        terms = stage.record.final_terms
        held_out = stage.record.held_out
        # A term may be known in training alone, or on held-out text alone. `loss` is no term: it is their weighted sum.
        names = dict.fromkeys([*terms, *held_out])
        names.pop("loss", None)
        rows += [(stage.title, name, _loss(terms.get(name)), _loss(held_out.get(name))) for name in names]
        last_loss = _last_loss(stage)
        held_out_loss = held_out.get("loss")
        if last_loss is not None or held_out_loss is not None:
            rows.append((stage.title, "loss (weighted sum)", _loss(last_loss), _loss(held_out_loss)))
    if rows:
        headings = ("Stage", "Term", "Training, at the end", "Held-out text")
        yield Table("Terms of the loss", headings, tuple(rows)).with_words("Term")


def _last_loss(stage: StageFolder) -> float | None:
    """Return the last logged loss of a finished stage; None for an unfinished one."""
    if stage.record.final_loss is not None:
        return stage.record.final_loss
    # Records of earlier versions do not have it, so it is read from the log: rows of (step, loss).
    curve = stage.log.curves.get("loss")
    if not stage.is_finished or curve is None:
        return None
    _, last_loss = curve[-1]
    return float(last_loss)


def _loss(value: float | None) -> Cell:
    """Return a cell with a loss in five digits."""
    return Cell(value, "{:.5g}")


@section(RunFolder, "Recipe")
def recipe(run: RunFolder) -> Iterator[Block]:
    """Show the recipe with all its defaults."""
    if run.recipe:
        repeated = "repeats the run"
        if run.record.ended_early is not None:
            repeated = "trains a student to the last step, which this run did not reach"
        elif any(not change.as_from_start for change in run.record.steps_changes):
            repeated = "starts a run with these steps, whose student is another one: this run has changed its steps"
        text = f"All defaults are filled in; `limbeck distill recipe.yaml --output runs/again` {repeated}."
        yield Paragraph(text)
        yield Code("Resolved recipe", run.recipe, "yaml")


@section(RunFolder, "Provenance")
def provenance(run: RunFolder) -> Iterable[Block]:
    """Describe how the run was made."""
    return run_provenance(run.record, run.folder, run.status)


@section(RunFolder, "References")
def references(run: RunFolder) -> Iterator[Block]:
    """Name the papers of the methods, each once, then give their BibTeX entries."""
    citations = run.record.citations
    for citation in citations:
        # Some records have the BibTeX entry alone, and an empty title.
        if not citation.title:
            continue
        # Anybody may have written the record: only addresses of the web become links.
        address = ""
        if citation.url.startswith(("https://", "http://")):
            address = citation.url
        yield Paragraph(f"{citation.authors}: {citation.title}.", address)
    entries = [citation.bibtex for citation in citations if citation.bibtex is not None]
    if entries:
        yield Code("BibTeX", "\n\n".join(entries), "bibtex")
