"""Tables of the costs of models: sizes and speed, laid out as in the papers, beside the costs that papers published.

Sizes are laid out as in MiniLM's table 4, speeds as in MLKD-BERT's table 3. A *timing* is the speed of one model at one
batch size and length.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType

from limbeck.core import studies
from limbeck.core.blocks import NOTHING, AnyCell, Block, Cell, Layout, Notes, Table
from limbeck.core.console_blocks import console
from limbeck.core.paths import short_model_name
from limbeck.core.timing import BUSY_MARK
from limbeck.report.scores import PAPERS

_LAYOUT = Layout(whole_from=2)
"""On a console the first two columns, which hold words, may be narrowed; the columns of figures may not."""


def costs_table(costs: Mapping[str, Any] | studies.Costs) -> RenderableType:
    """Return all tables of costs as one output for the terminal."""
    return console(*cost_blocks(studies.Costs.read(costs)))


def cost_tables(costs: studies.Costs) -> Iterator[Table]:
    """Yield the tables of sizes and speeds, and the published ones that have models of the same shapes."""
    yield _sizes_table(costs)
    yield _speeds_table(costs)
    yield from _published_tables(costs)


def cost_blocks(costs: studies.Costs | None) -> Iterator[Block]:
    """Yield the tables of costs and their notes; nothing where costs were not measured."""
    if costs is not None:
        yield from cost_tables(costs)
        yield Notes(tuple(cost_notes(costs)))


def cost_notes(costs: studies.Costs) -> Iterator[str]:
    """Yield the notes on times of a busy machine, and on speedups that the shapes of the models cannot give, each once.

    A note begins with the mark that the times have, and the names of its models.
    """
    titles_by_note: dict[str, list[str]] = {}
    for timing in costs.timings:
        if timing.note:
            titles_by_note.setdefault(timing.note, []).append(_title_of(costs, timing.model))
    for note, titles in titles_by_note.items():
        yield f"{BUSY_MARK.strip()} {', '.join(titles)}: {note}"


def conditions_of(costs: studies.Costs) -> str:
    """Return the label of latencies with the batch size, length and device of the first timing; "" without timings.

    `studies.Costs.latency` gives the latencies of this batch size and length.
    """
    if not costs.timings:
        return ""
    timing = costs.timings[0]
    return f"latency, ms (batch {timing.batch}, {timing.length} tokens, {costs.machine['device']})"


def _title_of(costs: studies.Costs, model: str) -> str:
    """Return the name of a model in tables: its title, or the short form of its path where it has none."""
    for size in costs.models:
        if size.model == model and size.title:
            return size.title
    return short_model_name(model)


def _sizes_table(costs: studies.Costs) -> Table:
    """Lay out the parameters, the weights and the operations of each model."""
    # The operations of a token grow with the length of the text, through attention: there is a column for each length.
    lengths = list(costs.models[0].megaflops_per_token)
    rows: list[tuple[AnyCell, ...]] = []
    for model in costs.models:
        cells: tuple[AnyCell, ...] = (
            _title_of(costs, model.model),
            model.shape,
            _millions(model.embedding_parameters),
            _millions(model.transformer_parameters),
            _millions(model.parameters),
            Cell(model.megabytes, "{:.1f}"),
            *[Cell(model.megaflops_per_token[length], "{:.1f}") for length in lengths],
        )
        rows.append(cells)
    headings = ("", "Shape", "Embedding (M)", "Transformer (M)", "Total (M)", "Weights (MB)")
    flops_headings = [f"Mflop per token, {length} tokens" for length in lengths]
    table = Table("Size", (*headings, *flops_headings), tuple(rows), layout=_LAYOUT)
    return table.with_words("", "Shape")


def _millions(count: float | None) -> Cell:
    """Return a cell with a number in millions, blank where it is not known."""
    if count is None:
        return Cell(None)
    return Cell(count / 1e6, "{:.2f}")


def _speeds_table(costs: studies.Costs) -> Table:
    """Lay out a row for each model, batch size and length."""
    headings = ("", "Batch", "Tokens", "Median (ms)", "10th–90th (ms)", "Sentences per s", "Tokens per s", "Speedup")
    rows: list[tuple[AnyCell, ...]] = []
    for timing in costs.timings:
        cells: tuple[AnyCell, ...] = (
            _title_of(costs, timing.model),
            str(timing.batch),
            str(timing.length),
            Cell(timing.median_ms, f"{{:.2f}}{BUSY_MARK}" if timing.note else "{:.2f}"),
            f"{timing.p10_ms:.2f}–{timing.p90_ms:.2f}",
            Cell(timing.sentences_per_second, "{:.0f}"),
            Cell(timing.tokens_per_second, "{:.0f}"),
            Cell(timing.speedup, "{:.2f}x"),
        )
        rows.append(cells)
    return Table(f"Speed on {costs.machine['device']}", headings, tuple(rows), words=(0,), layout=_LAYOUT)


def _published_tables(costs: studies.Costs) -> Iterator[Table]:
    """Yield the published tables that have a row of the same shape as one of the measured students."""
    # The first model is the teacher, unless it is the only one.
    students = costs.models
    if len(students) > 1:
        students = students[1:]
    student_shapes = {studies.size_of_shape(model.shape) for model in students}
    # The record has the rows of all published tables in one list.
    rows_by_title: dict[str, list[studies.PublishedCost]] = {}
    for row in costs.published:
        title = f"{PAPERS[row.paper]}, table {row.table} ({row.device})"
        rows_by_title.setdefault(title, []).append(row)
    for title, rows_of_table in rows_by_title.items():
        if any(row.shape in student_shapes for row in rows_of_table):
            yield _published_table(title, rows_of_table)


def _published_table(title: str, published: list[studies.PublishedCost]) -> Table:
    """Lay out the rows of one table of a paper, with a column for the task where the paper names it."""
    # The figures of a row, by their names with the unit; all rows of a table have the same figures.
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
