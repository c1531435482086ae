"""`limbeck search architecture`: the student's shape of low loss at low latency, under limits."""

from __future__ import annotations

from typing import Annotated

import typer

from limbeck.cli.messages import print_json, print_line, progress_console, result_console
from limbeck.cli.options import (
    LONGEST_SECONDS,
    MEASURING_PANEL,
    SAMPLERS,
    STUDY_PANEL,
    BatchSize,
    Corpus,
    Device,
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
    Steps,
    Storage,
    StudyName,
    Teacher,
    Verbose,
    Workers,
    base_recipe,
    complete,
    examples,
    parse_numbers,
)

EPILOG = examples(
    "limbeck search architecture recipe.yaml --layers 3,4,6 --hidden 192,312,384 --heads 6,12 --steps 2000 "
    "--max-latency-share 0.5 --output runs/shape",
    "limbeck search architecture --teacher google-bert/bert-base-uncased --corpus texts/ --method hidden_states "
    "--layers 3,4,6 --hidden 312,384 --heads 12 --max-parameters 20M --steps 2000 --output runs/shape",
    "limbeck distill runs/shape/recipe.yaml",
)
SHAPES_PANEL = "Shapes and limits"


def command(
    output: Output,
    layers: Annotated[
        str, typer.Option(help="Numbers of layers to choose from, by commas: 3,4,6.", rich_help_panel=SHAPES_PANEL)
    ],
    hidden: Annotated[
        str, typer.Option(help="Hidden widths to choose from, by commas: 192,312,384.", rich_help_panel=SHAPES_PANEL)
    ],
    heads: Annotated[
        str, typer.Option(help="Numbers of heads to choose from, by commas: 6,12.", rich_help_panel=SHAPES_PANEL)
    ] = "12",
    ffn: Annotated[
        str,
        typer.Option(
            help="Feed-forward widths to choose from, as multiples of the hidden width: 2,4.",
            rich_help_panel=SHAPES_PANEL,
        ),
    ] = "4",
    recipe: RecipeFile = None,
    teacher: Teacher = None,
    corpus: Corpus = None,
    method: Method = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    length: Length = None,
    seed: Seed = None,
    share: Share = 1.0,
    max_parameters: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT", help="Most parameters of the student's encoder: 30M.", rich_help_panel=SHAPES_PANEL
        ),
    ] = None,
    max_latency_share: Annotated[
        float | None,
        typer.Option(help="Longest latency, as a share of the teacher's: 0.5.", rich_help_panel=SHAPES_PANEL),
    ] = None,
    device: Device = "auto",
    measure_length: Annotated[
        int | None,
        typer.Option(
            help="Tokens a text for the latency; default: 128, or all that the teacher takes.",
            rich_help_panel=MEASURING_PANEL,
        ),
    ] = None,
    measure_batch: Annotated[
        int, typer.Option(help="Texts a pass for the latency.", rich_help_panel=MEASURING_PANEL)
    ] = 1,
    measure_seconds: Annotated[
        float,
        typer.Option(
            min=0.0, max=LONGEST_SECONDS, help="Time for the latency of each shape.", rich_help_panel=MEASURING_PANEL
        ),
    ] = 4.0,
    trials: Annotated[
        int,
        typer.Option(help="Shapes to train in all; a finished search goes on with more.", rich_help_panel=STUDY_PANEL),
    ] = 24,
    sampler: Annotated[
        str,
        typer.Option(
            help="Optuna's sampler: tpe, random, nsga2, gp.",
            rich_help_panel=STUDY_PANEL,
            autocompletion=complete(SAMPLERS),
        ),
    ] = "tpe",
    batch: Annotated[
        int,
        typer.Option(help="Shapes that a worker trains at once under one teacher.", rich_help_panel=STUDY_PANEL),
    ] = 4,
    prune: Annotated[
        bool,
        typer.Option(
            help="Stop shapes whose reward on the way is below the median of the others.", rich_help_panel=STUDY_PANEL
        ),
    ] = True,
    storage: Storage = None,
    name: StudyName = "architecture",
    workers: Workers = 1,
    overrides: Overrides = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Search for the student's shape of low loss at low latency, within limits, one teacher for all."""
    from limbeck.recipe.load import load_recipe
    from limbeck.report.search import write_search
    from limbeck.report.search_architecture_figures import architecture_picture
    from limbeck.report.search_tables import search_table
    from limbeck.search.architecture import ArchitectureRequest, MeasuringRequest, search_architecture
    from limbeck.search.requests import ProxyRequest
    from limbeck.search.shape_space import ShapeLimits, ShapeSizes, parse_count

    sizes = ShapeSizes(
        tuple(parse_numbers("--layers", layers)),
        tuple(parse_numbers("--hidden", hidden)),
        tuple(parse_numbers("--heads", heads)),
        tuple(parse_multiples("--ffn", ffn)),
    )
    # The recipe's own shape is never trained, so that one of the search does where none is given.
    given = None if recipe is not None else f"{sizes.layers[0]}x{sizes.hidden[0]}h{sizes.heads[0]}"
    console = progress_console(quiet, verbose)
    base = base_recipe(
        recipe, overrides, output=output, teacher=teacher, student=given, corpus=corpus, method=method,
        batch_size=batch_size, learning_rate=learning_rate, length=length, seed=seed,
    )  # fmt: skip
    request = ArchitectureRequest(
        proxy=ProxyRequest(load_recipe(base), output, name, steps=steps, share=share, storage=storage),
        sizes=sizes,
        limits=ShapeLimits(
            None if max_parameters is None else parse_count("--max-parameters", max_parameters), max_latency_share
        ),
        measuring=MeasuringRequest(device, measure_length, measure_batch, measure_seconds),
        trials=trials,
        batch=batch,
        sampler=sampler,
        prune=prune,
        workers=workers,
    )
    record = search_architecture(request, console)
    if not record:
        return  # The main process of several writes and reports.
    pictures = {"loss_and_latency": architecture_picture(record)}
    files = write_search(output.expanduser(), record, pictures)
    if as_json:
        print_json({**record, "files": files})
        return
    result_console().print(search_table(record))
    print_line(f"Recipe: {files[1]}")


def parse_multiples(option: str, text: str) -> list[float]:
    """Read numbers above 0, whole or not, separated by commas.

    Raises:
        RecipeError: for anything else.
    """
    from limbeck.errors import RecipeError

    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < number < 1000 for number in found):
        raise RecipeError(f"{option} '{text}' has to be numbers above 0, separated by commas: 2,4.")
    return [int(number) if number.is_integer() else number for number in found]
