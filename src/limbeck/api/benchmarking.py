"""`benchmark`: losses, training steps and models, measured on this machine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.calls import checked_call, make_request, refuse_unknown
from limbeck.api.checks import check_models, check_name
from limbeck.api.objects import Objects
from limbeck.api.progress import progress_console
from limbeck.api.requests import benchmark as requests
from limbeck.api.requests.benchmark import BENCHMARKS, SUBJECTS, BenchmarkRequest
from limbeck.api.requests.completions import DTYPES, OBJECTIVES
from limbeck.api.requests.fields import options_of
from limbeck.api.requests.values import optional_path, with_commas
from limbeck.api.results import Shown
from limbeck.benchmark import tables
from limbeck.benchmark.rows import Row, check_output, describe_machine, write_rows
from limbeck.core.blocks import Block, to_csv
from limbeck.core.devices import check_device, choose_device
from limbeck.core.progress import Report
from limbeck.core.progress_bars import ProgressBar
from limbeck.errors import RecipeError, suggestion


@dataclass(frozen=True, repr=False)
class BenchmarkResult(Shown):
    """The result of a benchmark.

    Args:
        kind: The benchmark: `"loss"`, `"step"` or `"model"`.
        rows: One a case, with its figures.
        machine: Device, versions and commit that they were measured with.
    """

    kind: str
    rows: tuple[Row, ...]
    machine: dict[str, Any]

    def blocks(self) -> Iterator[Block]:
        """Yield the table of the rows, and its notes."""
        yield from _BLOCKS[self.kind](self.rows)

    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        return to_csv(columns, self.rows)


@checked_call
def benchmark(
    kind: str,
    subject: Any = None,
    *,
    device: str = "auto",
    seconds: float = 30.0,
    output: str | Path | None = None,
    console: Console | None = None,
    **options: Any,
) -> BenchmarkResult:
    """Measure what losses, training steps or models cost on this machine.

    Args:
        kind: `"loss"`, `"step"` or `"model"`.
        subject: The thing that is measured. For `"loss"` it is an objective, by default `"relation_kl"`. For `"step"`
            it is a recipe, or None with the options `teacher`, `student` and `method`. For `"model"` it is a folder,
            name, model or shape, or a list of these.
        device: `"auto"`, `"cpu"`, `"cuda"` …
        seconds: Time for the timings; each case gets five rounds anyway.
        output: A .csv or .json file for the rows.
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.
        **options: Those of `limbeck benchmark KIND --help`, with `_` for `-`: `batch_sizes=[1, 32]` of models,
            `method="minilmv2"` of a step.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.

    Example:
        >>> result = limbeck.benchmark("model", ["12x768", "6x384"], batch_sizes=[1], lengths=[128])
        >>> len(result.rows)
        2
    """
    if kind not in BENCHMARKS:
        raise RecipeError(f"No benchmark '{kind}'.{suggestion(str(kind), BENCHMARKS)}")
    request = BENCHMARKS[kind]
    refuse_unknown(f"limbeck.benchmark('{kind}') has no option", options, options_of(request))
    options |= {"device": device, "seconds": seconds, "output": output, "console": console}
    if subject is not None or kind == "model":
        options[SUBJECTS[kind]] = subject
    return carry_out_benchmark(kind, make_request(request, (), options))


def carry_out_benchmark(kind: str, request: BenchmarkRequest) -> BenchmarkResult:
    """Measure, and write the file that is asked for.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    file = optional_path(request.output)
    check_output(file)
    check_device(request.device)
    with ProgressBar(progress_console(request.console), is_even=False) as bar:
        rows = _MEASURE[kind](request, bar)
    machine = describe_machine(choose_device(request.device).type)
    if file is not None:
        write_rows(file, kind, rows, machine)
    return BenchmarkResult(kind, tuple(rows), machine)


def _measure_loss(request: requests.LossRequest, bar: Report) -> list[Row]:
    """Measure a loss at each length and number of heads.

    Raises:
        RecipeError: for a name that there is not, and widths that are not two.
    """
    check_name("objective", request.objective, OBJECTIVES)
    check_name("dtype", request.dtype, (*DTYPES, "float64"))
    if len(request.widths) != 2:
        raise RecipeError(
            f"--widths '{with_commas(request.widths)}' must be two numbers, the teacher's width and the student's, "
            "such as 768,384."
        )
    teacher_width, student_width = request.widths
    from limbeck.benchmark.loss import measure_losses
    from limbeck.benchmark.loss_case import LossCase, benchmark_of

    objective = benchmark_of(request.objective)
    # Without numbers of heads, the objective is measured with its usual one.
    head_counts = request.heads or (objective.heads,)
    if "heads" not in objective.sizes:
        # Heads play no part in this loss, so that one number of them stands for all.
        head_counts = head_counts[:1]
    cases = []
    for length in request.lengths:
        for heads in head_counts:
            case = LossCase(
                objective=request.objective,
                batch=request.batch,
                length=length,
                heads=heads,
                teacher_width=teacher_width,
                student_width=student_width,
                classes=request.classes,
                mask="ragged" if request.ragged else "full",
                relation="pair" if request.pair else "symmetric",
                dtype=request.dtype,
                device=str(choose_device(request.device)),
            )
            cases.append(case)
    names = "" if request.backends is None else request.backends
    backends = [name.strip() for name in names.split(",") if name.strip()]
    return measure_losses(cases, backends, seconds=request.seconds, memory=request.memory, report=bar)


def _measure_step(request: requests.StepRequest, bar: Report) -> list[Row]:
    """Measure a step of a recipe, or of models and a method.

    Raises:
        RecipeError: for options that do not go with a recipe, or with none.
    """
    models = {}
    for name in ("teacher", "student", "method", "vocabulary"):
        value = getattr(request, name)
        if value is not None:
            models[name] = value
    overrides = tuple(request.overrides)
    if request.recipe is not None and models:
        raise RecipeError(
            f"--{next(iter(models))} cannot be given beside a recipe, which has its own; change the recipe's with "
            "--set."
        )
    if request.recipe is None and overrides:
        raise RecipeError("--set changes a recipe, but no recipe was given; give a recipe, or leave --set out.")
    recipe = None
    if request.recipe is not None:
        from limbeck.recipe.facts import load_checked

        load_checked(request.recipe, overrides)
        recipe = str(request.recipe)
    check_models(request.teacher, shapes=True)
    if request.method is not None:
        from limbeck.methods.registry import METHODS

        # Looked up for its error: an unknown name is refused here.
        METHODS[request.method]
    from limbeck.benchmark.step_rows import measure_step
    from limbeck.benchmark.step_setup import StepRequest

    step = StepRequest(
        recipe=recipe,
        overrides=overrides,
        stage=request.stage,
        batch=request.batch,
        length=request.length,
        ragged=request.ragged,
        dtype=request.dtype,
        device=request.device,
        **models,
    )
    return measure_step(step, seconds=request.seconds, memory=request.memory, report=bar)


def _measure_models(request: requests.ModelRequest, bar: Report) -> list[Row]:
    """Measure models side by side."""
    check_name("dtype", request.dtype, (*DTYPES, "float64"))
    names = Objects().models(request.models)
    check_models(*names, shapes=True)
    from limbeck.benchmark.model import measure_models
    from limbeck.models.loading import as_dtype

    return measure_models(
        names,
        device=choose_device(request.device),
        batch_sizes=request.batch_sizes,
        lengths=request.lengths,
        dtype=as_dtype(request.dtype),
        seconds=request.seconds,
        warmup=request.warmup,
        report=bar,
    )


_MEASURE: dict[str, Callable[[Any, Report], list[Row]]] = {
    "loss": _measure_loss,
    "step": _measure_step,
    "model": _measure_models,
}
_BLOCKS: dict[str, Callable[[Sequence[Row]], Sequence[Block]]] = {
    "loss": tables.loss_blocks,
    "step": tables.step_blocks,
    "model": tables.model_blocks,
}
