"""`limbeck trim`: a model with fewer pieces in its vocabulary, without training."""

from limbeck.api.requests.trim import TrimRequest
from limbeck.cli.command import request_command
from limbeck.cli.messages import Messages, print_result


@request_command(
    TrimRequest,
    "limbeck trim intfloat/multilingual-e5-small --corpus german/ --corpus english/ --pieces 24000 --output e5-de-en",
    "limbeck trim runs/mine --corpus texts/ --coverage 0.9995 --always names.txt --check --output small",
    options="model corpus pieces coverage always text_column output check",
)
def trim(request: TrimRequest, messages: Messages) -> None:
    """Reduce a model's vocabulary to the pieces of a text, without training, and show how much longer texts become."""
    from limbeck.api.trimming import carry_out_trim

    result = carry_out_trim(messages.of(request))
    content = {"folder": result.folder, "trim": result.record}
    print_result(messages.as_json, content, result.blocks(), result.place)
