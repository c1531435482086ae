"""The view of a search of teacher layers: every candidate with its score at each rung."""

from collections.abc import Iterator, Sequence
from typing import Any

from limbeck.core.blocks import NOTHING, AnyCell, Block, Figure, Paragraph, Table, duration, number, to_csv
from limbeck.core.studies import SearchedLayer, TeacherLayerSearch
from limbeck.report.figures import lines_figure
from limbeck.report.plots import Lines, Point, Series
from limbeck.report.search_view import SearchView, next_best


class TeacherLayerView(SearchView[TeacherLayerSearch]):
    """Teacher layers."""

    TITLE = "Search of teacher layers"
    SECTION = "Layers of the teacher"

    def result(self, record: TeacherLayerSearch) -> str:
        """Return the best layer and its last score."""
        if record.best is None:
            return ""
        return f"layer {record.best.layer}, score {record.best.scores[-1].score:.2f}"

    def result_line(self, record: TeacherLayerSearch) -> str:
        """Return the best layer, and the score of the next one."""
        best = record.best
        if best is None:
            return ""
        last = best.scores[-1]
        others = [row.scores[-1].score for row in record.layers if row.layer != best.layer and row.scores]
        known = [f"{score:.2f}" for score in others if score is not None]
        second = known[0] if known else None
        return (
            f"Highest score: teacher layer {best.layer} of {record.teacher.layers}, {last.score:.2f} after {last.step} "
            f"steps. {next_best(second)}"
        )

    def tables(self, record: TeacherLayerSearch) -> list[Table]:
        """Return the layers."""
        return [_layers_table(record, "Layers")]

    def console_blocks(self, record: TeacherLayerSearch) -> list[Block]:
        """Return result and layers for a console."""
        return [Paragraph(self.result_line(record)), _layers_table(record, "")]

    def page_blocks(self, record: TeacherLayerSearch, so_far: str) -> Iterator[Block]:
        """Draw the scores by layer, then list the layers."""
        if record.best is not None:
            yield layers_race_figure(record, "highest so far" if so_far else "highest")
        yield _layers_table(record, f"Layers{so_far}, longest trained first, then highest score")
        yield self.page_notes(record, so_far)

    def notes(self, record: TeacherLayerSearch) -> Iterator[str]:
        """Describe the scores, the cost and the rounds of halving."""
        yield (
            f"Score is the mean of {' and '.join(record.scores)}, in percent, on held-out text: how closely the "
            "student's order of sentence pairs follows its teacher's, and how much of the teacher's last hidden states "
            "a linear map of the student's explains. Own loss is each student's own held-out loss; it cannot be "
            "compared between layers."
        )
        yield (
            f"All candidates were trained at once: {record.cost.steps:,} steps in all, in "
            f"{duration(record.cost.seconds or 0)}, and the teacher ran once per step for all of them."
        )
        if len(record.rungs) > 1:
            rounds = ", ".join(f"{rung.candidates} to step {rung.end}" for rung in record.rungs)
            yield f"Successive halving: {rounds}. Layers dropped earlier rank lower."

    def files(self, record: TeacherLayerSearch) -> dict[str, str]:
        """Return every score of every layer."""
        rows: list[dict[str, Any]] = []
        for layer in record.layers:
            fields = layer.to_dict()
            rows += [{**fields, **score} for score in fields.get("scores") or [{}]]
        columns = ("rank", "layer", "step", "score", *record.scores, "steps", "state", "own_loss")
        return {"layers.csv": to_csv(columns, rows)}

    def pictures(self, record: TeacherLayerSearch) -> dict[str, Figure]:
        """Return the scores by layer."""
        return {"layers": layers_race_figure(record)}


def _layers_table(record: TeacherLayerSearch, caption: str) -> Table:
    """Lay out every layer with its score at each rung; before the end of the search with the state of its trial."""
    # Layers that were dropped early have no score at later steps.
    steps = sorted({score.step for row in record.layers for score in row.scores})
    step_headings = [f"Step {step}" for step in steps]
    is_finished = all(row.rank is not None for row in record.layers)
    rows: list[tuple[AnyCell, ...]] = []
    for row in record.layers:
        score_by_step = {score.step: score.score for score in row.scores}
        cells = [number(score_by_step.get(step), 2) for step in steps]
        if is_finished:
            rows.append((str(row.layer), *cells, *_end_cells(row, record.scores)))
        else:
            rows.append((str(row.layer), *cells, row.state))

    last = [*record.scores, "Own loss", "Dropped"] if is_finished else ["Trial"]
    headings = ("Layer", *step_headings, *last)
    return Table(caption, headings, tuple(rows), words=(len(headings) - 1,))


def _end_cells(row: SearchedLayer, names: Sequence[str]) -> list[AnyCell]:
    """Return the parts of a layer's last score, its own loss, and when it was dropped."""
    last = row.scores[-1] if row.scores else None
    parts = [number(getattr(last, name, None), 2) for name in names]
    dropped = NOTHING
    if row.state == "cut":
        dropped = f"after {row.steps}"
    elif row.state != "trained":
        dropped = row.state
    return [*parts, number(row.own_loss, 4), dropped]


def layers_race_figure(record: TeacherLayerSearch, mark: str = "highest") -> Figure:
    """Draw the score of every layer at every step that it was scored at, and mark the best.

    Args:
        record: Of the search, or of its course so far.
        mark: The name of the best.
    """
    points_by_step: dict[int, list[Point]] = {}
    for row in record.layers:
        for score in row.scores:
            if score.score is not None:
                points_by_step.setdefault(score.step, []).append((row.layer, score.score))
    series = [Series(f"after {step:,} steps", sorted(points)) for step, points in sorted(points_by_step.items())]
    best = record.best
    if best is not None:
        series.append(Series(f"{mark}: layer {best.layer}", [(best.layer, best.scores[-1].score or 0.0)], "points"))
    label = f"score: mean of {', '.join(record.scores)} (percent)"
    plot = Lines(series, "teacher layer", label, x_is_whole=True)
    return lines_figure("Scores of students by teacher layer", plot)
