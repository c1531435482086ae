"""`run_comparison`: from a plan to its table and its record, run by run, resumable."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import PreTrainedTokenizerBase

from limbeck.comparison import held_out
from limbeck.comparison.cells import Cell, steps_of_stages
from limbeck.comparison.checks import CheckedPlan, check_plan
from limbeck.comparison.folder import COMPARISON, check_shared_settings, first_places, known_teacher
from limbeck.comparison.plan import ComparisonPlan
from limbeck.comparison.student_evaluation import check_tasks
from limbeck.comparison.work import ComparisonWork, with_message
from limbeck.core import folders, machine, records, studies
from limbeck.core.corpus_progress import CorpusProgress
from limbeck.corpus import Corpus, Tokenizers
from limbeck.errors import Interrupted
from limbeck.models.quiet import quiet
from limbeck.models.tokenizers import load_tokenizer
from limbeck.recipe.target_reading import read_target_files
from limbeck.training.corpora import build_corpora
from limbeck.training.distil import WriteCards
from limbeck.training.resuming import hash_of_teacher
from limbeck.training.run_tokenizers import RunTokenizers


@dataclass(frozen=True)
class ComparisonOutcome:
    """The result of a comparison.

    Attributes:
        record: `comparison.json`; its `summary` is the content of the tables.
        failed: How many runs and fine-tunings gave nothing; the summary's notes say why.
    """

    record: studies.Comparison
    failed: int


def run_comparison(
    plan: ComparisonPlan, folder: Path, console: Console, write_cards: WriteCards | None = None
) -> ComparisonOutcome:
    """Distil every combination with every seed, measure the students, and gather the figures.

    What is finished in the folder is not done again, and a run that was stopped goes on from its checkpoint.

    Args:
        plan: The plan.
        folder: The folder of the comparison.
        console: The console for lines of progress.
        write_cards: Writes the model card of each run; None writes no cards.

    Raises:
        LimbeckError: for a plan that cannot be carried out, before anything runs; a run that fails raises nothing.
        OutputError: for a folder that cannot be used, or holds a comparison of something else.
        Interrupted: if the user stopped it; what was finished is kept.
    """
    with CorpusProgress(console) as progress:
        read_target_files([plan.teacher], progress)
    checked = check_plan(plan)
    check_tasks(plan.evaluation, read=True)
    settings = _shared_settings(plan)
    earlier_record = folders.claim(folder, COMPARISON, settings)
    with quiet():
        tokenizer = _load_tokenizer(checked)
        # All stages of all runs read the same text, by one tokenizer: the corpus of the first stage is that of all.
        corpora = build_corpora(checked.with_text, lambda _: Tokenizers(tokenizer), console)
        corpus = corpora[0]
    held_out.check_held_out(corpus, plan.evaluation.held_out)

    # New runs are compared with those that are in the folder already, so the content of teacher and text has to be the
    # same as well. It is known only now that both have been read.
    # `with_text` is one of the runs that read the text; all of them have the same teacher.
    settings["teacher_weights"] = hash_of_teacher(checked.with_text.teacher_info, known_teacher(earlier_record))
    settings["content"] = corpus.identity
    places = first_places(earlier_record)
    if places:
        check_shared_settings(folder, earlier_record, settings)
    else:
        # The records of earlier versions do not have the content of the text, but may have its folder in the cache.
        check_shared_settings(folder, earlier_record, {**settings, "text": corpus.path.name})

    # Paths are part of the identity of runs: those that the comparison began with stay in its record, even if teacher
    # or corpus have been moved since.
    record = _record(checked, corpus, earlier_record, {**settings, **places})
    cells = plan_cells(checked, corpus, places)
    work = ComparisonWork(
        checked=checked,
        folder=folder,
        corpus=corpus,
        tokenizer=tokenizer,
        cells=cells,
        record=record,
        console=console,
        write_cards=write_cards,
    )
    try:
        failed = work.carry_out()
    except (Interrupted, KeyboardInterrupt) as error:
        work.note_interruption()
        message = str(error) or f"Stopped; finished work is kept in '{folder}'; the same command continues from there."
        raise with_message(error, message) from None
    return ComparisonOutcome(record, failed)


def _load_tokenizer(checked: CheckedPlan) -> PreTrainedTokenizerBase:
    """Load the tokenizer of all models: the teacher's, or the students' where the teacher has none."""
    teacher = checked.plan.teacher
    if checked.with_text.teacher_info.tokenizer is None:
        return RunTokenizers(checked.with_text).student
    return load_tokenizer(teacher.model, revision=teacher.revision)


def _shared_settings(plan: ComparisonPlan) -> dict[str, Any]:
    """Return the parts of a plan that all runs of a folder share, as plain values."""
    settings = plan.model_dump(mode="json", include={"teacher", "corpus", "budget", "training"})
    if plan.evaluation.tasks:
        settings["evaluation"] = plan.evaluation.model_dump(mode="json", include={"preset", "settings"})
    return settings


def _record(
    checked: CheckedPlan, corpus: Corpus, earlier_record: dict[str, Any], settings: Mapping[str, Any]
) -> studies.Comparison:
    """Return the record of a comparison before any of its runs.

    Args:
        checked: The plan.
        corpus: The text of the comparison.
        earlier_record: The record that is in the folder, empty for a new folder. Its date is kept, and so are the
            settings that only it has.
        settings: The settings that all runs share, by name.
    """
    plan = checked.plan
    earlier = studies.Comparison.read(earlier_record)
    return studies.Comparison(
        created=earlier.created or records.timestamp(),
        name=plan.name,
        plan=studies.PlannedComparison.read(plan.model_dump(mode="json")),
        fixed={**earlier.fixed, **settings},
        corpus=studies.ComparedText(tokens=corpus.tokens, rows=len(corpus.train), held_out_rows=len(corpus.held_out)),
        teacher=studies.ComparedTeacher(
            name=plan.teacher.model,
            title=checked.with_text.teacher_info.title,
            shape=checked.with_text.teacher_info.description,
            held_out=None,
        ),
        impossible=list(checked.impossible),
        versions=machine.versions(),
        git_commit=machine.git_commit(),
        hardware=records.Hardware.read(machine.hardware()),
    )


def plan_cells(checked: CheckedPlan, corpus: Corpus, places: Mapping[str, Any]) -> list[Cell]:
    """Return all runs: all combinations of the first seed first, so that a table of all methods is there early.

    Args:
        checked: The plan.
        corpus: The text of the comparison.
        places: Teacher and corpus with the paths that the comparison began with, see `first_places`; empty for a new
            comparison. The identity of a run has these in place of the plan's, which may have changed.

    Raises:
        RecipeError: if the budget is too small for a stage.
    """
    plan = checked.plan
    tokens_per_row = corpus.tokens / len(corpus.train)
    cells = []
    for seed in plan.seeds:
        for combination, run in checked.runs:
            variant = combination.variant
            # The arguments of a stage win over those that all runs share.
            trainings = [{**plan.training, **stage["training"]} for stage in variant.stages]
            steps = steps_of_stages(plan.budget.tokens, variant.shares, trainings, tokens_per_row)
            cells.append(
                Cell(
                    combination=combination,
                    shape=run.student,
                    seed=seed,
                    steps=steps,
                    recipe=combination.recipe(plan, seed, steps),
                    first_places=places,
                )
            )
    return cells
