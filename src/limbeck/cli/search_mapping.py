"""`limbeck search mapping`: ELM's genetic search for the layer mapping that makes the best student."""

from __future__ import annotations

from typing import Annotated

import typer

from limbeck.cli.messages import print_json, print_line, progress_console, result_console
from limbeck.cli.options import (
    PROTOCOLS,
    STUDY_PANEL,
    TASKS,
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
    Steps,
    Storage,
    Student,
    StudyName,
    Teacher,
    Verbose,
    Workers,
    base_recipe,
    complete,
    complete_list,
    examples,
    parse_layers,
)

EPILOG = examples(
    "limbeck search mapping recipe.yaml --steps 2000 --output runs/mapping",
    "limbeck search mapping --teacher google-bert/bert-base-uncased --student 4x312 --corpus texts/ --method elm "
    "--steps 2000 --data data/ --output runs/mapping",
    "limbeck distill runs/mapping/recipe.yaml",
)
GENETIC_PANEL = "The genetic search"
SCORES_PANEL = "What candidates are scored by"


def command(
    output: Output,
    recipe: RecipeFile = None,
    teacher: Teacher = None,
    student: Student = None,
    corpus: Corpus = None,
    method: Method = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    length: Length = None,
    seed: Seed = None,
    share: Share = 0.1,
    generations: Annotated[
        int,
        typer.Option(
            help="Generations in all; a finished search goes on where they are more.", rich_help_panel=GENETIC_PANEL
        ),
    ] = 5,
    population: Annotated[
        int | None,
        typer.Option(
            help="Mappings in a generation; default: the paper's, 12 up to 4 layers, else 20.",
            rich_help_panel=GENETIC_PANEL,
        ),
    ] = None,
    parents: Annotated[
        str,
        typer.Option(
            help="Who breeds: `generation`, the last one, as in the paper; `best`, the best of all so far, with new "
            "children only, which costs a whole generation each time and found more in as many (docs/search.md).",
            rich_help_panel=GENETIC_PANEL,
            autocompletion=complete(("generation", "best")),
        ),
    ] = "generation",
    elite: Annotated[
        int,
        typer.Option(
            help="Best of a generation that go on unchanged; the paper keeps none.", rich_help_panel=GENETIC_PANEL
        ),
    ] = 0,
    crossover: Annotated[
        float, typer.Option(help="How likely a pair of parents is crossed (p_C).", rich_help_panel=GENETIC_PANEL)
    ] = 0.2,
    exchange: Annotated[
        float,
        typer.Option(help="How likely a crossed pair exchanges each layer (q_C).", rich_help_panel=GENETIC_PANEL),
    ] = 0.2,
    mutation: Annotated[
        float, typer.Option(help="How likely a child is mutated (p_M).", rich_help_panel=GENETIC_PANEL)
    ] = 0.8,
    flip: Annotated[
        float, typer.Option(help="How likely a mutated child flips each bit (q_M).", rich_help_panel=GENETIC_PANEL)
    ] = 0.05,
    teacher_layers: Annotated[
        str | None,
        typer.Option(
            metavar="LAYERS", help="Teacher layers that may be learned from: 1-8,10.", rich_help_panel=GENETIC_PANEL
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="Proxy tasks by commas; with --data the paper's sst2,mnli,squad. Without tasks, and with `none`, "
            "held-out text decides, which needs no labels.",
            rich_help_panel=SCORES_PANEL,
            autocompletion=complete_list(("none", *TASKS)),
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder with the tasks' files, or `hub`; default with tasks: hub.",
            rich_help_panel=SCORES_PANEL,
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="Protocol of the fine-tuning, as `limbeck evaluate` has it.",
            rich_help_panel=SCORES_PANEL,
            autocompletion=complete(PROTOCOLS),
        ),
    ] = "quick",
    seeds: Annotated[
        int, typer.Option(help="Fine-tunings of every student on every task.", rich_help_panel=SCORES_PANEL)
    ] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set-task",
            metavar="SETTING=VALUE",
            help="Override the protocol: --set-task mnli.epochs=1",
            rich_help_panel=SCORES_PANEL,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Students that a worker trains at once under one teacher; default: its part of a generation.",
            rich_help_panel=STUDY_PANEL,
        ),
    ] = None,
    storage: Storage = None,
    name: StudyName = "mapping",
    workers: Workers = 1,
    overrides: Overrides = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Search for the layer mapping whose student does best on a proxy: ELM's genetic algorithm, one teacher for all."""
    from limbeck.recipe.load import load_recipe
    from limbeck.report.search import write_search
    from limbeck.report.search_mapping_figures import mapping_pictures
    from limbeck.report.search_tables import search_table
    from limbeck.search.mapping import MappingRequest, search_mapping, task_measures
    from limbeck.search.requests import ProxyRequest

    console = progress_console(quiet, verbose)
    base = base_recipe(
        recipe, overrides, output=output, teacher=teacher, student=student, corpus=corpus, method=method,
        batch_size=batch_size, learning_rate=learning_rate, length=length, seed=seed,
    )  # fmt: skip
    genetic = {
        "crossover": crossover, "exchange": exchange, "mutation": mutation, "flip": flip, "elite": elite,
        "parents": parents, **({} if population is None else {"population": population}),
    }  # fmt: skip
    layers = parse_layers("--teacher-layers", teacher_layers)
    run = load_recipe(base)
    request = MappingRequest(
        ProxyRequest(run, output, name, steps=steps, share=share, storage=storage),
        generations=generations,
        genetic=genetic,
        teacher_layers=None if layers is None else tuple(layers),
        measures=task_measures(tasks, data=data, preset=preset, seeds=seeds, settings=settings or []),
        batch=batch,
        workers=workers,
    )
    record = search_mapping(request, console)
    if not record:
        return  # The main process of several writes and reports.
    files = write_search(output.expanduser(), record, mapping_pictures(record))
    if as_json:
        print_json({**record, "files": files})
        return
    result_console().print(search_table(record))
    print_line(f"Recipe: {files[1]}")
