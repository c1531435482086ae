"""`distil`: carries out a plan in its folder, from the claim of the folder to the measured student."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from transformers import TrainerCallback

from limbeck.core import ranks, records
from limbeck.core.paths import STAGES, STUDENT
from limbeck.core.plugins import plugins_in_use
from limbeck.core.progress_bars import ProgressBar, activity, print_plain
from limbeck.models.quiet import quiet
from limbeck.recipe.chosen_models import describe_random_start
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.plan_summary import describe_other_layers
from limbeck.recipe.student_head import describe_missing_head
from limbeck.training.changed_steps import steps_changes
from limbeck.training.endings import endings_recorded
from limbeck.training.evaluation import describe_comparison, evaluate_student
from limbeck.training.extended_stages import judge_changes
from limbeck.training.kept_recipe import document_of, read_kept_recipe
from limbeck.training.measured_steps import with_measured_steps
from limbeck.training.output_folder import claimed_output
from limbeck.training.record import RunRecord
from limbeck.training.run import Run
from limbeck.training.run_checkpoints import has_saved
from limbeck.training.warn import warn


@dataclass(frozen=True)
class DistilledStudent:
    """A finished run.

    Args:
        folder: The run's folder, with the student in it.
        record: The run's record.
        metrics: Figures of teacher and student; empty if the recipe leaves the evaluation out.
    """

    folder: Path
    record: records.Run
    metrics: dict[str, Any]

    @property
    def student(self) -> Path:
        """The student's folder."""
        return self.folder / STUDENT


WriteCards: TypeAlias = Callable[[DistilledStudent], object]
"""Writes the cards and tables of a run into its folder."""


def distil(
    plan: RunPlan,
    *,
    console: Console,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[TrainerCallback | type[TrainerCallback]] = (),
    write_cards: WriteCards | None = None,
    ends_early: bool = False,
    measures: bool = True,
) -> DistilledStudent:
    """Distil a student as a plan says; every process of the run calls this.

    Args:
        plan: The checked recipe, with its output.
        console: Where progress goes.
        resume: Continue the run in the output folder; a finished one is returned as it is, and one that was being ended
            early is ended.
        overwrite: Replace the run in the output folder.
        callbacks: Callbacks of the user for the trainer of every stage.
        write_cards: Called in the main process once the student is saved and measured.
        ends_early: Train nothing, and make the student of the newest checkpoint; later stages are skipped.
        measures: Measure the student as the recipe says.

    Raises:
        LimbeckError: one clear line; the run's record has it too.
    """
    recipe = plan.recipe
    with claimed_output(recipe, resume=resume, overwrite=overwrite) as folder:
        fields = {"name": recipe.name, "recipe": recipe.model_dump(mode="json")}
        record = RunRecord(folder, fields, writes=ranks.is_main())
        is_finished = resume and ranks.on_main_rank(partial(_is_finished, record.run, folder))
        if is_finished:
            print_plain(console, _describe_finished(record.run))
            return _read_finished(folder)
        if resume and not ends_early:
            ends_early = _goes_on_ending(record.run, folder, console)

        # The libraries below are silenced: limbeck itself says what matters.
        with endings_recorded(record, folder), quiet():
            if resume:
                _add_steps_changes(plan, folder, record, console)
            seeds = {"run": recipe.seed}
            record.set("running", seeds=seeds, plugins=plugins_in_use(), processes=ranks.process_count())
            with activity(console, "loading the teacher's tokenizer"):
                run = Run(plan, folder, record, console, callbacks, ends_early=ends_early)
            if resume:
                _tell_new_beginning(run)
            else:
                _tell_start(plan, console)
            if plan.start_rows.obstacle:
                warn(
                    console,
                    "  the student is saved without the head of its teacher, and so without scores: "
                    f"{plan.start_rows.obstacle}",
                )
            run.train()

            metrics: dict[str, Any] = {}
            if measures:
                metrics = _measure(run)
            record.set("running", evaluation=metrics)
            distilled = DistilledStudent(folder, record.run, metrics)
            if write_cards is not None:
                with run.activity("writing the card"):
                    ranks.on_main_rank(partial(write_cards, distilled))
            # The status is set last: a finished run is never taken up again.
            record.set("finished")
            return distilled


def _goes_on_ending(run: records.Run, folder: Path, console: Console) -> bool:
    """Return whether `limbeck finish` was ending a resumed run, which then has to be ended; a line says so.

    The command may have been killed after it ended a stage, whose other steps nothing can take any more.

    Args:
        run: The run's record.
        folder: The run's folder.
        console: Where the line goes.
    """
    was_being_ended = ranks.on_main_rank(partial(_was_being_ended, run, folder))
    if was_being_ended:
        line = "`limbeck finish` was stopped before it was done; the run is ended now, and not trained on."
        print_plain(console, line, "yellow")
    return was_being_ended


def _add_steps_changes(plan: RunPlan, folder: Path, record: RunRecord, console: Console) -> None:
    """Add to the record, and print, the new numbers of steps of a resumed run."""
    changes = ranks.on_main_rank(partial(_new_steps_changes, plan, folder, record.run))
    record.run.steps_changes += changes
    for change in changes:
        print_plain(console, f"{change}.", "yellow")


def _tell_new_beginning(run: Run) -> None:
    """Print that the training of a resumed run begins again, where nothing of it was saved."""
    # A run that ends early trains nothing; without a checkpoint it is refused.
    begins_again = not run.ends_early and not has_saved(run.folder)
    if run.plan.stages and begins_again:
        line = "No checkpoint was saved before the run ended, so the training begins again at step 0."
        print_plain(run.console, line, "yellow")


def _tell_start(plan: RunPlan, console: Console) -> None:
    """Print the remarks on a new student: a random start, other layers than its own to learn from, a missing head."""
    # Without stages nothing is trained.
    if not plan.stages:
        return
    _warn_of_random_start(plan, console)
    _tell_other_layers(plan, console)
    missing_head = describe_missing_head(plan.stages)
    if missing_head is not None:
        print_plain(console, missing_head, "yellow")


def _warn_of_random_start(plan: RunPlan, console: Console) -> None:
    """Print what a random start costs, unless limbeck chose it: the recipe has a reason for the student then."""
    reasons = plan.recipe.reasons or {}
    line = describe_random_start(plan.student_plan)
    if line is not None and "student" not in reasons:
        print_plain(console, line, "yellow")


def _tell_other_layers(plan: RunPlan, console: Console) -> None:
    """Print which layers of the student learn from other layers of the teacher than they start from, stage by stage."""
    for stage in plan.stages:
        layers = describe_other_layers(plan.student_plan, stage)
        if layers:
            print_plain(console, f"stage {stage.spec.title}: {layers}.")


def _new_steps_changes(plan: RunPlan, folder: Path, run: records.Run) -> list[records.StepsChange]:
    """Return the changes of numbers of steps that the run's record does not have yet."""
    new_recipe = with_measured_steps(folder, document_of(plan.recipe))
    changes = steps_changes(folder, read_kept_recipe(folder), new_recipe)
    judged = judge_changes(changes, plan.stages)
    # A run that was killed before it kept the new recipe has noted the change already.
    return [change for change in judged if change not in run.steps_changes]


def _is_finished(run: records.Run, folder: Path) -> bool:
    return run.is_finished and (folder / STUDENT).is_dir()


def _was_being_ended(run: records.Run, folder: Path) -> bool:
    """Whether `limbeck finish` has skipped stages of an unfinished run, or ended one before its last step."""
    if run.ended_early is not None and run.ended_early.skipped:
        return True
    for path in (folder / STAGES).glob(f"*/{records.Stage.FILE}"):
        if records.load(records.Stage, path.parent).ended_early:
            return True
    return False


def _describe_finished(run: records.Run) -> str:
    """Return a line for a user who resumes a run that is finished."""
    if run.ended_early is not None:
        return f"{run.ended_early}. It cannot be continued; this is its result:"
    return "The run is finished, so that nothing is trained; this is its result:"


def _read_finished(folder: Path) -> DistilledStudent:
    run = records.load(records.Run, folder)
    metrics = run.evaluation.to_dict() if run.evaluation is not None else {}
    return DistilledStudent(folder, run, metrics)


def _measure(run: Run) -> dict[str, Any]:
    """Compare the saved student with its teacher, unless the recipe leaves the evaluation out."""
    if not run.plan.recipe.evaluation.enabled:
        return {}
    run.heartbeat.begin("evaluation")
    print_plain(run.console, ranks.on_main_rank(partial(describe_comparison, run)))
    with run.record.timed("evaluation"), ProgressBar(run.console, in_parts=True) as bar:
        report = run.heartbeat.report_with_beats(bar)
        return ranks.on_main_rank(lambda: evaluate_student(run, report))
