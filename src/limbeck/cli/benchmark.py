"""`limbeck benchmark`: the costs of losses, training steps and models on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from limbeck.cli import options
from limbeck.cli.given import check_models, check_name, check_recipe
from limbeck.cli.messages import Messages, print_result
from limbeck.cli.options import LONGEST_SECONDS, MOST, command, measuring_option, parse_numbers
from limbeck.errors import RecipeError

if TYPE_CHECKING:
    from limbeck.benchmark.rows import Row
    from limbeck.core.progress import ProgressBar

Seconds = Annotated[
    float,
    measuring_option(
        min=0.01, max=LONGEST_SECONDS, help="Time for all measurements; every case gets at least five rounds."
    ),
]
Memory = Annotated[bool, measuring_option(help="Also measure peak memory; on a CPU in separate processes.")]
Dtype = Annotated[
    str, measuring_option(help="float32, bfloat16 or float16.", autocompletion=options.complete(options.DTYPES))
]
Ragged = Annotated[bool, typer.Option("--ragged", help="Draw sample lengths from [L/2, L] instead of using L for all.")]


@dataclass(frozen=True)
class _Rows:
    output: Annotated[
        Path | None,
        options.result_option(help="Write the rows, with device, versions and commit, to a .csv or .json file."),
    ] = None
    messages: Messages = field(default_factory=Messages)

    def begin(self, device: str, dtype: str = "float32") -> ProgressBar:
        """Refuse devices, dtypes and outputs that cannot be, without torch, and return the progress of a benchmark."""
        from limbeck.benchmark.rows import check_output
        from limbeck.core.machine import check_device
        from limbeck.core.progress import ProgressBar

        console = self.messages.console()
        check_output(self.output)
        check_device(device)
        check_name("dtype", dtype, (*options.DTYPES, "float64"))
        return ProgressBar(console)

    def finish(self, name: str, rows: Sequence[Row], device: str, table: RenderableType) -> None:
        """Write the file, and print the result."""
        from limbeck.benchmark.rows import describe_machine, report_dict, write_rows
        from limbeck.core.machine import choose_device

        machine = describe_machine(choose_device(device).type)
        if self.output is not None:
            write_rows(self.output, name, rows, machine)
        written = () if self.output is None else (f"Rows: {self.output}",)
        print_result(self.messages.as_json, report_dict(name, rows, machine), table, *written)


benchmark = options.command_group(
    "benchmark",
    "Measure what losses, training steps and models cost on this machine.",
    "limbeck benchmark step --teacher 12x768 --student 6x384 --output step.csv",
)


@command(
    "limbeck benchmark loss --lengths 128,512 --heads 48 --output loss.csv",
    "limbeck benchmark loss --objective soft_label_kl --classes 250002 --lengths 128",
    group=benchmark,
)
def loss(
    objective: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(options.OBJECTIVES[:-1])} or {options.OBJECTIVES[-1]}.",
            autocompletion=options.complete(options.OBJECTIVES),
        ),
    ] = "relation_kl",
    backends: Annotated[
        str | None, typer.Option(help="Backends, separated by commas; default: all that run on the device.")
    ] = None,
    lengths: Annotated[
        str, typer.Option(help="Lengths of the longest sample in tokens, separated by commas.")
    ] = "128,512",
    heads: Annotated[
        str | None, typer.Option(help="Numbers of heads, separated by commas; default: 48, or 12 for attention.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=MOST, help="Samples.")] = 8,
    widths: Annotated[str, typer.Option(help="Widths of teacher and student.")] = "768,384",
    classes: Annotated[int, typer.Option(min=2, max=10 * MOST, help="Vocabulary size of soft labels.")] = 30_522,
    pair: Annotated[
        bool, typer.Option("--pair", help="Relate two streams to each other instead of one to itself.")
    ] = False,
    ragged: Ragged = False,
    dtype: Dtype = "float32",
    device: options.Device = "auto",
    seconds: Seconds = 30.0,
    memory: Memory = True,
    *,
    result: _Rows,
) -> None:
    """Time a loss, forward and backward, by each backend: time, peak memory, error against float64."""
    progress = result.begin(device, dtype)
    check_name("objective", objective, options.OBJECTIVES)
    from limbeck.benchmark.loss import LossCase, benchmark_of, measure_losses
    from limbeck.benchmark.rows import loss_table
    from limbeck.core.machine import choose_device

    chosen = choose_device(device)
    both = parse_numbers("--widths", widths)
    if len(both) != 2:
        raise RecipeError(f"--widths '{widths}' must be two numbers, teacher and student: 768,384.")
    measured = benchmark_of(objective)
    all_heads = parse_numbers("--heads", heads or str(measured.heads))
    if "heads" not in measured.sizes:
        all_heads = all_heads[:1]  # They play no part.
    cases = [
        LossCase(
            objective=objective, batch=batch, length=length, heads=head, teacher_width=both[0], student_width=both[1],
            classes=classes, mask="ragged" if ragged else "full", relation="pair" if pair else "symmetric",
            dtype=dtype, device=str(chosen),
        )
        for length in parse_numbers("--lengths", lengths)
        for head in all_heads
    ]  # fmt: skip
    names = [name.strip() for name in backends.split(",")] if backends else []
    with progress as bar:
        rows = measure_losses(cases, names, seconds=seconds, memory=memory, report=bar)
    result.finish("loss", rows, device, loss_table(rows))


@command(
    "limbeck benchmark step --teacher 12x768 --student 6x384 --method minilmv2 --batch 8 --ragged",
    "limbeck benchmark step --method distilbert --student 6x768 --vocabulary 250002",
    "limbeck benchmark step recipe.yaml --output step.json",
    group=benchmark,
)
def step(
    recipe: Annotated[
        Path | None,
        typer.Argument(
            help="The recipe (YAML); without one, --teacher, --student and --method say what to time.",
            show_default=False,
        ),
    ] = None,
    teacher: Annotated[str | None, typer.Option(help='Shape of a BERT teacher, or a model; default: "12x768".')] = None,
    student: Annotated[str | None, typer.Option(help='Shape of the student; default: "6x384".')] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Method, with its default options; default: minilmv2.",
            autocompletion=options.complete(options.METHODS),
        ),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(min=2, max=10 * MOST, help="Vocabulary size of both models; default: the teacher's.")
    ] = None,
    stage: Annotated[int, typer.Option(min=1, help="Number of the stage in the recipe or method.")] = 1,
    batch: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Samples in a batch; default: the recipe's, or 8.")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(min=2, max=MOST, help="Length of the longest sample in tokens; default: the recipe's, or 128."),
    ] = None,
    ragged: Ragged = False,
    dtype: Annotated[
        str,
        measuring_option(
            help="Number format of both models: auto (as in training), float32 or bfloat16.",
            autocompletion=options.complete(("auto", *options.DTYPES[:2])),
        ),
    ] = "auto",
    device: options.Device = "auto",
    seconds: Seconds = 30.0,
    memory: Memory = True,
    overrides: options.Overrides = None,
    *,
    result: _Rows,
) -> None:
    """Time whole optimizer steps and their parts: tokens/s, peak memory, and how close they come to the floor.

    Weights and tokens are random, which does not change the times: nothing is downloaded.
    """
    progress = result.begin(device)
    named = {"teacher": teacher, "student": student, "method": method, "vocabulary": vocabulary}
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if recipe is not None and given:
        raise RecipeError(f"--{next(iter(given))} and a recipe do not go together; use --set to change the recipe.")
    if recipe is None and overrides:
        raise RecipeError("--set changes a recipe, and none is given.")
    if recipe is not None:
        check_recipe(recipe, overrides or ())
    check_models(teacher, shapes=True)
    if method is not None:
        from limbeck.methods.registry import METHODS

        METHODS[method]
    from limbeck.benchmark.rows import step_table
    from limbeck.benchmark.step import StepRequest, measure_step

    request = StepRequest(
        recipe=None if recipe is None else str(recipe), overrides=tuple(overrides or ()), stage=stage, batch=batch,
        length=length, ragged=ragged, dtype=dtype, device=device, **given,
    )  # fmt: skip
    with progress as bar:
        rows = measure_step(request, seconds=seconds, memory=memory, report=bar)
    result.finish("step", rows, device, step_table(rows))


@command(
    "limbeck benchmark model google-bert/bert-base-uncased runs/mine/student",
    "limbeck benchmark model 12x768 6x384 --batch-sizes 1,32 --lengths 128,512 --output model.csv",
    group=benchmark,
)
def model(
    models: Annotated[
        list[str],
        typer.Argument(help='Folders, Hub names or shapes such as "6x384"; speedups are relative to the first.'),
    ],
    batch_sizes: Annotated[str, typer.Option(help="Batch sizes, separated by commas.")] = "1,32",
    lengths: Annotated[str, typer.Option(help="Text lengths in tokens, separated by commas.")] = "128",
    dtype: Dtype = "float32",
    device: options.Device = "auto",
    seconds: Seconds = 30.0,
    warmup: Annotated[
        int, measuring_option(min=0, max=1000, help="Warm-up passes of each model, which are not counted.")
    ] = 2,
    *,
    result: _Rows,
) -> None:
    """Time the forward passes of one or more models, in turns: latency, throughput, speedup."""
    progress = result.begin(device, dtype)
    check_models(*models, shapes=True)
    from limbeck.benchmark.model import measure_models
    from limbeck.benchmark.rows import model_table
    from limbeck.core.machine import choose_device
    from limbeck.models.loading import as_dtype

    chosen = choose_device(device)
    with progress as bar:
        rows = measure_models(
            models, device=chosen, batch_sizes=parse_numbers("--batch-sizes", batch_sizes),
            lengths=parse_numbers("--lengths", lengths), dtype=as_dtype(dtype), seconds=seconds, warmup=warmup,
            report=bar,
        )  # fmt: skip
    result.finish("model", rows, device, model_table(rows))
