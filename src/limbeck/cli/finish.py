"""`limbeck finish`: the student of a run that was stopped, as its newest checkpoint has it."""

from limbeck.api.requests.finish import FinishRequest
from limbeck.cli.command import request_command
from limbeck.cli.distill import print_run
from limbeck.cli.messages import Messages


@request_command(FinishRequest, "limbeck finish runs/mine", options="run device")
def finish(request: FinishRequest, messages: Messages) -> None:
    """End a run early, and keep the student of its newest checkpoint.

    The student is measured like that of a whole run. Nothing is trained, and later stages are skipped.

    The run is marked as ended early, and cannot be continued.
    """
    from limbeck.api.finishing import carry_out_finish

    result = carry_out_finish(messages.of(request))
    print_run(result, messages.as_json)
