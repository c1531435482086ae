"""`limbeck search architecture`: the student's shape of low loss at low latency, under limits."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from limbeck.cli.search_options import (
    BatchSize,
    Corpus,
    LearningRate,
    Length,
    Method,
    Output,
    RecipeFile,
    Seed,
    Share,
    Steps,
    Storage,
    Teacher,
    Workers,
    base_recipe,
)
from limbeck.cli.shared_options import Json, Overrides, Quiet, parse_numbers, progress_console

EPILOG = (
    "Examples:  limbeck search architecture recipe.yaml --layers 3,4,6 --hidden 192,312,384 --heads 6,12 --steps 2000 "
    "--max-latency-share 0.5 --output runs/shape   |   limbeck search architecture --teacher "
    "google-bert/bert-base-uncased --corpus texts/ --method hidden_states --layers 3,4,6 --hidden 312,384 --heads 12 "
    "--max-parameters 20M --steps 2000 --output runs/shape   |   limbeck distill runs/shape/recipe.yaml"
)


def command(
    output: Output,
    layers: Annotated[str, typer.Option(help="Numbers of layers to choose from, by commas: 3,4,6.")],
    hidden: Annotated[str, typer.Option(help="Hidden widths to choose from, by commas: 192,312,384.")],
    heads: Annotated[str, typer.Option(help="Numbers of heads to choose from, by commas: 6,12.")] = "12",
    ffn: Annotated[
        str, typer.Option(help="Feed-forward widths to choose from, as multiples of the hidden width: 2,4.")
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
        str | None, typer.Option(metavar="COUNT", help="Most parameters of the student's encoder: 30M.")
    ] = None,
    max_latency_share: Annotated[
        float | None, typer.Option(help="Longest latency, as a share of the teacher's: 0.5.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where latencies are measured: cpu, cuda …")] = "auto",
    measure_length: Annotated[
        int | None, typer.Option(help="Tokens a text for the latency; default: 128, or all that the teacher takes.")
    ] = None,
    measure_batch: Annotated[int, typer.Option(help="Texts a pass for the latency.")] = 1,
    measure_seconds: Annotated[float, typer.Option(min=0.0, help="Time for the latency of each shape.")] = 4.0,
    trials: Annotated[int, typer.Option(help="Shapes to train in all; a finished search goes on with more.")] = 24,
    sampler: Annotated[str, typer.Option(help="Optuna's sampler: tpe, random, nsga2, gp.")] = "tpe",
    batch: Annotated[int, typer.Option(help="Shapes that a worker trains at once under one teacher.")] = 4,
    prune: Annotated[
        bool, typer.Option(help="Stop shapes whose reward on the way is below the median of the others.")
    ] = True,
    storage: Storage = None,
    name: Annotated[str, typer.Option(help="Name of the study in the storage.")] = "architecture",
    workers: Workers = 1,
    overrides: Overrides = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Search for the student's shape of low loss at low latency, within limits, one teacher for all."""
    from limbeck.recipe.load import load_recipe
    from limbeck.report.search_architecture_figures import architecture_picture
    from limbeck.report.search_architecture_tables import architecture_markdown, architecture_table, shapes_csv
    from limbeck.report.search_files import write_search
    from limbeck.search.architecture_request import ArchitectureRequest, MeasuringRequest
    from limbeck.search.proxy_request import ProxyRequest
    from limbeck.search.run_architecture import search_architecture
    from limbeck.search.shape_limits import ShapeLimits, parse_count
    from limbeck.search.shape_space import ShapeSizes

    sizes = ShapeSizes(
        tuple(parse_numbers("--layers", layers)),
        tuple(parse_numbers("--hidden", hidden)),
        tuple(parse_numbers("--heads", heads)),
        tuple(parse_multiples("--ffn", ffn)),
    )
    # The recipe's own shape is never trained, so that one of the search does where none is given.
    given = None if recipe is not None else f"{sizes.layers[0]}x{sizes.hidden[0]}h{sizes.heads[0]}"
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
    record = search_architecture(request, progress_console(quiet))
    if not record:
        return  # The main process of several writes and reports.
    tables = {"search.md": architecture_markdown(record), "shapes.csv": shapes_csv(record)}
    pictures = {"loss_and_latency": architecture_picture(record)}
    files = write_search(output.expanduser(), record, pictures, tables)
    if as_json:
        typer.echo(json.dumps({**record, "files": [str(path) for path in files]}, indent=2, ensure_ascii=False))
        return
    console = Console()
    console.print(architecture_table(record))
    console.print(f"Recipe: {files[1]}", highlight=False, markup=False, soft_wrap=True)


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
