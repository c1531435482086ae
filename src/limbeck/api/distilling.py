"""`distill` a recipe, or by what is given in place of one; `validate` a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.core import records
from limbeck.core.progress import ProgressBar
from limbeck.core.ranks import connect, is_main, on_all_ranks, on_main_rank, process_count
from limbeck.core.registry import plugins_in_use
from limbeck.errors import RecipeError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.places import check_choice, check_places
from limbeck.recipe.schema import Recipe
from limbeck.training.output_folder import check_output, claimed_output

if TYPE_CHECKING:
    from limbeck.recipe.plan import RunPlan
    from limbeck.training.record import RunRecord


@dataclass(frozen=True)
class RunResult:
    """What a run leaves.

    Args:
        student: The student's folder.
        record: The run record, as in `run.json`.
        metrics: Teacher beside student; empty if nothing was measured.
    """

    student: Path
    record: dict[str, Any]
    metrics: dict[str, Any]


def distill(
    recipe: Recipe | Mapping[str, Any] | str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    teacher: str | Path | None = None,
    student: int | str | Mapping[str, Any] | None = None,
    corpus: str | Path | Sequence[str | Path] | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    console: Console | None = None,
) -> RunResult:
    """Distil a student as a recipe says, or by a recipe that is chosen by what the teacher is.

    Under a launcher of several processes (`torchrun`, `accelerate launch`) all of them call this and share the work.

    Args:
        recipe: A `Recipe`, a dict, or the path of a YAML file.
        overrides: `path.to.key=value` each; they change a chosen recipe too.
        teacher: In place of a recipe, with the three below: a folder, `package:NAME` or a Hub name. See
            `limbeck.recipe.choose_recipe`, which returns the recipe.
        student: A shape such as `"3x384"`; a number is that many of the teacher's layers.
        corpus: Files, folders or data sets of text; of labelled rows where the teacher does a task.
        output: The run's folder.
        resume: Continue the run in the output folder; a finished one is returned as it is.
        overwrite: Replace the run in the output folder.
        console: Where progress goes; nowhere by default.

    Returns:
        The student's folder, the run's record and its metrics.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    console = console if console is not None and is_main() else Console(quiet=True)
    connect()
    asked = {"teacher": teacher, "student": student, "corpus": corpus, "output": output}

    def load() -> Recipe:
        found = load_recipe(_given_or_chosen(recipe, asked, resume=resume), overrides)
        check_places(found)
        check_output(found, resume=resume, overwrite=overwrite)
        return found

    checked = on_main_rank(load)
    # Torch is imported from here on, which takes seconds: what a recipe alone shows to be wrong was said before.
    from limbeck.models.loading import quiet
    from limbeck.recipe.plan import plan_run
    from limbeck.training.record import RunRecord
    from limbeck.training.run import endings_recorded

    plan = on_all_ranks(lambda: plan_run(checked))
    for key, reason in (checked.reasons or {}).items():
        console.print(f"{key}: {reason}.", highlight=False, markup=False, soft_wrap=True)
    with claimed_output(checked, resume=resume, overwrite=overwrite) as folder:
        fields = {"name": checked.name, "recipe": checked.model_dump(mode="json")}
        record = RunRecord(folder, fields, writes=is_main())
        if on_main_rank(lambda: resume and record.run.is_finished and (folder / "student").is_dir()):
            return _finished(folder)
        # What matters is said by limbeck itself, in one voice.
        with endings_recorded(record, folder), quiet():
            record.set("running", seeds={"run": checked.seed}, plugins=plugins_in_use(), processes=process_count())
            return _carry_out(plan, folder, record, console)


def _given_or_chosen(
    recipe: Recipe | Mapping[str, Any] | str | Path | None, asked: Mapping[str, Any], *, resume: bool
) -> Recipe | Mapping[str, Any] | str | Path:
    """Return the recipe that is given, or one that is chosen for what is asked."""
    missing = [name for name, value in asked.items() if value is None]
    if recipe is not None and len(missing) < len(asked):
        given = next(name for name in asked if name not in missing)
        raise RecipeError(f"A recipe is given and {given} too; give {', '.join(asked)} alone, or change the recipe.")
    if recipe is not None:
        return recipe
    if missing:
        raise RecipeError(f"Without a recipe {', '.join(missing)} must be given too.")
    sources = asked["corpus"]
    check_choice(asked["teacher"], asked["student"], [sources] if isinstance(sources, str | Path) else sources)
    from limbeck.recipe.choosing import choose_recipe

    return choose_recipe(**asked, resume=resume)


def _carry_out(plan: RunPlan, folder: Path, record: RunRecord, console: Console) -> RunResult:
    from limbeck.training.evaluation import evaluate_student
    from limbeck.training.run import Run

    run = Run(plan, folder, record, console)
    run.train()
    metrics: dict[str, Any] = {}
    if plan.recipe.evaluation.enabled:
        console.print("Comparing teacher and student …", highlight=False)
        run.heartbeat.begin("evaluation")
        with record.timed("evaluation"), ProgressBar(console) as bar:
            metrics = on_main_rank(lambda: evaluate_student(run, bar))
    record.set("running", evaluation=metrics)
    on_main_rank(lambda: _write_tables(metrics, record, folder))
    record.set("finished")  # Last of all: a finished run is taken as it is.
    return RunResult(run.student_folder, record.run.to_dict(), metrics)


def _write_tables(metrics: dict[str, Any], record: RunRecord, folder: Path) -> None:
    from limbeck.report.model_card import write_run_cards
    from limbeck.report.quality import write_tables

    if metrics:
        write_tables(metrics, folder)
    write_run_cards(record.run, folder)


def _finished(folder: Path) -> RunResult:
    run = records.load(records.Run, folder)
    metrics = run.evaluation.to_dict() if run.evaluation is not None else {}
    return RunResult(folder / "student", run.to_dict(), metrics)


def validate(recipe: Recipe | Mapping[str, Any] | str | Path, overrides: Sequence[str] = ()) -> RunPlan:
    """Check a recipe against its models' configurations, and the first rows of labelled files; no weights are loaded.

    Raises:
        RecipeError: and the other errors of `limbeck.errors`, in one line.
    """
    checked = load_recipe(recipe, overrides)
    check_places(checked)
    from limbeck.recipe.plan import plan_run

    return plan_run(checked)
