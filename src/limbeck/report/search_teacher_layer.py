"""The view of a search of teacher layers: every layer with the score of its student after each round.

All candidates train at once. The search may halve them: after each *rung*, a number of steps, those with the lowest
scores are dropped, and the others train on.
"""

from collections.abc import Iterator
from dataclasses import replace

from limbeck.core.blocks import AnyCell, Figure, Notes, Table, duration, number, to_csv
from limbeck.core.studies import TeacherLayerSearch
from limbeck.report.figures import lines_figure
from limbeck.report.plots import Lines, Point, Series
from limbeck.report.search_view import SearchView
from limbeck.report.sections import Highlight


class TeacherLayerView(SearchView[TeacherLayerSearch]):
    """Teacher layers."""

    TITLE = "Search of teacher layers"

    def best(self, record: TeacherLayerSearch) -> str:
        """Return the best layer and its last score."""
        if record.best is None:
            return ""
        last_score = record.best.scores[-1]
        return f"teacher layer {record.best.layer}, score {last_score.score:.2f} after {last_score.step} steps"

    def second_score(self, record: TeacherLayerSearch) -> str:
        """Return the last score of the next best layer that has one."""
        # Layers are sorted by rank. A layer that diverged has no score, or none that is a number.
        for layer in record.layers:
            is_best = record.best is not None and layer.layer == record.best.layer
            if not is_best and layer.scores and layer.scores[-1].score is not None:
                return f"{layer.scores[-1].score:.2f}"
        return ""

    def highlights(self, record: TeacherLayerSearch) -> Iterator[Highlight]:
        """Yield the best layer with its score, the next best score, and the number of layers."""
        if record.best is None:
            return
        last_score = record.best.scores[-1]
        yield Highlight(str(record.best.layer), "best teacher layer")
        yield Highlight(f"{last_score.score:.2f}", "its score", f"after {last_score.step:,} steps")
        second_score = self.second_score(record)
        if second_score:
            yield Highlight(second_score, "next best score")
        yield Highlight(str(len(record.layers)), "teacher layers tried")

    def blocks(self, record: TeacherLayerSearch) -> Iterator[Figure | Table | Notes]:
        """Draw the scores by layer, then list the layers."""
        if record.best is not None:
            yield layers_race_figure(record)
        yield _layers_table(record)

    def notes(self, record: TeacherLayerSearch) -> Iterator[str]:
        """Explain the scores; state the cost and the rounds of halving."""
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

    def csv_files(self, record: TeacherLayerSearch) -> dict[str, str]:
        """Return every score of every layer."""
        rows = []
        for layer in record.layers:
            layer_fields = layer.to_dict()
            # Each row has the fields of the layer and of a score: `step`, `score` and the parts of the score.
            rows += [{**layer_fields, **score.to_dict()} for score in layer.scores]
            # A layer that never reached a rung has a row without a score.
            if not layer.scores:
                rows.append(layer_fields)
        # `to_csv` writes these columns and leaves out the other fields.
        columns = ("rank", "layer", "step", "score", *record.scores, "steps", "state", "own_loss")
        return {"layers.csv": to_csv(columns, rows)}


def _layers_table(record: TeacherLayerSearch) -> Table:
    """Lay out every layer with its score at each rung, its own loss, and the state of its training."""
    # Layers that were dropped early have no score at later steps.
    steps = sorted({score.step for layer in record.layers for score in layer.scores})
    # The record has the layers in the order that the caption says.
    rows: list[tuple[AnyCell, ...]] = []
    for layer in record.layers:
        score_by_step = {score.step: score.score for score in layer.scores}
        cells = [number(score_by_step.get(step), digits=2) for step in steps]
        state = layer.state
        if state == "cut":
            state = f"dropped after {layer.steps}"
        rows.append((str(layer.layer), *cells, number(layer.own_loss, digits=4), state))
    headings = ("Layer", *(f"Step {step}" for step in steps), "Own loss", "State")
    return Table("Layers, longest trained first, then highest score", headings, tuple(rows)).with_words("State")


def layers_race_figure(record: TeacherLayerSearch) -> Figure:
    """Draw a line of the scores of all layers for each rung, the steps at which they were scored, and mark the best."""
    # The line of a later rung has only the layers that were still training.
    points_by_step: dict[int, list[Point]] = {}
    for layer in record.layers:
        for score in layer.scores:
            if score.score is not None:
                points_of_step = points_by_step.setdefault(score.step, [])
                points_of_step.append((layer.layer, score.score))
    series = [Series(f"after {step:,} steps", sorted(points)) for step, points in sorted(points_by_step.items())]

    best = record.best
    if best is not None:
        best_score = best.scores[-1].score
        # The score of the best layer is missing only in a damaged record: then the layer is not marked.
        if best_score is not None:
            series.append(Series(f"highest: layer {best.layer}", [(best.layer, best_score)], "points"))
    score_label = f"score: mean of {', '.join(record.scores)} (percent)"
    plot = Lines(series, x="teacher layer", y=score_label, x_is_whole=True)
    return replace(lines_figure("Scores of students by teacher layer", plot), name="layers")
