"""`limbeck benchmark`: the costs of losses, training steps and models on this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.api.given import check_name
from limbeck.cli import options
from limbeck.cli.messages import Messages, print_result
from limbeck.cli.options import LONGEST_SECONDS, command, measuring_option
from limbeck.core.lists import MOST

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

    def run(self, kind: str, subject: Any, **given: Any) -> None:
        """Measure, write the file, and print the result."""
        from limbeck.api.benchmarking import benchmark as run_benchmark
        from limbeck.benchmark.rows import report_dict

        console = self.messages.console()
        if kind != "step":
            check_name("dtype", given["dtype"], (*options.DTYPES, "float64"))
        done = run_benchmark(kind, subject, output=self.output, console=console, **given)
        written = () if self.output is None else (f"Rows: {self.output}",)
        print_result(self.messages.as_json, report_dict(kind, done.rows, done.machine), done.table, *written)


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
    check_name("objective", objective, options.OBJECTIVES)
    result.run(
        "loss", objective, backends=backends or (), lengths=lengths, heads=heads, batch=batch, widths=widths,
        classes=classes, pair=pair, ragged=ragged, dtype=dtype, device=device, seconds=seconds, memory=memory,
    )  # fmt: skip


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
    result.run(
        "step", recipe, teacher=teacher, student=student, method=method, vocabulary=vocabulary, stage=stage,
        batch=batch, length=length, ragged=ragged, dtype=dtype, device=device, seconds=seconds, memory=memory,
        overrides=overrides or (),
    )  # fmt: skip


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
    """Time the forward passes of one or more models, alternately: latency, throughput, speedup."""
    result.run(
        "model", models, batch_sizes=batch_sizes, lengths=lengths, dtype=dtype, device=device, seconds=seconds,
        warmup=warmup,
    )  # fmt: skip
