"""Costs of models: sizes and speed, as MiniLM's table 4 and MLKD-BERT's table 3 have them, beside published ones."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType

from limbeck.core import studies
from limbeck.core.blocks import NOTHING, AnyCell, Block, Cell, Layout, Table
from limbeck.core.console_blocks import console
from limbeck.core.paths import short_model_name
from limbeck.report.scores import PAPERS

_LAYOUT = Layout(whole_from=2)


def costs_table(costs: Mapping[str, Any] | studies.Costs) -> RenderableType:
    """Return the tables of costs for the terminal."""
    return console(*cost_tables(studies.Costs.read(costs)))


def cost_tables(costs: studies.Costs) -> Iterator[Table]:
    """Lay out sizes, speed, and the speeds that papers published of models of the same shapes."""
    yield _sizes_table(costs)
    yield _speeds_table(costs)
    yield from _published_tables(costs)


def cost_blocks(costs: studies.Costs | None) -> Iterator[Block]:
    """Show sizes and speed, where they were measured."""
    if costs is not None:
        yield from cost_tables(costs)


def conditions_of(costs: studies.Costs) -> str:
    """Describe the pass whose latency was measured first."""
    row = costs.timings[0]
    return f"latency, ms (batch {row.batch}, {row.length} tokens, {costs.machine['device']})"


def _title_of(costs: studies.Costs, model: str) -> str:
    """Return the name of a model in tables."""
    for row in costs.models:
        if row.model == model and row.title:
            return row.title
    return short_model_name(model)


def _sizes_table(costs: studies.Costs) -> Table:
    # Operations a token grow with the length, through attention.
    lengths = list(costs.models[0].megaflops_per_token)
    rows: list[tuple[AnyCell, ...]] = []
    for model in costs.models:
        parameters = (
            _millions(model.embedding_parameters),
            _millions(model.transformer_parameters),
            _millions(model.parameters),
        )
        flops = [Cell(model.megaflops_per_token[length], "{:.1f}") for length in lengths]
        title = _title_of(costs, model.model)
        rows.append((title, model.shape, *parameters, Cell(model.megabytes, "{:.1f}"), *flops))
    headings = ("", "Shape", "Embedding (M)", "Transformer (M)", "Total (M)", "Weights (MB)")
    flops_headings = [f"Mflop per token, {length} tokens" for length in lengths]
    return Table("Size", (*headings, *flops_headings), tuple(rows), words=(0, 1), layout=_LAYOUT)


def _millions(count: float | None) -> Cell:
    if count is None:
        return Cell(None)
    return Cell(count / 1e6, "{:.2f}")


def _speeds_table(costs: studies.Costs) -> Table:
    headings = ("", "Batch", "Tokens", "Median (ms)", "10th–90th (ms)", "Sentences per s", "Tokens per s", "Speedup")
    rows: list[tuple[AnyCell, ...]] = []
    for timing in costs.timings:
        title = _title_of(costs, timing.model)
        times = (Cell(timing.median_ms, "{:.2f}"), f"{timing.p10_ms:.2f}–{timing.p90_ms:.2f}")
        rates = (Cell(timing.sentences_per_second, "{:.0f}"), Cell(timing.tokens_per_second, "{:.0f}"))
        rows.append((title, str(timing.batch), str(timing.length), *times, *rates, Cell(timing.speedup, "{:.2f}x")))
    return Table(f"Speed on {costs.machine['device']}", headings, tuple(rows), words=(0,), layout=_LAYOUT)


def _published_tables(costs: studies.Costs) -> Iterator[Table]:
    """Lay out the published tables that have a row of the same shape as a student here."""
    # The first model is the teacher, unless it is the only one.
    students = costs.models[1:] or costs.models
    # Shapes as papers write them: `6x384` of `bert 6x384, 12 heads, …`.
    student_shapes = {model.shape.split(",")[0].split()[-1] for model in students}
    rows_by_title: dict[str, list[studies.PublishedCost]] = {}
    for row in costs.published:
        title = f"{PAPERS[row.paper]}, table {row.table} ({row.device})"
        rows_by_title.setdefault(title, []).append(row)
    for title, published in rows_by_title.items():
        if any(row.shape in student_shapes for row in published):
            yield _published_table(title, published)


def _published_table(title: str, published: list[studies.PublishedCost]) -> Table:
    """Lay out the rows of one table of a paper, with a column for the task where the paper measured on several."""
    names = list(published[0].values)
    has_tasks = any(row.task for row in published)
    headings = ["", *names]
    if has_tasks:
        headings.insert(1, "Texts from")
    rows: list[tuple[AnyCell, ...]] = []
    for row in published:
        cells: list[AnyCell] = [row.shape]
        if has_tasks:
            cells.append(row.task or NOTHING)
        cells += [f"{row.values[name]:g}" for name in names]
        rows.append(tuple(cells))
    return Table(title, tuple(headings), tuple(rows), words=(0,), layout=_LAYOUT)
