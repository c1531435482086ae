"""`limbeck teach`: what a teacher says of a text, stored once for any number of students."""

from limbeck.api.requests.teach import TeachRequest
from limbeck.cli.command import request_command
from limbeck.cli.messages import Messages, print_result


@request_command(
    TeachRequest,
    "limbeck teach --teacher intfloat/e5-small-v2 --corpus texts/ --output stores/e5",
    "limbeck teach recipe.yaml --format float16 --output stores/e5",
    "limbeck teach --endpoint http://localhost:8000/v1 --model e5 --corpus texts/ --output stores/e5",
    "limbeck teach stores/e5 --check",
    options="recipe teacher corpus method output number_format length batch_size overrides check device endpoint model "
    "key_variable concurrency requests_per_minute timeout limit tokenizer too_long prompts price terms",
)
def teach(request: TeachRequest, messages: Messages) -> None:
    """Run a teacher once over a text, and store its outputs, so that students can learn without the teacher.

    The teacher is a model, or a server that is asked for vectors (--endpoint).

    To learn from the store, write `teacher: {stored: FOLDER}` in a recipe.

    If the command is stopped, run it again: it continues where it stopped.
    """
    from limbeck.api.teaching import carry_out_teaching
    from limbeck.core.ranks import is_main

    result = carry_out_teaching(messages.of(request))
    if is_main():
        print_result(messages.as_json, result.content(), result.blocks(), result.place)
