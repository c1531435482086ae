"""`limbeck search`: a layer mapping, a student's shape or a teacher layer, found on a subset."""

from limbeck.api.requests import search as requests
from limbeck.cli.command import command_group, request_command
from limbeck.cli.messages import Messages, print_result

search = command_group(
    "search",
    "Find the best layer mapping, student shape or teacher layer by trial trainings shorter than the run.",
    "limbeck search mapping recipe.yaml --steps 2000 --output runs/mapping",
)


@request_command(
    requests.MappingRequest,
    "limbeck search mapping recipe.yaml --steps 2000 --output runs/mapping",
    "limbeck search mapping --teacher google-bert/bert-base-uncased --student 4x312 --corpus texts/ --method elm "
    "--steps 2000 --data data/ --output runs/mapping",
    "limbeck distill runs/mapping/recipe.yaml",
    options="output recipe teacher student corpus text_column label_column "
    "method steps batch_size learning_rate length seed share generations "
    "population parents elite crossover exchange mutation flip teacher_layers tasks data preset seeds settings batch "
    "storage name workers overrides device",
    group=search,
)
def mapping(request: requests.MappingRequest, messages: Messages) -> None:
    """Search for the layer mapping whose student does best in a short training, by ELM's genetic algorithm.

    To save time, several candidates train at once and share the teacher's forward pass.
    """
    _search("mapping", request, messages)


@request_command(
    requests.ArchitectureRequest,
    "limbeck search architecture recipe.yaml --layers 3,4,6 --hidden 192,312,384 --heads 6,12 --steps 2000 "
    "--max-latency-share 0.5 --output runs/shape",
    "limbeck search architecture --teacher google-bert/bert-base-uncased --corpus texts/ --method hidden_states "
    "--layers 3,4,6 --hidden 312,384 --heads 12 --max-parameters 20M --steps 2000 --output runs/shape",
    "limbeck distill runs/shape/recipe.yaml",
    options="output layers hidden heads ffn recipe teacher corpus text_column label_column "
    "method steps batch_size learning_rate length seed "
    "share max_parameters max_latency_share measure_length measure_batch measure_seconds loss trials sampler episode "
    "batch prune storage name workers overrides device",
    group=search,
)
def architecture(request: requests.ArchitectureRequest, messages: Messages) -> None:
    """Search for student shapes with a low loss and a low latency, within limits that you set.

    To save time, several candidates train at once and share the teacher's forward pass.
    """
    _search("architecture", request, messages)


@request_command(
    requests.TeacherLayerRequest,
    "limbeck search teacher-layer recipe.yaml --steps 2000 --output runs/layer",
    "limbeck search teacher-layer --teacher google-bert/bert-large-uncased --student 6x384 --corpus texts/ --method "
    "minilmv2 --layers 12-24 --steps-total 20000 --output runs/layer",
    "limbeck distill runs/layer/recipe.yaml",
    options="output recipe teacher student corpus text_column label_column "
    "method layers steps steps_total halving no_halving batch_size "
    "learning_rate length seed share storage name overrides device",
    group=search,
)
def teacher_layer(request: requests.TeacherLayerRequest, messages: Messages) -> None:
    """Search for the teacher layer that a student learns from best.

    Candidates for all layers train at the same time, and the worst are dropped along the way.
    """
    _search("teacher-layer", request, messages)


def _search(kind: str, request: requests.SearchRequest, messages: Messages) -> None:
    """Run a search, and print the result."""
    from limbeck.api.searching import carry_out_search

    result = carry_out_search(kind, messages.of(request))
    if result is None:
        return  # The main process of several reports.
    content = {**result.record, "files": result.files}
    print_result(messages.as_json, content, result.blocks(), f"Recipe: {result.files[1]}")
