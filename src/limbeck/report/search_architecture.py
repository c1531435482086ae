"""The view of a search of student shapes: loss against latency, and every shape that was tried.

A *reward* joins the loss of a shape and its latency, as a share of the teacher's. The *Pareto front* holds the shapes
that no other shape beats in both. Any field of a damaged record may be missing. Code that formats a missing number then
raises one of the errors `DAMAGED`, and the page that shows this view names the damage in the place of its text.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from limbeck.core.blocks import AnyCell, Figure, Notes, Table, counted, duration, number, to_csv
from limbeck.core.studies import ArchitectureSearch, SearchedShape
from limbeck.report.figures import lines_figure
from limbeck.report.plots import Lines, Point, Series
from limbeck.report.search_view import SearchView
from limbeck.report.sections import Highlight
from limbeck.search.reward import EXPONENT, TARGET_SHARE

_MOST_SHAPES = 50
"""Most shapes in the table; the file `shapes.csv` has all."""
_LOSS_BY_KIND = {
    "hidden": "the variance of the teacher's last hidden states that a linear map of the student's leaves unexplained",
    "relations": "the divergence of the last layers' query, key and value relations",
    "vectors": "the variance of the teacher's sentence vectors that a linear map of the student's leaves unexplained",
    "hidden_states": "L_HS of the comparative study (equation 6): squared errors of the teacher's hidden states under "
    "linear maps of the student's, summed over the taught layers",
}
"""What each kind of loss measures; a search of any other kind is not written."""
_FILE_COLUMNS = (
    *("trial", "layers", "hidden", "heads", "ffn", "parameters", "latency_share", "latency_ms", "teacher_ms"),
    *("threads", "note", "loss", "reward", "steps", "state", "reason", "training_seconds", "front"),
)
_STATES = ("trained", "cut", "diverged", "refused")
"""States of a shape, in the order of the table: trained to the end, stopped early since others were better, stopped
since its loss was not finite, and not trained since it is beyond a limit."""


class ArchitectureView(SearchView[ArchitectureSearch]):
    """Student shapes."""

    TITLE = "Search of student shapes"

    def best(self, record: ArchitectureSearch) -> str:
        """Return the shape of the highest reward, with its latency, loss and reward."""
        best = record.best
        if best is None:
            return ""
        return (
            f"{_describe_shape(best)}, {best.latency_share:.3f} of the teacher's latency, loss {best.loss:.4f}, "
            f"reward {best.reward:.4f}"
        )

    def second_score(self, record: ArchitectureSearch) -> str:
        """Return the second-highest reward of a trained shape."""
        rewards = [shape.reward for shape in _trained_shapes(record) if shape.reward is not None]
        if len(rewards) < 2:
            return ""
        rewards.sort(reverse=True)
        return f"{rewards[1]:.4f}"

    def highlights(self, record: ArchitectureSearch) -> Iterator[Highlight]:
        """Yield reward, loss and latency of the best shape, the next best reward, and the number of shapes."""
        best = record.best
        if best is None or best.reward is None:
            return
        yield Highlight(f"{best.reward:.4f}", "best reward", _describe_shape(best))
        if best.loss is not None:
            # Where losses are divided by that of an untrained student, its own is 1.
            untrained = "1" if _is_relative(record) else f"{record.loss.untrained:.4f}"
            yield Highlight(f"{best.loss:.4f}", "its loss", f"an untrained student has {untrained}")
        if best.latency_share is not None:
            yield Highlight(f"{best.latency_share:.3f}", "its latency", "as a share of the teacher's")
        second_score = self.second_score(record)
        if second_score:
            yield Highlight(second_score, "next best reward")
        # A damaged record may lack the number of possible shapes. The highlight is given without it.
        total = ""
        if record.space.shapes is not None:
            total = f"of {record.space.shapes:,} possible ones"
        yield Highlight(f"{len(_trained_shapes(record)):,}", "shapes trained to the end", total)

    def blocks(self, record: ArchitectureSearch) -> Iterator[Figure | Table | Notes]:
        """Draw loss against latency, then list the shapes."""
        if not record.shapes:
            yield Notes(("No shape has a result yet.",))
            return
        if record.best is not None:
            yield shapes_figure(record, record.best)
        yield _shapes_table(record)

    def notes(self, record: ArchitectureSearch) -> Iterator[str]:
        """Explain loss, reward, sampler and latency; state the limits and the cost."""
        yield _loss_note(record)
        sizes = []
        for name in ("layers", "hidden", "heads", "ffn"):
            values = " / ".join(f"{value:g}" for value in getattr(record.space, name))
            sizes.append(f"{name} {values}")
        yield f"Sizes: {', '.join(sizes)} (FFN in multiples of the hidden size); sampler {record.sampler}."
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

    def csv_files(self, record: ArchitectureSearch) -> dict[str, str]:
        """Return every shape."""
        rows = [{**shape.to_dict(), "front": shape.trial in record.front} for shape in record.shapes]
        return {"shapes.csv": to_csv(_FILE_COLUMNS, rows)}


def _trained_shapes(record: ArchitectureSearch) -> list[SearchedShape]:
    """Return the shapes that were trained to the end; only their losses compare."""
    return [shape for shape in record.shapes if shape.state == "trained"]


def _is_relative(record: ArchitectureSearch) -> bool:
    """Return whether losses are divided by that of an untrained student."""
    return record.loss.kind != "hidden_states"


def _loss_note(record: ArchitectureSearch) -> str:
    """Return the note that says what the loss and the reward of a shape are."""
    untrained = f"{record.loss.untrained:.4f}"
    scale = f"divided by that of an untrained student ({untrained})"
    if not _is_relative(record):
        scale = f"as printed, so not divided by that of an untrained student ({untrained})"
    # A record without a kind of loss is damaged. It raises KeyError, one of the errors `DAMAGED`.
    measured = _LOSS_BY_KIND[record.loss.kind or ""]
    return (
        f"Loss is {measured}, on held-out text, {scale}; reward is (1 - loss) x (share of latency / "
        f"{TARGET_SHARE:g})^{EXPONENT:g}."
    )


def _latency_notes(record: ArchitectureSearch) -> Iterator[str]:
    """Yield the conditions of the latencies, and the number of shapes that were measured in another way."""
    latency = record.latency
    yield (
        f"Latency: {latency.batch} x {latency.length} tokens, in {latency.dtype}, on {latency.device}. Teacher and "
        "student were measured in turn, and the least disturbed pass of each counts. The teacher takes "
        f"{record.teacher.latency_ms:.1f} ms. Parameters are the encoder's, without pooler and head."
    )
    shapes_by_note = Counter(shape.note for shape in record.shapes if shape.note is not None)
    for note, count in shapes_by_note.items():
        yield (
            f"Latency of {count} of {counted(len(record.shapes), 'shape')}: {note}, so processor time was taken; "
            "for wall-clock time, measure on an idle machine."
        )


def _cost_notes(record: ArchitectureSearch) -> Iterator[str]:
    """Yield what the search has cost: shapes that were trained, cut or refused, and trials that failed."""
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


def _shapes_table(record: ArchitectureSearch) -> Table:
    """Lay out the shapes: those that were trained to the end by falling reward, then the others by state and trial."""

    def rank(shape: SearchedShape) -> tuple[int, float, int]:
        falling_reward = -(shape.reward or 0.0)
        return _STATES.index(shape.state), falling_reward, shape.trial

    ranked = sorted(record.shapes, key=rank)
    rows: list[tuple[AnyCell, ...]] = []
    for shape in ranked[:_MOST_SHAPES]:
        state = shape.state
        if shape.trial in record.front:
            state = "Pareto front"
        elif shape.reason is not None:
            state = f"{shape.state}: {shape.reason}"
        cells = (
            str(shape.trial),
            _describe_shape(shape),
            number(shape.parameters),
            number(shape.latency_share, digits=3),
            number(shape.loss, digits=4),
            number(shape.reward, digits=4),
            state,
        )
        rows.append(cells)
    caption = "Shapes, highest reward first"
    if len(ranked) > _MOST_SHAPES:
        caption += f", the first {_MOST_SHAPES} of {len(ranked)}"
    headings = ("Trial", "Shape", "Parameters", "Latency share", "Loss", "Reward", "State")
    return Table(caption, headings, tuple(rows)).with_words("Shape", "State")


def _describe_shape(shape: SearchedShape) -> str:
    """Write a shape as messages name it: `6x384, 12 heads, FFN 1536`."""
    return f"{shape.layers}x{shape.hidden}, {shape.heads} heads, FFN {shape.ffn}"


def shapes_figure(record: ArchitectureSearch, best: SearchedShape) -> Figure:
    """Draw loss against latency for all shapes that were trained to the end, and mark the Pareto front and the best.

    Args:
        record: The record of the search.
        best: The shape of the highest reward.
    """
    trained = _trained_shapes(record)
    # `record.front` has the numbers of the trials on the front, in the order of their latency.
    shape_by_trial = {shape.trial: shape for shape in trained}
    front = [shape_by_trial[trial] for trial in record.front]
    beaten = [shape for shape in trained if shape.trial not in record.front]
    all_series = [
        _shape_series("Pareto front", front, "steps"),
        _shape_series("best reward", [best], "points"),
        _shape_series("shape", beaten, "points"),
    ]

    quantity = "loss"
    if _is_relative(record):
        quantity = "loss (1: untrained)"
    plot = Lines(
        [series for series in all_series if series.points],
        x="latency relative to the teacher's",
        y=quantity,
        limit=record.limits.latency_share,
    )
    return replace(lines_figure("Loss and latency of shapes", plot), name="loss_and_latency")


def _shape_series(label: str, shapes: Sequence[SearchedShape], mark: Literal["points", "steps"]) -> Series:
    """Return loss against latency of shapes; a shape that lacks either, in a damaged record, has no point."""
    points: list[Point] = []
    names = []
    for shape in shapes:
        if shape.latency_share is not None and shape.loss is not None:
            points.append((shape.latency_share, shape.loss))
            # As the table below the figure has them: `6x384h12f1536`.
            names.append(f"{shape.layers}x{shape.hidden}h{shape.heads}f{shape.ffn}")
    return Series(label, points, mark, names=names)
