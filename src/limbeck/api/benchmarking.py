"""`benchmark` losses, training steps and models on this machine, with the options of the commands."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from limbeck.api.given import check_models, refuse_unknown
from limbeck.api.objects import Objects, check_options, listed
from limbeck.api.showing import Shown, chosen_console
from limbeck.benchmark import rows as tables
from limbeck.benchmark.rows import Row
from limbeck.core.blocks import Block, to_csv
from limbeck.core.devices import check_device, choose_device
from limbeck.core.lists import parse_numbers
from limbeck.core.progress import ProgressBar, Report
from limbeck.errors import RecipeError, suggestion


@dataclass(frozen=True, repr=False)
class BenchmarkResult(Shown):
    """What a benchmark measured.

    Args:
        kind: Of the benchmark.
        rows: One a case, with its figures.
        machine: What they were measured on: device, versions, commit.
        table: For a console.
    """

    kind: str
    rows: tuple[Row, ...]
    machine: dict[str, Any]
    table: RenderableType

    def _blocks(self) -> Iterator[Block]:
        yield from ()

    def _print(self, page: Console) -> None:
        page.print(self.table, highlight=False, markup=False)

    def _csv(self) -> str:
        return to_csv(list(dict.fromkeys(name for row in self.rows for name in row)), self.rows)


@refuse_unknown
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
        subject: Of `loss` the objective, `relation_kl` if none is given; of `step` the path of a recipe, if any; of
            `model` one model or several: folders, Hub names, shapes such as `"6x384"`, results of `distill`, or models
            of transformers or sentence-transformers. The first is compared with.
        device: `"auto"`, `"cpu"`, `"cuda"` …
        seconds: Time for the timings; each case gets five rounds anyway.
        output: A .csv or .json file for the rows.
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.
        **options: Those of `limbeck benchmark KIND --help`, with `_` for `-`: `batch_sizes=[1, 32]` of models,
            `method="minilmv2"` of a step.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    if kind not in _KINDS:
        raise RecipeError(f"No benchmark '{kind}'.{suggestion(str(kind), _KINDS)}")
    measure, table_of = _KINDS[kind]
    check_options(f"limbeck.benchmark('{kind}')", measure, options)
    place = None if output is None else Path(output)
    tables.check_output(place)
    check_device(device)
    with ProgressBar(chosen_console(console)) as bar:
        rows = measure(subject, device, seconds, bar, **options)
    machine = tables.describe_machine(choose_device(device).type)
    if place is not None:
        tables.write_rows(place, kind, rows, machine)
    return BenchmarkResult(kind, tuple(rows), machine, table_of(rows))


def _numbers(option: str, given: Any) -> list[int]:
    """Read numbers in a list or by commas."""
    return parse_numbers(option, ",".join(map(str, listed(given))))


def _loss(
    objective: str | None,
    device: str,
    seconds: float,
    bar: Report,
    *,
    backends: str | Sequence[str] = (),
    lengths: Any = (128, 512),
    heads: Any = None,
    batch: int = 8,
    widths: Any = (768, 384),
    classes: int = 30_522,
    pair: bool = False,
    ragged: bool = False,
    dtype: str = "float32",
    memory: bool = True,
) -> list[Row]:
    both = _numbers("--widths", widths)
    if len(both) != 2:
        shown = ",".join(map(str, listed(widths)))
        raise RecipeError(
            f"--widths '{shown}' must be two numbers, the teacher's width and the student's, such as 768,384."
        )
    from limbeck.benchmark.loss import LossCase, benchmark_of, measure_losses

    measured = benchmark_of(objective or "relation_kl")
    all_heads = _numbers("--heads", heads or measured.heads)
    if "heads" not in measured.sizes:
        all_heads = all_heads[:1]  # They play no part.
    cases = [
        LossCase(
            objective=objective or "relation_kl",
            batch=batch,
            length=length,
            heads=head,
            teacher_width=both[0],
            student_width=both[1],
            classes=classes,
            mask="ragged" if ragged else "full",
            relation="pair" if pair else "symmetric",
            dtype=dtype,
            device=str(choose_device(device)),
        )
        for length in _numbers("--lengths", lengths)
        for head in all_heads
    ]
    names = [name.strip() for name in ",".join(listed(backends or ())).split(",") if name.strip()]
    return measure_losses(cases, names, seconds=seconds, memory=memory, report=bar)


def _step(
    recipe: str | Path | None,
    device: str,
    seconds: float,
    bar: Report,
    *,
    teacher: str | None = None,
    student: str | None = None,
    method: str | None = None,
    vocabulary: int | None = None,
    stage: int = 1,
    batch: int | None = None,
    length: int | None = None,
    ragged: bool = False,
    dtype: str = "auto",
    memory: bool = True,
    overrides: str | Sequence[str] = (),
) -> list[Row]:
    named = {"teacher": teacher, "student": student, "method": method, "vocabulary": vocabulary}
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if recipe is not None and given:
        raise RecipeError(f"--{next(iter(given))} and a recipe do not go together; use --set to change the recipe.")
    if recipe is None and listed(overrides):
        raise RecipeError("--set changes a recipe, but none was given; give one, or leave --set out.")
    if recipe is not None:
        from limbeck.recipe.facts import load_checked

        load_checked(recipe, listed(overrides))
    check_models(teacher, shapes=True)
    if method is not None:
        from limbeck.methods.registry import METHODS

        METHODS[method]
    from limbeck.benchmark.step import StepRequest, measure_step

    request = StepRequest(
        recipe=None if recipe is None else str(recipe),
        overrides=tuple(listed(overrides)),
        stage=stage,
        batch=batch,
        length=length,
        ragged=ragged,
        dtype=dtype,
        device=device,
        **given,
    )
    return measure_step(request, seconds=seconds, memory=memory, report=bar)


def _model(
    models: Any,
    device: str,
    seconds: float,
    bar: Report,
    *,
    batch_sizes: Any = (1, 32),
    lengths: Any = (128,),
    dtype: str = "float32",
    warmup: int = 2,
) -> list[Row]:
    names = Objects().models(models)
    check_models(*names, shapes=True)
    from limbeck.benchmark.model import measure_models
    from limbeck.models.loading import as_dtype

    return measure_models(
        names,
        device=choose_device(device),
        batch_sizes=_numbers("--batch-sizes", batch_sizes),
        lengths=_numbers("--lengths", lengths),
        dtype=as_dtype(dtype),
        seconds=seconds,
        warmup=warmup,
        report=bar,
    )


_KINDS: dict[str, tuple[Callable[..., list[Row]], Callable[[Sequence[Row]], RenderableType]]] = {
    "loss": (_loss, tables.loss_table), "step": (_step, tables.step_table), "model": (_model, tables.model_table),
}  # fmt: skip
