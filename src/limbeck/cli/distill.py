"""`limbeck distill`: one distillation run, from a recipe or from a few options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli.messages import print_json, print_line, progress_console, result_console
from limbeck.cli.options import (
    RUN_PANEL,
    STUDENTS,
    TRAINING_PANEL,
    Json,
    Method,
    Overrides,
    Overwrite,
    Quiet,
    Resume,
    Verbose,
    complete,
    with_examples,
)


@with_examples(
    "limbeck distill recipe.yaml --set stages.0.training.max_steps=1000",
    "limbeck distill --teacher google-bert/bert-base-uncased --student 6x384 --corpus texts/ --method minilmv2 "
    "--steps 100000 --output runs/mine",
    "limbeck distill --resume --output runs/mine",
)
def distill(
    recipe: Annotated[Path | None, typer.Argument(help="The recipe (YAML).", show_default=False)] = None,
    teacher: Annotated[
        str | None,
        typer.Option(help="Folder, Hub name or package:NAME of the teacher.", rich_help_panel=RUN_PANEL),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            help='Shape of the student: "6x384" or a preset.',
            rich_help_panel=RUN_PANEL,
            autocompletion=complete(STUDENTS),
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            help="File, folder, glob, hub:NAME or installed-docs; may be repeated.", rich_help_panel=RUN_PANEL
        ),
    ] = None,
    method: Method = None,
    output: Annotated[str | None, typer.Option(help="The run's folder.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps of every stage.", rich_help_panel=TRAINING_PANEL)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Blocks a step and device, in every stage.", rich_help_panel=TRAINING_PANEL),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak learning rate of every stage.", rich_help_panel=TRAINING_PANEL)
    ] = None,
    length: Annotated[
        int | None, typer.Option(min=4, help="Longest block in tokens.", rich_help_panel=TRAINING_PANEL)
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the run.", rich_help_panel=TRAINING_PANEL)] = None,
    overrides: Overrides = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Distil a student from a teacher, as a recipe or the options say."""
    from limbeck.api import distill as run_distillation
    from limbeck.core.ranks import is_main
    from limbeck.report.quality import comparison_table

    console = progress_console(quiet, verbose)
    data = recipe_data(
        recipe, teacher=teacher, student=student, corpus=corpus, method=method, output=output, steps=steps,
        batch_size=batch_size, learning_rate=learning_rate, length=length, seed=seed, resume=resume,
    )  # fmt: skip
    result = run_distillation(data, overrides or [], resume=resume, overwrite=overwrite, console=console)
    if not is_main():
        return
    if as_json:
        print_json({"student": result.student, "metrics": result.metrics})
        return
    if result.metrics:
        result_console().print(comparison_table(result.metrics))
    print_line(f"Student: {result.student}")


def recipe_data(recipe: Path | None, *, resume: bool = False, **options: Any) -> dict[str, Any]:
    """Make a recipe of a file and options; options win.

    Args:
        recipe: The file, if any; with `resume` and an output alone, the recipe saved there.
        resume: Whether a run is continued.
        **options: The options of the command; None where not given.

    Raises:
        RecipeError: if neither a file nor enough options are given.
    """
    from limbeck.errors import RecipeError
    from limbeck.recipe.load import read_recipe

    given = {name: value for name, value in options.items() if value not in (None, [])}
    saved = Path(given.get("output", "")) / "recipe.yaml"
    if recipe is None and resume and set(given) == {"output"} and saved.is_file():
        return read_recipe(saved) | {"output": given["output"]}
    if recipe is not None:
        data = read_recipe(recipe)
    elif resume and set(given) == {"output"}:
        raise RecipeError(f"'{given['output']}' holds no run to resume; give the recipe, or the run's own folder.")
    else:
        missing = [f"--{name}" for name in ("teacher", "student", "corpus", "method", "output") if name not in given]
        if missing:
            raise RecipeError(
                f"Without a recipe these options are needed too: {', '.join(missing)}; "
                "or give a recipe, see `limbeck recipe --example`."
            )
        data = {}
    return merge_options(data, given)


def merge_options(data: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Lay options over a recipe."""
    merged = dict(data)
    if "teacher" in given:
        merged["teacher"] = {**_mapping(data.get("teacher")), "model": given["teacher"]}
    if "student" in given:
        merged["student"] = {**_mapping(data.get("student")), "shape": given["student"]}
    corpus = {**_mapping(data.get("corpus"))}
    if "corpus" in given:
        corpus["sources"] = list(given["corpus"])
    if "length" in given:
        corpus["length"] = given["length"]
    if corpus:
        merged["corpus"] = corpus
    for name in ("output", "seed"):
        if name in given:
            merged[name] = given[name]
    if "method" in given:
        merged["stages"] = _stages_of(given["method"])
    training = {
        field: given[name]
        for name, field in (
            ("steps", "max_steps"),
            ("batch_size", "per_device_train_batch_size"),
            ("learning_rate", "learning_rate"),
        )
        if name in given
    }
    stages = merged.get("stages")
    if training and isinstance(stages, list):
        merged["stages"] = [
            {**_mapping(stage), "training": {**_mapping(_mapping(stage).get("training")), **training}}
            for stage in stages
        ]
    return merged


def _stages_of(method: str) -> list[dict[str, Any]]:
    """The stages that make a method up, all of them with its defaults."""
    from limbeck.methods.registry import METHODS

    stages = METHODS[method].stages if method in METHODS else ()
    if not stages:
        return [{"method": method}]
    return [{"name": f"stage-{number}", "method": dict(stage)} for number, stage in enumerate(stages, start=1)]


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
