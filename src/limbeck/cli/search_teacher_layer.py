"""`limbeck search teacher-layer`: the layer of the teacher whose student does best."""

from __future__ import annotations

from typing import Annotated

import typer

from limbeck.cli.messages import print_json, print_line, progress_console, result_console
from limbeck.cli.options import (
    BatchSize,
    Corpus,
    Json,
    LearningRate,
    Length,
    Method,
    Output,
    Overrides,
    Quiet,
    RecipeFile,
    Seed,
    Share,
    Storage,
    Student,
    StudyName,
    Teacher,
    Verbose,
    base_recipe,
    examples,
    parse_layers,
)

EPILOG = examples(
    "limbeck search teacher-layer recipe.yaml --steps 2000 --output runs/layer",
    "limbeck search teacher-layer --teacher google-bert/bert-large-uncased --student 6x384 --corpus texts/ "
    "--method minilmv2 --layers 12-24 --steps-total 20000 --output runs/layer",
    "limbeck distill runs/layer/recipe.yaml",
)
RACE_PANEL = "The race"


def command(
    output: Output,
    recipe: RecipeFile = None,
    teacher: Teacher = None,
    student: Student = None,
    corpus: Corpus = None,
    method: Method = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Teacher layers to choose from: 6-12 or 4,8,10-12; default: all.", rich_help_panel=RACE_PANEL
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Steps of a candidate that is never dropped; default: the recipe's. What is found keeps those.",
            rich_help_panel=RACE_PANEL,
        ),
    ] = None,
    steps_total: Annotated[
        int | None,
        typer.Option(help="Steps of all candidates together, in place of --steps.", rich_help_panel=RACE_PANEL),
    ] = None,
    halving: Annotated[
        int | None,
        typer.Option(
            help="Of how many candidates one goes on after each round; default: 2.", rich_help_panel=RACE_PANEL
        ),
    ] = None,
    no_halving: Annotated[
        bool,
        typer.Option("--no-halving", help="Train every candidate to the end.", rich_help_panel=RACE_PANEL),
    ] = False,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    length: Length = None,
    seed: Seed = None,
    share: Share = 1.0,
    storage: Storage = None,
    name: StudyName = "teacher-layer",
    overrides: Overrides = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Search for the teacher layer to learn from: all candidates at once, the lower ones dropped on the way."""
    from limbeck.recipe.load import load_recipe
    from limbeck.report.search import write_search
    from limbeck.report.search_tables import search_table
    from limbeck.report.search_teacher_layer_figures import teacher_layer_picture
    from limbeck.search.requests import ProxyRequest
    from limbeck.search.teacher_layer import TeacherLayerRequest, search_teacher_layer

    console = progress_console(quiet, verbose)
    base = base_recipe(
        recipe, overrides, output=output, teacher=teacher, student=student, corpus=corpus, method=method,
        batch_size=batch_size, learning_rate=learning_rate, length=length, seed=seed,
    )  # fmt: skip
    chosen = parse_layers("--layers", layers)
    request = TeacherLayerRequest(
        proxy=ProxyRequest(load_recipe(base), output, name, steps=steps, share=share, storage=storage),
        layers=None if chosen is None else tuple(chosen),
        steps_total=steps_total,
        halving=parse_halving(halving, no_halving),
    )
    record = search_teacher_layer(request, console)
    if not record:
        return  # The main process of several writes and reports.
    files = write_search(output.expanduser(), record, {"layers": teacher_layer_picture(record)})
    if as_json:
        print_json({**record, "files": files})
        return
    result_console().print(search_table(record))
    print_line(f"Recipe: {files[1]}")


def parse_halving(halving: int | None, no_halving: bool) -> int | None:
    """Return of how many candidates one goes on, 2 where nothing is said; None where all do.

    Raises:
        RecipeError: if both options are given.
    """
    from limbeck.errors import RecipeError

    if no_halving and halving is not None:
        raise RecipeError(f"--halving {halving} and --no-halving contradict each other; give one of them.")
    if no_halving:
        return None
    return 2 if halving is None else halving
