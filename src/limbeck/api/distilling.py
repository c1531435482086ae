"""`distill`: a run by a recipe, or by options in its place; `validate`: the same recipe, only checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.calls import python_call
from limbeck.api.model_folder import ModelFolder
from limbeck.api.named_recipes import add_reasons, named_recipe, options_over, print_reasons
from limbeck.api.progress import progress_console
from limbeck.api.requests.distil import DistilRequest, ValidateRequest
from limbeck.api.results import ModelResult
from limbeck.api.training_objects import callbacks_of, note_of_callbacks
from limbeck.core import records
from limbeck.core.blocks import Block, Notes
from limbeck.core.ranks import connect, on_all_ranks, on_main_rank
from limbeck.recipe.asked import check_chosen_by, continues_by_own_recipe
from limbeck.recipe.facts import load_checked
from limbeck.recipe.schema import Recipe
from limbeck.training.output_folder import check_free, check_output, is_occupied
from limbeck.training.resumed_options import check_resumed_options

if TYPE_CHECKING:
    from limbeck.recipe.plan import RunPlan
    from limbeck.training.distil import DistilledStudent


@dataclass(frozen=True, repr=False)
class RunResult(ModelResult):
    """The result of a run.

    Args:
        student: The student's folder.
        run: The run's record.
    """

    student: Path
    run: records.Run

    @property
    def record(self) -> dict[str, Any]:
        """The run's record as plain values, as in `run.json`."""
        return self.run.to_dict()

    @property
    def metrics(self) -> dict[str, Any]:
        """Measurements of teacher and student as plain values; empty if nothing was measured."""
        return {} if self.run.evaluation is None else self.run.evaluation.to_dict()

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.student.parent

    @property
    def _model(self) -> Path:
        """The folder of the model."""
        return self.student

    @property
    def place(self) -> str:
        """The line below the table: where the student lies."""
        return f"Student: {self.student}"

    def blocks(self) -> Iterator[Block]:
        """Yield the table of teacher and student, with its notes."""
        from limbeck.report.quality import quality_blocks
        from limbeck.report.run_warnings import resembling_rows

        if self.run.evaluation is None or self.run.evaluation.is_empty:
            return
        yield from quality_blocks(self.run.evaluation)
        if self.run.corpus is not None:
            yield Notes(tuple(resembling_rows(self.run.corpus, quoted=False)), warning=True)

    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""
        from limbeck.report.quality import comparison_csv

        return comparison_csv(self.metrics, in_millions=True, details=True)


def carry_out_distillation(request: DistilRequest) -> RunResult:
    """Distil a student from a teacher, by a recipe, by arguments, or both.

    Without a recipe or a method, limbeck chooses every setting that you leave out, and explains each choice. The run's
    folder keeps the recipe. It keeps the models, texts and data sets that you give as objects too, in `inputs`, and of
    callbacks a hash.

    Under a launcher of several processes (`torchrun`, `accelerate launch`) all of them call this and share the work.

    Returns:
        The student's folder, the run's record and its metrics.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.

    Example:
        >>> result = limbeck.distill(teacher="intfloat/e5-small-v2", student=3, corpus="texts", output="runs/e5")
        >>> result.student
        ModelFolder('runs/e5/student')
    """
    return distil_by(request)


def distil_by(request: DistilRequest, *, ends_early: bool = False, measures: bool = True) -> RunResult:
    """Carry a run out, from its request to its cards.

    Args:
        request: The request.
        ends_early: Resume the run, but train nothing further: write the student of its newest checkpoint.
        measures: Measure the student as the recipe says.
    """
    console = progress_console(request.console)
    callbacks = callbacks_of(request.callbacks)
    resume = request.resume
    overwrite = request.overwrite
    connect()

    def check() -> Recipe:
        recipe = _recipe_of(request)
        # A document gets a note of the callbacks. A `Recipe` is the caller's own object, and stays as it is.
        if isinstance(recipe, dict):
            add_reasons(recipe, note_of_callbacks(callbacks))
        loaded = load_checked(recipe, request.overrides)
        check_output(loaded, resume=resume, overwrite=overwrite)
        return loaded

    # Only the main rank saves objects and looks at the folder; the others receive the recipe.
    checked = on_main_rank(check)
    # Torch is imported from here on, which takes seconds: what a recipe alone shows to be wrong was said before.
    from limbeck.training.distil import distil

    plan = on_all_ranks(lambda: _plan(checked, console))
    print_reasons(checked, console)
    distilled = distil(
        plan,
        console=console,
        resume=resume,
        overwrite=overwrite,
        callbacks=callbacks,
        write_cards=write_cards_of_run,
        ends_early=ends_early,
        measures=measures,
    )
    run = records.Run.read(distilled.record.to_dict())
    return RunResult(ModelFolder(distilled.student), run)


def write_cards_of_run(distilled: DistilledStudent) -> None:
    """Write a run's cards, and the tables of what was measured, into its folder."""
    from limbeck.report.quality import write_tables
    from limbeck.report.run_cards import write_run_cards

    if distilled.metrics:
        write_tables(distilled.metrics, distilled.folder)
    write_run_cards(distilled.record, distilled.folder)


def _recipe_of(request: DistilRequest) -> Recipe | dict[str, Any]:
    """Return the recipe of a request, or one chosen by its options, with names in the place of objects."""
    options = options_over(request)
    if isinstance(request.recipe, Recipe) and not options:
        return request.recipe
    # A recipe is chosen by the options. A run that is resumed may bring its own, which `named_recipe` finds.
    if request.recipe is None and not request.resume:
        check_chosen_by(options, "output")

    def check_folder(output: str | Path) -> None:
        """Refuse the folder of another run, in which objects would be saved, and options that its run cannot take."""
        folder = check_free(output, resume=request.resume, overwrite=request.overwrite)
        if request.resume and is_occupied(folder):
            check_resumed_options(
                folder,
                options,
                overrides=request.overrides,
                by_own_recipe=request.recipe is None and continues_by_own_recipe(options),
            )

    return named_recipe(
        request.recipe,
        options,
        tokenizer=request.tokenizer,
        overrides=request.overrides,
        resume=request.resume,
        before=check_folder,
    )


def carry_out_validation(request: ValidateRequest) -> RunPlan:
    """Check a recipe against its models' configurations, and the first rows of labelled files; no weights are loaded.

    Raises:
        RecipeError: and the other errors of `limbeck.errors`, in one line.

    Example:
        >>> plan = limbeck.validate(teacher="intfloat/e5-small-v2", student=3, corpus="texts")
        >>> plan.student.layers
        3
    """
    recipe = request.recipe
    options = options_over(request)
    # Only options and a dict can hold objects, such as models; they are saved, and the recipe names their files.
    if options or not isinstance(recipe, str | Path | Recipe):
        recipe = named_recipe(recipe, options, tokenizer=request.tokenizer, overrides=request.overrides)
    checked = load_checked(recipe, request.overrides)
    return _plan(checked, progress_console(None))


def _plan(recipe: Recipe, console: Console) -> RunPlan:
    """Plan a checked recipe; files of targets, which may take long to read, are read before with their progress."""
    from limbeck.core.corpus_progress import CorpusProgress
    from limbeck.recipe.plan import plan_checked
    from limbeck.recipe.target_reading import read_target_files, teachers_of

    with CorpusProgress(console) as progress:
        read_target_files(teachers_of(recipe), progress)
    return plan_checked(recipe)


distill = python_call("distill", DistilRequest, carry_out_distillation)
validate = python_call("validate", ValidateRequest, carry_out_validation)
