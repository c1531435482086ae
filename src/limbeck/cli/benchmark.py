"""`limbeck benchmark`: the costs of losses, training steps and models on this machine."""

from limbeck.api.requests import benchmark as requests
from limbeck.cli.command import command_group, request_command
from limbeck.cli.messages import Messages, print_result

benchmark = command_group(
    "benchmark",
    "Measure the time and memory of losses, training steps and models on this machine.",
    "limbeck benchmark step --teacher 12x768 --student 6x384 --output step.csv",
)


@request_command(
    requests.LossRequest,
    "limbeck benchmark loss --lengths 128,512 --heads 48 --output loss.csv",
    "limbeck benchmark loss --objective soft_label_kl --classes 250002 --lengths 128",
    options="objective backends lengths heads batch widths classes pair ragged dtype device seconds memory output",
    group=benchmark,
)
def loss(request: requests.LossRequest, messages: Messages) -> None:
    """Time a loss, forward and backward, with each backend, and show its peak memory and its error against float64."""
    _measure("loss", request, messages)


@request_command(
    requests.StepRequest,
    "limbeck benchmark step --teacher 12x768 --student 6x384 --method minilmv2 --batch 8 --ragged",
    "limbeck benchmark step --method distilbert --student 6x768 --vocabulary 250002",
    "limbeck benchmark step recipe.yaml --output step.json",
    options="recipe teacher student method vocabulary stage batch length ragged dtype device seconds memory overrides "
    "output",
    group=benchmark,
)
def step(request: requests.StepRequest, messages: Messages) -> None:
    """Time training steps and their parts, and compare them with the fastest that this machine can be (the floor).

    Weights and tokens are random, so nothing is downloaded. This does not change the times.
    """
    _measure("step", request, messages)


@request_command(
    requests.ModelRequest,
    "limbeck benchmark model google-bert/bert-base-uncased runs/mine/student",
    "limbeck benchmark model 12x768 6x384 --batch-sizes 1,32 --lengths 128,512 --output model.csv",
    options="models batch_sizes lengths dtype device seconds warmup output",
    group=benchmark,
)
def model(request: requests.ModelRequest, messages: Messages) -> None:
    """Time the forward passes of one or more models in turn, and show latency, throughput and speedup."""
    _measure("model", request, messages)


def _measure(kind: str, request: requests.BenchmarkRequest, messages: Messages) -> None:
    """Measure, write the file, and print the result."""
    from limbeck.api.benchmarking import carry_out_benchmark
    from limbeck.benchmark.rows import report_dict

    result = carry_out_benchmark(kind, messages.of(request))
    content = report_dict(kind, result.rows, result.machine)
    lines = [] if request.output is None else [f"Rows: {request.output}"]
    print_result(messages.as_json, content, result.blocks(), *lines)
