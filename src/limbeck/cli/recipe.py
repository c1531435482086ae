"""`limbeck recipe`, `validate` and `schema`: print a recipe, check a recipe, and print the schema of all recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from limbeck.api.requests.values import changes
from limbeck.cli import options as shared
from limbeck.cli.command import command
from limbeck.cli.messages import print_json, print_result
from limbeck.cli.options import Json, Overrides
from limbeck.errors import RecipeError

if TYPE_CHECKING:
    from limbeck.recipe.models import TeacherSpec


@command(
    "limbeck recipe --example > recipe.yaml",
    "limbeck recipe --example task > task.yaml",
    "limbeck recipe --teacher intfloat/e5-small-v2 --student 3 --corpus texts/ > recipe.yaml",
    "limbeck recipe --quickstart",
    "limbeck recipe recipe.yaml --set seed=7 --json",
)
def recipe(
    path: Annotated[
        Path | None,
        typer.Argument(help="Recipe to print with every default filled in; with --example: text or task."),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented example.")] = False,
    quickstart: Annotated[bool, typer.Option("--quickstart", help="Print the recipe of the quickstart.")] = False,
    teacher: shared.Teacher = None,
    student: shared.Student = None,
    corpus: shared.Corpus = None,
    text_column: shared.TextColumn = None,
    label_column: shared.LabelColumn = None,
    method: shared.Method = None,
    steps: shared.Steps = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Print a commented example recipe, a recipe with every default filled in, or one chosen to suit a teacher.

    With --teacher, --student and --corpus, it prints the recipe that `limbeck distill` would choose, with the reasons.
    """
    from limbeck.recipe.load import dump_recipe, load_recipe
    from limbeck.recipe.shipped import read_example, read_shipped

    choice = {
        "teacher": teacher,
        "student": student,
        "corpus": corpus,
        "method": method,
        "steps": steps,
        "text_column": text_column,
        "label_column": label_column,
    }
    # An option that is not given is None or empty. `--steps 0` is given: it chooses a recipe that trains nothing.
    set_options = {name: value for name, value in choice.items() if value or value == 0}
    # There are three ways to say which recipe is meant, of which exactly one has to be used. The path belongs to
    # --example, where it is the name of the example, or stands alone.
    has_path_or_example = example or path is not None
    ways = [quickstart, has_path_or_example, bool(set_options)]
    if ways.count(True) != 1:
        raise RecipeError(
            "Say which recipe to print, in exactly one way: --example, --quickstart, a path, or --teacher, "
            "--student and --corpus together."
        )
    checked_overrides = changes("--set", overrides)
    if set_options:
        text = _chosen_recipe(set_options, checked_overrides)
    elif example:
        text = read_example("text" if path is None else str(path))
    elif path is not None:
        text = dump_recipe(load_recipe(path, checked_overrides))
    else:
        text = read_shipped("quickstart")
    print_recipe(text, as_json)


def _chosen_recipe(options: dict[str, Any], overrides: Sequence[str]) -> str:
    """Return the recipe that is chosen by options, as YAML.

    Raises:
        RecipeError: without one of teacher, student and corpus.
    """
    needed_options = {"teacher", "student", "corpus"}
    if not needed_options.issubset(options):
        raise RecipeError("limbeck chooses a recipe from --teacher, --student and --corpus together; give all three.")
    from limbeck.core.yaml import dump_yaml
    from limbeck.recipe.asked import choose_by_options
    from limbeck.recipe.facts import load_checked
    from limbeck.recipe.overrides import apply_overrides

    recipe = choose_by_options(options, overrides=overrides)
    # Refuses a wrong recipe; what is printed is the short form, not the loaded one with all its defaults.
    load_checked(recipe, overrides)
    return dump_yaml(apply_overrides(recipe, overrides))


def print_recipe(text: str, as_json: bool) -> None:
    """Print a recipe as it is written, or as JSON."""
    from limbeck.core.yaml import parse_yaml

    if as_json:
        print_json(parse_yaml(text, "The recipe"))
    else:
        typer.echo(text, nl=False)


@command("limbeck validate recipe.yaml --set student.shape=4x312", "limbeck validate recipe.yaml --json")
def validate(
    recipe: Annotated[Path, typer.Argument(help="The recipe (YAML).")],
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Check a recipe and whether it fits its models and files, without training.

    The check reads the first rows of labelled files.

    The check also compares a teacher's sentence vectors with those of sentence-transformers.
    """
    from limbeck.api.distilling import carry_out_validation
    from limbeck.api.requests.distil import ValidateRequest

    plan = carry_out_validation(ValidateRequest(recipe, changes("--set", overrides)))

    content = {**plan.summary(), **_compare_vectors(plan.vector_teachers)}
    lines = [f"{name}: {text}" for name, text in content.items()]
    print_result(as_json, content, (), *lines, Text("The recipe is valid.", style="green"))


def _compare_vectors(teachers: Mapping[str, TeacherSpec]) -> dict[str, str]:
    """Compare the teachers' sentence vectors with those of sentence-transformers.

    Results are remembered in the cache, so that later calls need not load the models.

    Args:
        teachers: The teachers by their titles.

    Returns:
        A line for each teacher that could be compared.
    """
    from limbeck.models.compared_vectors import recall, remember

    result_by_title: dict[str, str | None] = {}
    not_compared = {}
    for title, spec in teachers.items():
        # A revision, such as a branch, may name another model by now, so its result is not remembered.
        result_by_title[title] = None if spec.revision else recall(spec.model)
        if result_by_title[title] is None:
            not_compared[title] = spec

    if not_compared:
        from limbeck.models.vector_check import check_vectors, describe_difference

        for title, difference in check_vectors(not_compared, fetch=False).items():
            result = describe_difference(difference)
            result_by_title[title] = result
            # Without a difference, the installed sentence-transformers does not load the model; another one may.
            spec = not_compared[title]
            if difference is not None and not spec.revision:
                remember(spec.model, result)
    return {f"sentence vectors of {title}": result for title, result in result_by_title.items() if result is not None}


@command("limbeck schema > recipe.schema.json")
def schema() -> None:
    """Print the JSON schema of recipes, with which editors complete and check recipes."""
    from limbeck.recipe.json_schema import recipe_schema

    print_json(recipe_schema())
