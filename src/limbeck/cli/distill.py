"""`limbeck distill`: one distillation run, from a recipe or from a few options."""

from limbeck.api.distilling import RunResult
from limbeck.api.requests.distil import DistilRequest
from limbeck.cli.command import request_command
from limbeck.cli.messages import Messages, print_result


@request_command(
    DistilRequest,
    "limbeck distill --teacher intfloat/e5-small-v2 --student 3 --corpus texts/ --output runs/e5",
    "limbeck distill recipe.yaml --set stages.0.training.max_steps=1000",
    "limbeck distill --teacher google-bert/bert-base-uncased --student 6x384 --corpus texts/ --method minilmv2 "
    "--steps 100000 --output runs/mine",
    "limbeck distill --teacher intfloat/e5-small-v2 --student 3 --corpus texts/ --minutes 10 --output runs/short",
    "limbeck distill --resume --output runs/mine",
    options="recipe teacher student corpus text_column label_column "
    "method output steps minutes batch_size learning_rate length seed overrides device "
    "resume overwrite",
)
def distill(request: DistilRequest, messages: Messages) -> None:
    """Distil a student from a teacher, by a recipe, by options, or both.

    Without a recipe or a method, limbeck chooses every setting that you leave out, and explains each choice.

    With a method, limbeck chooses only the start of the student, the task of labelled rows, and the held-out share.
    """
    from limbeck.api.distilling import carry_out_distillation
    from limbeck.core.ranks import is_main

    result = carry_out_distillation(messages.of(request))
    if is_main():
        print_run(result, messages.as_json)


def print_run(result: RunResult, as_json: bool, *lines: str) -> None:
    """Print the student of a run and its table, where the run was ended early, and further lines."""
    content = {"student": result.student, "metrics": result.metrics}
    early_end = []
    if result.run.ended_early is not None:
        early_end.append(result.run.way_on(result.student))
    print_result(as_json, content, result.blocks(), result.place, *early_end, *lines)
