"""`limbeck evaluate`: from model folders to the tables that the papers print."""

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli import options
from limbeck.cli.messages import Messages, print_result
from limbeck.cli.options import measuring_option
from limbeck.core.lists import parse_names, parse_numbers


@options.command(
    "limbeck evaluate runs/mine/student --teacher google-bert/bert-base-uncased --tasks glue,squad2 --data data/ "
    "--preset minilmv2 --output runs/mine/evaluation",
    "limbeck evaluate runs/mine/student --tasks mrpc --preset quick --output runs/look",
    "limbeck evaluate runs/sst2/student --teacher my-teacher --as-is --tasks sst2 --data data/ --output runs/as-is",
    "limbeck evaluate runs/mine/student --teacher google-bert/bert-base-uncased --speed --output runs/cost",
)
def evaluate(
    models: Annotated[list[str], typer.Argument(help="Folders, Hub names or package:NAME.")],
    output: Annotated[Path, typer.Option(help="Output folder; finished cells in it are not run again.")],
    tasks: Annotated[
        str,
        typer.Option(
            help="Tasks, groups (glue, qa, cross_lingual …) and task files, separated by commas.",
            autocompletion=options.complete_list((*options.TASK_GROUPS, *options.TASKS)),
        ),
    ] = "",
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder with the task files; default: hub, the Hugging Face Hub.")
    ] = None,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Score the models with the heads they have; nothing is trained.")
    ] = False,
    classes: Annotated[
        str,
        typer.Option(
            metavar="NAME=CLASS,…",
            help="With --as-is: the task's names for the model's classes, such as LABEL_0=entailment,…",
        ),
    ] = "",
    preset: Annotated[
        str | None,
        typer.Option(
            help="minilmv2 (the default), minilm, elm, mlkd_bert (the default with --as-is), comparative_study, "
            "comparative_study_multilingual or quick.",
            autocompletion=options.complete(options.PROTOCOLS),
        ),
    ] = None,
    average: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE", help="Average over the columns of a table in the preset's paper, such as table3."
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds per grid point; default: the paper's.")
    ] = None,
    teacher: Annotated[
        str | None, typer.Option(help="Model to compare the others with, evaluated as well; default: the first model.")
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Name of a model in tables; may be repeated, in the order of the models, the teacher last."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes that run cells side by side; one per GPU.")
    ] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SETTING=VALUE", help="Override a setting: --set epochs=3, --set cola.epochs=10"),
    ] = None,
    keep_weights: Annotated[
        str | None,
        typer.Option(
            metavar="best|all",
            help="Keep fine-tuned models: the best of each model and task, or one for every cell.",
            autocompletion=options.complete(("best", "all")),
        ),
    ] = None,
    speed: Annotated[bool, measuring_option("--speed", help="Also measure sizes, operations and latency.")] = False,
    batch_sizes: Annotated[
        str, measuring_option(help="With --speed: batch sizes, separated by commas.")
    ] = "1,16,32,64",
    lengths: Annotated[
        str, measuring_option(help="With --speed: text lengths in tokens, separated by commas.")
    ] = "128",
    device: options.Device = "auto",
    seconds: Annotated[
        float, measuring_option(min=0.01, max=options.LONGEST_SECONDS, help="With --speed: time for all measurements.")
    ] = 60.0,
    *,
    messages: Messages,
) -> None:
    """Score models on tasks, as they are or fine-tuned by a paper's protocol, in tables laid out as in the papers."""
    from limbeck.api import evaluate as run_evaluation

    result = run_evaluation(
        models, tasks, output=output, data=data,
        preset=preset, average=average, seeds=seeds, teacher=teacher, names=name or (), workers=workers,
        overrides=settings or [], keep_weights=keep_weights, as_is=as_is, classes=parse_names("--classes", classes),
        speed=speed,
        batch_sizes=parse_numbers("--batch-sizes", batch_sizes),
        lengths=parse_numbers("--lengths", lengths), device=device, seconds=seconds, console=messages.console(),
    )  # fmt: skip
    from limbeck.report.evaluation import costs_table, evaluation_table

    content = {"summary": result.summary, "costs": result.costs, "failed": result.failed, "files": result.files}
    tables = [evaluation_table(result.summary)] if result.summary["columns"] else []
    tables += [costs_table(result.costs)] if result.costs is not None else []
    print_result(messages.as_json, content, *tables, f"Tables: {result.files[0]}")
    if result.failed:
        raise typer.Exit(1)
