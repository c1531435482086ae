"""`limbeck inspect`: a look inside a model, alone or beside its teacher."""

from limbeck.api.requests import inspect as requests
from limbeck.cli.command import command_group, request_command
from limbeck.cli.messages import Messages, print_result
from limbeck.errors import RecipeError

inspect = command_group(
    "inspect",
    "Look inside a model, alone or beside its teacher, in numbers and figures.",
    "limbeck inspect similarity runs/mine/student --teacher google-bert/bert-base-uncased --output look/",
)


@request_command(
    requests.PhrasesRequest,
    "limbeck inspect phrases runs/mine/student --teacher google-bert/bert-base-uncased --data conll2000/test.txt "
    "--output look/",
    options="model data teacher spans unlabelled clusters held_out seeds seed device output",
    group=inspect,
)
def phrases(request: requests.PhrasesRequest, messages: Messages) -> None:
    """Measure how much each layer knows about phrases, by clustering their vectors (MiniLM paper, table 10)."""
    _inspect("phrases", request, messages)


@request_command(
    requests.AttentionRequest,
    "limbeck inspect attention runs/mine/student --teacher google-bert/bert-base-uncased "
    '--sentence "The river had risen." --layers 3:6,6:12 --heads mean,1,2 --output look/',
    options="model teacher sentence layers heads texts count length device output",
    group=inspect,
)
def attention(request: requests.AttentionRequest, messages: Messages) -> None:
    """Draw attention maps of a sentence and, with a teacher, measure how much each head differs from the teacher's."""
    if request.sentence is not None and not request.sentence.strip():
        raise RecipeError("--sentence is empty; give a sentence, or leave --sentence out for the first text.")
    # Maps are drawn into the folder, numbers of a comparison are printed, and `--json` prints the maps as numbers.
    if request.output is None and request.teacher is None and not messages.as_json:
        raise RecipeError(
            "Without --teacher the only result is drawn maps, and no place for them is given; add --output FOLDER "
            "or --json, or compare with a teacher by --teacher."
        )
    _inspect("attention", request, messages)


@request_command(
    requests.SimilarityRequest,
    "limbeck inspect similarity runs/mine/student --teacher google-bert/bert-base-uncased --texts held-out.txt "
    "--output look/",
    options="model teacher texts count length device output",
    group=inspect,
)
def similarity(request: requests.SimilarityRequest, messages: Messages) -> None:
    """Compare each layer with each layer of the teacher or of the model itself, by linear centred kernel alignment."""
    _inspect("similarity", request, messages)


@request_command(
    requests.ContributionRequest,
    "limbeck inspect contribution google-bert/bert-base-uncased --texts held-out.txt --output look/",
    options="model teacher texts count length device output",
    group=inspect,
)
def contribution(request: requests.ContributionRequest, messages: Messages) -> None:
    """Measure how much each layer changes its input, by the cosine between its input and its output.

    By the `contribution` mapping, a student learns from the layers with the lowest cosines (ELM paper, section 5.3.1).
    """
    _inspect("contribution", request, messages)


def _inspect(kind: str, request: requests.InspectRequest, messages: Messages) -> None:
    """Inspect, and print the result."""
    from limbeck.api.inspecting import carry_out_inspection

    result = carry_out_inspection(kind, messages.of(request))
    content = {"inspection": kind, "result": result.found}
    print_result(messages.as_json, content, result.blocks(), *(f"Written: {path}" for path in result.files))
