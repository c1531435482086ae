"""`limbeck inspect`: a look inside a model, alone or beside its teacher."""

from limbeck.api.requests import inspect as requests
from limbeck.cli.command import command_group, request_command
from limbeck.cli.messages import Messages, print_result
from limbeck.errors import RecipeError

inspect = command_group(
    "inspect",
    "Look inside a model, alone or with its teacher, in numbers and figures.",
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
    """Cluster the vectors of phrases by k-means: how much each layer knows about phrases (MiniLM, table 10)."""
    _inspect("phrases", request, messages)


@request_command(
    requests.AttentionRequest,
    "limbeck inspect attention runs/mine/student --teacher google-bert/bert-base-uncased "
    '--sentence "The river had risen." --layers 3:6,6:12 --heads mean,1,2 --output look/',
    options="model teacher sentence layers heads texts count length device output",
    group=inspect,
)
def attention(request: requests.AttentionRequest, messages: Messages) -> None:
    """Draw attention maps of a sentence; with a teacher, measure how far it is from the teacher's, head by head."""
    if request.sentence is not None and not request.sentence.strip():
        raise RecipeError("--sentence is empty; give it a word, or leave it out for the first text.")
    if request.output is None and request.teacher is None and not messages.as_json:
        raise RecipeError("Without a teacher there are only maps to draw: give --output FOLDER, --teacher or --json.")
    _inspect("attention", request, messages)


@request_command(
    requests.SimilarityRequest,
    "limbeck inspect similarity runs/mine/student --teacher google-bert/bert-base-uncased --texts held-out.txt "
    "--output look/",
    options="model teacher texts count length device output",
    group=inspect,
)
def similarity(request: requests.SimilarityRequest, messages: Messages) -> None:
    """Compare every layer with every layer of the teacher, or of the model itself: linear centred kernel alignment."""
    _inspect("similarity", request, messages)


@request_command(
    requests.ContributionRequest,
    "limbeck inspect contribution google-bert/bert-base-uncased --texts held-out.txt --output look/",
    options="model teacher texts count length device output",
    group=inspect,
)
def contribution(request: requests.ContributionRequest, messages: Messages) -> None:
    """Measure how much each layer changes its input: the cosines behind the `contribution` mapping (ELM, 5.3.1)."""
    _inspect("contribution", request, messages)


def _inspect(kind: str, request: requests.InspectRequest, messages: Messages) -> None:
    """Inspect, and print the result."""
    from limbeck.api.inspecting import carry_out_inspection

    result = carry_out_inspection(kind, messages.of(request))
    content = {"inspection": kind, "result": result.found}
    print_result(messages.as_json, content, result.blocks(), *(f"Written: {path}" for path in result.files))
