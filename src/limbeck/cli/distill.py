"""`limbeck distill`: one distillation run, from a recipe or from a few options."""

from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli import options as shared
from limbeck.cli.messages import Messages, print_result
from limbeck.cli.options import command, training_option
from limbeck.core.paths import RECIPE
from limbeck.errors import RecipeError


@command(
    "limbeck distill --teacher intfloat/e5-small-v2 --student 3 --corpus texts/ --output runs/e5",
    "limbeck distill recipe.yaml --set stages.0.training.max_steps=1000",
    "limbeck distill --teacher google-bert/bert-base-uncased --student 6x384 --corpus texts/ --method minilmv2 "
    "--steps 100000 --output runs/mine",
    "limbeck distill --resume --output runs/mine",
)
def distill(
    recipe: Annotated[Path | None, typer.Argument(help="The recipe (YAML).", show_default=False)] = None,
    teacher: shared.Teacher = None,
    student: shared.Student = None,
    corpus: shared.Corpus = None,
    method: shared.Method = None,
    output: Annotated[str | None, typer.Option(help="Output folder of the run.")] = None,
    steps: shared.Steps = None,
    batch_size: Annotated[
        int | None, training_option(min=1, help="Blocks per step and device, in every stage.")
    ] = None,
    learning_rate: shared.LearningRate = None,
    length: Annotated[int | None, training_option(min=4, help="Longest block in tokens.")] = None,
    seed: Annotated[int | None, training_option(min=0, help="Seed of the run.")] = None,
    overrides: shared.Overrides = None,
    device: shared.Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the output folder.")] = False,
    overwrite: shared.Overwrite = False,
    *,
    messages: Messages,
) -> None:
    """Distil a student from a teacher, by a recipe, by options, or both.

    Without a recipe or a method, everything left out is chosen to suit the teacher, and each choice is explained.

    With a method, only the student's start is chosen.
    """
    console = messages.console()
    data = recipe_data(
        recipe, teacher=teacher, student=student, corpus=corpus, method=method, output=output, steps=steps,
        batch_size=batch_size, learning_rate=learning_rate, length=length, seed=seed, resume=resume,
    )  # fmt: skip
    from limbeck.api import distill as run_distillation
    from limbeck.core.ranks import is_main

    result = run_distillation(data, overrides or [], resume=resume, overwrite=overwrite, console=console)
    if is_main():
        print_run(result.student, result.metrics, messages.as_json)


def print_run(student: Path, metrics: dict[str, Any], as_json: bool, *more: str) -> None:
    """Print the student of a run and its table, then further lines."""
    from limbeck.report.quality import comparison_table

    tables = [comparison_table(metrics)] if metrics else []
    content = {"student": student, "metrics": metrics}
    print_result(as_json, content, *tables, f"Student: {student}", *more)


def recipe_data(recipe: Path | None, *, resume: bool = False, chooses: bool = True, **options: Any) -> dict[str, Any]:
    """Make a recipe of a file and options; options win.

    Args:
        recipe: The file, if any; with `resume` and an output alone, the recipe saved there.
        resume: Whether a run is continued.
        chooses: Whether a recipe is chosen where neither a file nor a method is given; else a method is needed, and no
            output.
        **options: The options of the command; None where not given.

    Raises:
        RecipeError: if neither a file nor enough options are given.
    """
    from limbeck.recipe.asked import CHOSEN_BY, choose_by_options, merge_options
    from limbeck.recipe.load import read_recipe

    given = {name: value for name, value in options.items() if value not in (None, [])}
    saved = Path(given.get("output", "")) / RECIPE
    if recipe is None and resume and set(given) == {"output"} and saved.is_file():
        return read_recipe(saved) | {"output": given["output"]}
    if recipe is not None:
        try:
            data = read_recipe(recipe)
        except RecipeError:
            if "corpus" not in given or recipe.suffix in (".yaml", ".yml", ".json"):
                raise
            raise RecipeError(  # A shell made several files of one pattern.
                f"'{recipe}' would be the recipe, behind the first file of --corpus, and is none; quote the pattern, "
                f"as in --corpus '{recipe.parent}/*{recipe.suffix}', or repeat --corpus."
            ) from None
    elif resume and not given:
        raise RecipeError("--resume continues the run in a folder: give that folder as --output, or the recipe.")
    elif resume and set(given) == {"output"}:
        raise RecipeError(f"'{given['output']}' holds no run to resume; give the recipe, or the run's own folder.")
    else:
        needed = (*CHOSEN_BY, "output" if chooses else "method")
        missing = [f"--{name}" for name in needed if name not in given]
        if missing:
            raise RecipeError(
                f"Without a recipe, these options are needed too: {', '.join(missing)}; "
                "or give a recipe, see `limbeck recipe --example`."
            )
        return choose_by_options(given, resume=resume)
    return merge_options(data, given)
