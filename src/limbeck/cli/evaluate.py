"""`limbeck evaluate`: from model folders to the tables that the papers print."""

import typer

from limbeck.api.requests.evaluate import EvaluateRequest
from limbeck.cli.command import request_command
from limbeck.cli.messages import Messages, print_result


@request_command(
    EvaluateRequest,
    "limbeck evaluate runs/mine/student --teacher google-bert/bert-base-uncased --tasks glue,squad2 --data data/ "
    "--preset minilmv2 --output runs/mine/evaluation",
    "limbeck evaluate runs/mine/student --tasks mrpc --preset quick --output runs/look",
    "limbeck evaluate runs/sst2/student --teacher my-teacher --as-is --tasks sst2 --data data/ --output runs/as-is",
    "limbeck evaluate runs/mine/student --teacher google-bert/bert-base-uncased --speed --output runs/cost",
    "limbeck evaluate --checkpoints runs/mine --tasks mrpc --preset elm --output runs/by-step",
    options="models output tasks data as_is classes preset average seeds teacher names checkpoints workers overrides "
    "keep_weights speed batch_sizes lengths device seconds",
)
def evaluate(request: EvaluateRequest, messages: Messages) -> None:
    """Score models on tasks, as they are or fine-tuned by a paper's protocol, in tables laid out as in the papers."""
    from limbeck.api.evaluating import carry_out_evaluation

    result = carry_out_evaluation(messages.of(request))
    content = {"summary": result.summary, "costs": result.costs, "failed": result.failed, "files": result.files}
    print_result(messages.as_json, content, result.blocks(), f"Tables: {result.files[0]}")
    if result.failed:
        raise typer.Exit(1)
