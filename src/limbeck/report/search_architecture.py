"""The view of a search of student shapes: the front of loss and latency, and every shape that was tried."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from limbeck.core.blocks import AnyCell, Block, Cell, Figure, Notes, Paragraph, Table, counted, duration, number, to_csv
from limbeck.core.studies import ArchitectureSearch, SearchedShape
from limbeck.report.figures import lines_figure
from limbeck.report.plots import Lines, Point, Series
from limbeck.report.search_view import SearchView, next_best

_MOST_ON_CONSOLE = 20
_MOST_ON_PAGE = 100
_LOSSES = {
    "hidden": "the variance of the teacher's last hidden states that a linear map of the student's leaves unexplained",
    "relations": "the divergence of the last layers' query, key and value relations",
    "hidden_states": "L_HS of the comparative study (equation 6): squared errors of the teacher's hidden states under "
    "linear maps of the student's, summed over the taught layers",
}
_FILE_COLUMNS = (
    *("trial", "layers", "hidden", "heads", "ffn", "parameters", "latency_share", "latency_ms", "teacher_ms"),
    *("threads", "note", "loss", "reward", "steps", "state", "reason", "training_seconds", "front"),
)
_STATES = ("trained", "cut", "diverged", "refused")
"""States of a shape, in the order of the table of all shapes."""


class ArchitectureView(SearchView[ArchitectureSearch]):
    """Student shapes."""

    TITLE = "Search of student shapes"
    SECTION = "Shapes"

    def scope(self, record: ArchitectureSearch) -> str:
        """Return the sizes that can be chosen, and the sampler."""
        sizes = []
        for name in ("layers", "hidden", "heads", "ffn"):
            values = " / ".join(f"{value:g}" for value in getattr(record.space, name))
            sizes.append(f"{name} {values}")
        return f"{', '.join(sizes)} (FFN in multiples of the hidden size), sampler {record.sampler}"

    def result(self, record: ArchitectureSearch) -> str:
        """Return the best shape with its latency and loss."""
        best = record.best
        if best is None:
            return ""
        return f"{describe_shape(best)}, {best.latency_share:.3f} of the teacher's latency, loss {best.loss:.4f}"

    def result_line(self, record: ArchitectureSearch) -> str:
        """Return the best shape with all its figures, and the reward of the next one."""
        best = record.best
        if best is None:
            return ""
        trained = [shape for shape in _by_reward(record.shapes) if shape.state == "trained"]
        other_shapes = [shape for shape in trained if shape.trial != best.trial]
        second = None
        if other_shapes:
            second = f"{other_shapes[0].reward or 0:.4f}"
        return (
            f"Highest reward of {counted(len(trained), 'trained shape')}: {describe_shape(best)}, "
            f"{best.parameters:,} parameters, {best.latency_share:.3f} of the teacher's latency, "
            f"loss {best.loss:.4f}, reward {best.reward:.4f}. {next_best(second)}"
        )

    def tables(self, record: ArchitectureSearch) -> list[Table]:
        """Return the front and all shapes."""
        return [_front_table(record), _shapes_table(record, "All shapes")]

    def console_blocks(self, record: ArchitectureSearch) -> list[Block]:
        """Return result, front, and the best shapes for a console."""
        count = len(record.shapes)
        best = f", the best {_MOST_ON_CONSOLE} of {count}" if count > _MOST_ON_CONSOLE else ""
        table = replace(_shapes_table(record, f"Shapes{best}", _MOST_ON_CONSOLE), left_out=0)
        return [Paragraph(self.result_line(record)), _front_table(record), table]

    def page_blocks(self, record: ArchitectureSearch, so_far: str) -> Iterator[Block]:
        """Draw loss against latency, then list the front and the shapes."""
        if not record.shapes:
            yield Notes(("No shape has a result yet.",))
        if record.shapes and record.best is not None:
            yield shapes_figure(record, record.best)
            front = _front_table(record)
            yield replace(front, caption=f"{front.caption}{so_far}")
        if record.shapes:
            yield _shapes_table(record, f"All shapes{so_far}, highest reward first", _MOST_ON_PAGE)
        yield self.page_notes(record, so_far)

    def notes(self, record: ArchitectureSearch) -> Iterator[str]:
        """Describe loss and reward, sampler, latency, limits and cost."""
        yield _loss_note(record)
        if record.episode is not None:
            yield (
                "Sampler kd_nas: the controller of KD-NAS (arXiv 2303.09639) predicts rewards and is refitted for each "
                f"proposal; each episode of {record.episode} draws 5 % less at random than the one before."
            )
        yield from _latency_notes(record)
        limits = []
        if record.limits.parameters is not None:
            limits.append(f"{record.limits.parameters:,} parameters")
        if record.limits.latency_share is not None:
            limits.append(f"{record.limits.latency_share:g} of the teacher's latency")
        if limits:
            yield f"Limits: {' and '.join(limits)}. Shapes beyond them were not trained."
        yield from _cost_notes(record)

    def files(self, record: ArchitectureSearch) -> dict[str, str]:
        """Return every shape."""
        rows = [{**shape.to_dict(), "front": shape.trial in record.front} for shape in record.shapes]
        return {"shapes.csv": to_csv(_FILE_COLUMNS, rows)}

    def pictures(self, record: ArchitectureSearch) -> dict[str, Figure]:
        """Return loss against latency."""
        if record.best is None:
            return {}
        return {"loss_and_latency": shapes_figure(record, record.best)}


def _loss_note(record: ArchitectureSearch) -> str:
    untrained = f"{record.loss.untrained:.4f}"
    scale = f"divided by that of an untrained student ({untrained})"
    if record.loss.kind == "hidden_states":
        scale = f"as printed, so not divided by that of an untrained student ({untrained})"
    return (
        f"Loss is {_LOSSES[record.loss.kind or '']}, on held-out text, {scale}; reward is (1 - loss) x (share of "
        "latency / 0.6)^-0.06."
    )


def _latency_notes(record: ArchitectureSearch) -> Iterator[str]:
    latency = record.latency
    yield (
        f"Latency: {latency.batch} x {latency.length} tokens, {latency.dtype}, on {latency.device}, "
        "teacher and student measured alternately, the least disturbed pass of each; the teacher takes "
        f"{record.teacher.latency_ms:.1f} ms. Parameters are the encoder's, without pooler and head."
    )
    shapes_by_note = Counter(shape.note for shape in record.shapes if shape.note is not None)
    for note, count in shapes_by_note.items():
        yield (
            f"Latency of {count} of {counted(len(record.shapes), 'shape')}: {note}, so processor time was taken; "
            "for wall-clock time, measure on an idle machine."
        )


def _cost_notes(record: ArchitectureSearch) -> Iterator[str]:
    cost = record.cost
    counts = {"cut": cost.cut, "diverged": cost.diverged, "refused": cost.refused}
    untrained = [f"{count} {state}" for state, count in counts.items() if count]
    line = f"{cost.trained:d} of {record.space.shapes:,} shapes trained to the end"
    if untrained:
        line += f"; {', '.join(untrained)}"
    if cost.training_seconds:
        line += f" in {duration(cost.training_seconds)} of worker time"
    yield f"{line}."
    if cost.failed:
        yield f"Trials that failed or were lost with their worker, and were retried: {cost.failed}."


def _front_table(record: ArchitectureSearch) -> Table:
    """Lay out the shapes that no other beats in both loss and latency, the fastest first."""
    shape_by_trial = {shape.trial: shape for shape in record.shapes}
    rows: list[tuple[AnyCell, ...]] = []
    for trial in record.front:
        shape = shape_by_trial[trial]
        latency = number(shape.latency_ms, 2)
        rows.append((describe_shape(shape), number(shape.parameters), latency, *_figure_cells(shape)))
    headings = ("Shape", "Parameters", "Latency (ms)", "Latency share", "Loss", "Reward")
    return Table("Pareto front of loss and latency", headings, tuple(rows), words=(0,))


def _shapes_table(record: ArchitectureSearch, caption: str, most: int | None = None) -> Table:
    """Lay out trained shapes by reward, then those that were cut, diverged or refused, by trial.

    Args:
        record: The search.
        caption: Of the table.
        most: The most rows; None for all.
    """
    ranked = _by_reward(record.shapes)
    rows: list[tuple[AnyCell, ...]] = []
    for shape in ranked[:most]:
        state = shape.state if shape.reason is None else f"{shape.state}: {shape.reason}"
        cells = _figure_cells(shape)
        rows.append((str(shape.trial), describe_shape(shape), number(shape.parameters), *cells, state))
    headings = ("Trial", "Shape", "Parameters", "Latency share", "Loss", "Reward", "State")
    return Table(caption, headings, tuple(rows), words=(1, 6), left_out=len(ranked) - len(rows))


def _by_reward(shapes: Sequence[SearchedShape]) -> list[SearchedShape]:
    """Sort shapes by their state as in `_STATES`, then from the highest reward, then by trial."""
    return sorted(shapes, key=lambda shape: (_STATES.index(shape.state), -(shape.reward or 0.0), shape.trial))


def _figure_cells(shape: SearchedShape) -> tuple[Cell, ...]:
    return number(shape.latency_share, 3), number(shape.loss, 4), number(shape.reward, 4)


def describe_shape(shape: SearchedShape) -> str:
    """Write a shape as the student's blueprint is written."""
    return f"{shape.layers}x{shape.hidden}, {shape.heads} heads, FFN {shape.ffn}"


def shapes_figure(record: ArchitectureSearch, best: SearchedShape) -> Figure:
    """Draw the loss of every shape that was trained to the end against its latency, with the front and the best."""
    # Shapes that were cut or refused have no loss that compares.
    trained = [shape for shape in record.shapes if shape.state == "trained"]
    shape_by_trial = {shape.trial: shape for shape in trained}
    front = [shape_by_trial[trial] for trial in record.front]
    behind = [shape for shape in trained if shape.trial not in record.front]
    series = [
        Series("Pareto front", _points(front), "steps", names=_names(front)),
        Series("best reward", _points([best]), "points", names=_names([best])),
    ]
    if behind:
        series.append(Series("shape", _points(behind), "points", names=_names(behind)))

    caption = f"{counted(len(trained), 'shape')}; best reward: {describe_shape(best)}."
    limit = record.limits.latency_share
    if limit is not None:
        caption += f" Latency limit: {limit:g} of the teacher's."
    plot = Lines(
        series,
        x="latency relative to the teacher's",
        y="loss (1: untrained)",
        x_from_zero=True,
        limit=limit,
    )
    return lines_figure("Loss and latency of shapes", plot, caption)


def _points(shapes: Sequence[SearchedShape]) -> list[Point]:
    return [(shape.latency_share or 0.0, shape.loss or 0.0) for shape in shapes]


def _names(shapes: Sequence[SearchedShape]) -> list[str]:
    return [f"{shape.layers}x{shape.hidden}h{shape.heads}f{shape.ffn}" for shape in shapes]
