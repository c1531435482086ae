"""`distill` a recipe, or by what is given in place of one; `validate` a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.given import refuse_unknown
from limbeck.api.objects import Objects, callbacks_of, method_of, note_of_callbacks, training_of
from limbeck.api.showing import ModelResult, chosen_console
from limbeck.core.blocks import Block
from limbeck.core.paths import RECIPE
from limbeck.core.ranks import connect, on_all_ranks, on_main_rank
from limbeck.errors import RecipeError
from limbeck.recipe.asked import CHOSEN_BY, choose_by_options, merge_options
from limbeck.recipe.facts import load_checked
from limbeck.recipe.load import read_recipe
from limbeck.recipe.schema import Recipe
from limbeck.training.output_folder import check_free, check_output

if TYPE_CHECKING:
    from transformers import TrainerCallback, TrainingArguments

    from limbeck.recipe.plan import RunPlan
    from limbeck.training.distil import DistilledStudent


@dataclass(frozen=True, repr=False)
class RunResult(ModelResult):
    """What a run leaves.

    Args:
        student: The student's folder.
        record: The run record, as in `run.json`.
        metrics: Teacher and student; empty if nothing was measured.
    """

    student: Path
    record: dict[str, Any]
    metrics: dict[str, Any]

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.student.parent

    @property
    def _model(self) -> Path:
        return self.student

    @property
    def _place(self) -> str:
        return f"Student: {self.student}"

    def _blocks(self) -> Iterator[Block]:
        from limbeck.report.quality import evaluation_blocks

        if self.metrics:
            yield from evaluation_blocks(self.metrics)

    def _csv(self) -> str:
        from limbeck.report.quality import comparison_csv

        return comparison_csv(self.metrics)


@refuse_unknown
def distill(
    recipe: Recipe | Mapping[str, Any] | str | Path | None = None,
    overrides: str | Sequence[str] = (),
    *,
    teacher: Any = None,
    student: Any = None,
    corpus: Any = None,
    development: Any = None,
    tokenizer: Any = None,
    method: Any = None,
    training: Mapping[str, Any] | TrainingArguments | None = None,
    evaluation: Mapping[str, Any] | None = None,
    seed: int | None = None,
    callbacks: Sequence[TrainerCallback | type[TrainerCallback]] = (),
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    console: Console | None = None,
) -> RunResult:
    """Distil a student as a recipe says, by what is given beside or in place of one, or both.

    Without a recipe and a method, all that is left out is chosen by what the teacher is. The recipe that comes of it is
    in the run's folder: models, texts and data sets are kept there too, in `inputs`, and callbacks by their hash.

    Under a launcher of several processes (`torchrun`, `accelerate launch`) all of them call this and share the work.

    Args:
        recipe: A `Recipe`, a dict (with objects in the places of names), or the path of a YAML file.
        overrides: `path.to.key=value` each, or one alone; they win.
        teacher: A folder, `package:NAME` or a Hub name; or a model of transformers, alone or with its tokenizer as
            (model, tokenizer), a pipeline, a `SentenceTransformer` or a `CrossEncoder`; or a recipe's teacher.
        student: A shape such as `"3x384"`; a number is that many of the teacher's layers. A model, or a path of one,
            is the start; or a recipe's student.
        corpus: Files, folders or data sets by name; or a list of texts, rows as dicts, a `datasets.Dataset` or
            `DatasetDict` (its validation split is `development`), a pandas table, any iterable of texts or rows; or a
            recipe's corpus. Of labelled rows where the teacher does a task.
        development: Labelled rows that teacher and student are scored on, given as those to train on.
        tokenizer: Of a teacher that is a model without one; by default that of where it was loaded from.
        method: A method's name, or a dict of it and its options; or a function under `register_as_method`. Its training
            is not chosen, only the student's start.
        training: Arguments of every stage; of `transformers.TrainingArguments` what differs from their defaults.
        evaluation: What is measured at the end, as in a recipe: `{"tasks": ["mrpc"]}`; `{"enabled": False}` is nothing.
        seed: Seed of the run.
        callbacks: For the trainer of every stage, `transformers.TrainerCallback` objects or classes.
        output: The run's folder.
        resume: Continue the run in the output folder, by its own recipe if nothing else is given; a finished one is
            returned as it is.
        overwrite: Replace the run in the output folder.
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.

    Returns:
        The student's folder, the run's record and its metrics.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    console, called = chosen_console(console), callbacks_of(callbacks)
    connect()
    given = _given(
        teacher=teacher, student=student, corpus=corpus, development=development, method=method, training=training,
        evaluation=evaluation, seed=seed, output=output,
    )  # fmt: skip

    def check() -> Recipe:
        found = _asked_for(recipe, given, tokenizer, resume=resume, overwrite=overwrite)
        if isinstance(found, Mapping) and called:
            found = {**found, "reasons": {**(found.get("reasons") or {}), **note_of_callbacks(called)}}
        loaded = load_checked(found, overrides)
        check_output(loaded, resume=resume, overwrite=overwrite)
        return loaded

    checked = on_main_rank(check)
    # Torch is imported from here on, which takes seconds: what a recipe alone shows to be wrong was said before.
    from limbeck.recipe.plan import plan_run
    from limbeck.training.distil import distil

    plan = on_all_ranks(lambda: plan_run(checked))
    tell_reasons(checked, console)
    done = distil(
        plan, console=console, resume=resume, overwrite=overwrite, callbacks=called, write_cards=write_cards_of_run
    )
    return RunResult(done.student, done.record.to_dict(), done.metrics)


def write_cards_of_run(distilled: DistilledStudent) -> None:
    """Write a run's cards, and the tables of what was measured, into its folder."""
    from limbeck.report.quality import write_tables
    from limbeck.report.student_card import write_run_cards

    if distilled.metrics:
        write_tables(distilled.metrics, distilled.folder)
    write_run_cards(distilled.record, distilled.folder)


def _given(*, method: Any, training: Any, **others: Any) -> dict[str, Any]:
    """Return what a call gives beside a recipe, without what it leaves out."""
    asked = {**others, "method": method_of(method), "training": training_of(training) or None}
    return {name: value for name, value in asked.items() if value is not None}


def _check_given(given: Mapping[str, Any], needed: Sequence[str]) -> None:
    """Refuse to choose a recipe without what it is chosen by."""
    if missing := [name for name in needed if name not in given]:
        names = " and ".join(f"`{name}`" for name in missing)
        raise RecipeError(f"Without a recipe, {names} {'is' if len(missing) == 1 else 'are'} required.")


def tell_reasons(recipe: Recipe, console: Console) -> None:
    """Print the reasons in a recipe, a line each."""
    for key, reason in (recipe.reasons or {}).items():
        console.print(f"{key}: {reason}.", highlight=False, markup=False, soft_wrap=True)


def _asked_for(
    recipe: Recipe | Mapping[str, Any] | str | Path | None,
    given: dict[str, Any],
    tokenizer: Any,
    *,
    resume: bool,
    overwrite: bool,
) -> Recipe | Mapping[str, Any]:
    """Return the recipe that is given, or made for what is given, with names in the places of objects."""
    if recipe is None and resume and set(given) == {"output"}:
        recipe = Path(given["output"]).expanduser() / RECIPE
    if isinstance(recipe, Recipe) and not given:
        return recipe
    if recipe is None:
        _check_given(given, (*CHOSEN_BY, "output"))
    return named_recipe(
        recipe,
        given,
        tokenizer=tokenizer,
        resume=resume,
        before=partial(check_free, resume=resume, overwrite=overwrite),
    )


def named_recipe(
    recipe: object,
    given: Mapping[str, Any],
    *,
    tokenizer: Any = None,
    kept_in: Path | None = None,
    resume: bool = False,
    before: Callable[[str | Path], object] = lambda _: None,
) -> dict[str, Any]:
    """Return a recipe with what is given beside it, or chosen by that, with names in the places of objects.

    Args:
        recipe: A `Recipe`, a dict, or the path of a YAML file, if any.
        given: Options over it; see `merge_options`.
        tokenizer: Of a teacher that is a model object.
        kept_in: Where objects are kept; None is the run's folder, or limbeck's cache without one.
        resume: Whether a run is continued.
        before: Called with the run's folder before anything is kept there.

    Raises:
        LimbeckError: for objects that are none of a model or a text, and all that a choice refuses.
    """
    if not isinstance(recipe, str | Path | Mapping | Recipe | None):
        kind = type(recipe).__name__
        raise RecipeError(f"recipe is of type {kind}; give a Recipe, a dict or the path of a YAML file.")
    data = read_recipe(recipe) if isinstance(recipe, str | Path) else recipe or {}
    whole = data.model_dump(exclude_unset=True) if isinstance(data, Recipe) else dict(data)
    output = kept_in or given.get("output") or whole.get("output")
    objects = Objects(output, (lambda: None) if output is None else partial(before, output))
    whole, said = objects.document(whole), _named(given, objects, tokenizer)
    merged = choose_by_options(said, resume=resume) if recipe is None else merge_options(whole, said)
    corpus = merged.get("corpus")
    if "development" not in given and isinstance(corpus, dict) and not corpus.get("task"):
        corpus.pop("development", None)  # Of a data set with several splits: text has held-out documents.
    if objects.notes:
        merged["reasons"] = {**(merged.get("reasons") or {}), **objects.notes}
    return merged


def _named(given: Mapping[str, Any], objects: Objects, tokenizer: Any) -> dict[str, Any]:
    """Return what is given with names in the places of objects: as options over a recipe."""
    said = dict(given)
    if "teacher" in said:
        said["teacher"] = objects.teacher(said["teacher"], tokenizer)
    if "student" in said:
        said["student"] = objects.student(said["student"], tokenizer=tokenizer)
    if "corpus" in said:
        said["corpus"] = objects.corpus(said["corpus"])
        inside = said["corpus"].get("development")
        if "development" not in said and inside is not None:
            said["development"] = said["corpus"].pop("development")
    if "development" in said:
        said["development"] = objects.sources(said["development"], "corpus.development")
    if "output" in said:
        said["output"] = str(said["output"])
    return said


@refuse_unknown
def validate(
    recipe: Recipe | Mapping[str, Any] | str | Path | None = None,
    overrides: str | Sequence[str] = (),
    *,
    teacher: Any = None,
    student: Any = None,
    corpus: Any = None,
    development: Any = None,
    tokenizer: Any = None,
    method: Any = None,
    training: Mapping[str, Any] | TrainingArguments | None = None,
    evaluation: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> RunPlan:
    """Check a recipe against its models' configurations, and the first rows of labelled files; no weights are loaded.

    Args:
        recipe: As `distill` takes it, with all that follows beside or in place of it; objects are kept in limbeck's
            cache.
        overrides: `path.to.key=value` each, or one alone.
        teacher: As of `distill`, as are the others.
        student: A shape, a number of the teacher's layers, a model, or a recipe's student.
        corpus: Sources by name, texts or rows.
        development: Labelled rows.
        tokenizer: Of a teacher that is a model without one.
        method: A name, a dict, or a function under `register_as_method`.
        training: Arguments of every stage.
        evaluation: What is measured at the end.
        seed: Seed of the run.

    Raises:
        RecipeError: and the other errors of `limbeck.errors`, in one line.
    """
    given = _given(
        teacher=teacher, student=student, corpus=corpus, development=development, method=method, training=training,
        evaluation=evaluation, seed=seed,
    )  # fmt: skip
    if recipe is None:
        _check_given(given, CHOSEN_BY)
    if not isinstance(recipe, str | Path | Recipe) or given:
        recipe = named_recipe(recipe, given, tokenizer=tokenizer)
    checked = load_checked(recipe, overrides)
    from limbeck.recipe.plan import plan_run

    return plan_run(checked)
