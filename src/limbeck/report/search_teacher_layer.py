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
        best_result = best.scores[-1]
        return (
            f"Highest score: teacher layer {best.layer} of {record.teacher.layers}, {best_result.score:.2f} after "
            f"{best_result.step} steps. {next_best(_second_score(record, best))}"
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
            layer_fields = {
                "rank": layer.rank,
                "layer": layer.layer,
                "steps": layer.steps,
                "state": layer.state,
                "own_loss": layer.own_loss,
            }
            # A result has the fields `step`, `score` and the parts of the score.
            rows += [{**layer_fields, **result.to_dict()} for result in layer.scores]
            # A layer that never reached a rung has a row without a score.
            if not layer.scores:
                rows.append(layer_fields)
        columns = ("rank", "layer", "step", "score", *record.scores, "steps", "state", "own_loss")
        return {"layers.csv": to_csv(columns, rows)}

    def pictures(self, record: TeacherLayerSearch) -> dict[str, Figure]:
        """Return the scores by layer."""
        return {"layers": layers_race_figure(record)}


def _second_score(record: TeacherLayerSearch, best: SearchedLayer) -> str | None:
    """Return the last score of the next best layer, in text; None where no other layer has one."""
    # Layers are sorted by rank. A layer that diverged has no score, or none that is a number.
    for layer in record.layers:
        if layer.layer == best.layer or not layer.scores:
            continue
        last_score = layer.scores[-1].score
        if last_score is not None:
            return f"{last_score:.2f}"
    return None


def _layers_table(record: TeacherLayerSearch, caption: str) -> Table:
    """Lay out every layer with its score at each rung; before the end of the search with the state of its trial."""
    # Layers that were dropped early have no score at later steps.
    steps = sorted({result.step for layer in record.layers for result in layer.scores})
    headings = ["Layer", *(f"Step {step}" for step in steps)]
    # Ranks are given to all layers at the end of the search.
    is_finished = all(layer.rank is not None for layer in record.layers)
    if is_finished:
        headings += [*record.scores, "Own loss", "Dropped"]
    else:
        headings.append("Trial")

    rows: list[tuple[AnyCell, ...]] = []
    for layer in record.layers:
        score_by_step = {result.step: result.score for result in layer.scores}
        cells: list[AnyCell] = [str(layer.layer)]
        cells += [number(score_by_step.get(step), 2) for step in steps]
        if is_finished:
            cells += _end_cells(layer, part_names=record.scores)
        else:
            cells.append(layer.state)
        rows.append(tuple(cells))
    return Table(caption, tuple(headings), tuple(rows), words=(len(headings) - 1,))


def _end_cells(layer: SearchedLayer, part_names: Sequence[str]) -> list[AnyCell]:
    """Return the parts of a layer's last score, its own loss, and the step after which it was dropped."""
    last_result = layer.scores[-1] if layer.scores else None
    # The parts are fields of a result: `agreement` and `explained`.
    parts = [number(getattr(last_result, name, None), 2) for name in part_names]
    if layer.state == "trained":
        dropped = NOTHING
    elif layer.state == "cut":
        dropped = f"after {layer.steps}"
    else:
        dropped = layer.state
    return [*parts, number(layer.own_loss, 4), dropped]


def layers_race_figure(record: TeacherLayerSearch, mark: str = "highest") -> Figure:
    """Draw the score of every layer at every step that it was scored at, and mark the best.

    Args:
        record: Of the search, or of its course so far.
        mark: The word before the best layer in the legend.
    """
    # A line for each rung of successive halving, over the layers that were still training.
    points_by_step: dict[int, list[Point]] = {}
    for layer in record.layers:
        for result in layer.scores:
            if result.score is not None:
                points_by_step.setdefault(result.step, []).append((layer.layer, result.score))
    series = [Series(f"after {step:,} steps", sorted(points)) for step, points in sorted(points_by_step.items())]

    # A best layer has a score; a record without it is damaged, and a point at 0 would be made up.
    best = record.best
    best_score = best.scores[-1].score if best is not None else None
    if best is not None and best_score is not None:
        series.append(Series(f"{mark}: layer {best.layer}", [(best.layer, best_score)], "points"))
    score_label = f"score: mean of {', '.join(record.scores)} (percent)"
    plot = Lines(series, "teacher layer", score_label, x_is_whole=True)
    return lines_figure("Scores of students by teacher layer", plot)
