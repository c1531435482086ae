"""The card of a fine-tuned model: its scores, how it was chosen, its rows and settings, which a template words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from limbeck.core.files import atomic_text, writing
from limbeck.core.kinds import own_kind_like
from limbeck.core.paths import MODEL_CARD
from limbeck.core.studies import ChosenPoint, EvaluatedModel, Evaluation, EvaluationCell, Figure
from limbeck.kinds.task import Task
from limbeck.models.card_facts import teacher_facts
from limbeck.report.card import (
    HEADS,
    base_model_fields,
    card_text,
    reads_pairs,
    result_fields,
    usage_fields,
)
from limbeck.report.card_templates import name_in_card
from limbeck.report.evaluation_tables import metric_digits, units_of_thresholds
from limbeck.report.names import metric_of_column
from limbeck.report.task_scores import hub_results, scores_of_model


def write_fine_tuned_card(
    cell: EvaluationCell, task: Task, summary: Evaluation, folder: Path, *, task_name: str | None = None
) -> Path:
    """Write the model card of a fine-tuned model.

    Args:
        cell: The run that made it.
        task: Its task.
        summary: Of the evaluation that it was chosen in, of its model and task alone.
        folder: The model's folder.
        task_name: The task as the user named it, which may be the path of a file; its own name by default.

    Returns:
        The path of `README.md`.

    Raises:
        OutputError: if it cannot be written.
    """
    card = FineTunedCard(cell, task, summary, reads_pairs({"name": task_name or task.name}))
    path = folder / MODEL_CARD
    text = card_text(card.data, "fine_tuned_card.md.j2", card=card)
    with writing(path):
        atomic_text(path, text)
    return path


@dataclass(frozen=True)
class Score:
    """A row of the table of scores.

    Attributes:
        title: Title of the evaluation's column: the task and the split.
        rows: Number of scored rows; None where it is not known.
        metric: The metric as tables head it.
        value: The score of this model, which is one run.
        figure: The scores of all seeds with the same settings: their mean and deviation.
        digits: Number of decimals of both.
    """

    title: str
    rows: int | None
    metric: str
    value: Figure
    figure: Figure
    digits: int


@dataclass(frozen=True)
class FineTunedCard:
    """The facts of a fine-tuned model's card; `fine_tuned_card.md.j2` reads them.

    Attributes:
        cell: The run that made it.
        task: Its task.
        summary: Of the evaluation that it was chosen in, of its model and task alone.
        reads_pairs: Whether its rows are pairs of texts; None where it is not known.
    """

    cell: EvaluationCell
    task: Task
    summary: Evaluation
    reads_pairs: bool | None = None

    @property
    def title(self) -> str:
        """The title of the card."""
        name = self.base.removeprefix("package:").rpartition("/")[2]
        return f"{name} on {self.task.title}"

    @property
    def data(self) -> ModelCardData:
        """The front matter."""
        return ModelCardData(
            **(self.facts["card"] or {}),
            **usage_fields(pooled=False, head=self.task.kind),
            **base_model_fields(self.hub_name),
            tags=["fine-tuned", "limbeck", self.task.name],
            **result_fields(self._results(), self.title),
        )

    def _results(self) -> list[EvalResult]:
        """The scores of this one run as the Hub has them."""
        # A split with just as many rows as may be scored at most was cut to them. Its score is not one of the data set.
        most_rows = self.cell.settings.get("max_scored_rows")
        if most_rows is not None and most_rows in self.cell.rows.values():
            return []
        # The summary has means over seeds. The card is of one run, so the score of that run takes the mean's place.
        columns = {}
        for key, column in self.model.columns.items():
            columns[key] = column.model_copy(update={"mean": column.runs[self._place]})
        model = self.model.model_copy(update={"columns": columns})
        summary = self.summary.model_copy(update={"models": [model]})
        return list(hub_results(scores_of_model(model, summary)))

    @property
    def model(self) -> EvaluatedModel:
        """The row of the summary."""
        return self.summary.models[0]

    @property
    def chosen(self) -> ChosenPoint:
        """The chosen grid point."""
        return self.model.chosen[self.task.name]

    @property
    def _place(self) -> int:
        """Index of this model's run among the runs of its grid point, which differ in their seed."""
        return self.chosen.seeds.index(self.cell.seed)

    @property
    def head_kind(self) -> str:
        """The kind of its head."""
        return self.task.kind

    @property
    def head(self) -> Mapping[str, str]:
        """Its head."""
        return HEADS[own_kind_like(self.task.kind)]

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The facts of the model that was fine-tuned: its name on the Hub, its licence and its language."""
        return teacher_facts(self.cell.model)

    @property
    def hub_name(self) -> str | None:
        """The name on the Hub of the model that was fine-tuned, if it has one."""
        return self.facts["hub_id"]

    @property
    def base(self) -> str:
        """The name of the model that was fine-tuned, or the last part of its path."""
        return self.hub_name or name_in_card(self.cell.model)

    @property
    def scores(self) -> list[Score]:
        """Every metric of every column."""
        scores = []
        for column in self.summary.columns:
            figures = self.model.columns.get(column.key)
            if figures is None:
                continue
            rows = sum(self.cell.rows.get(split, 0) for split in column.splits) or None
            for metric, figure in figures.metrics.items():
                # `figure` is of all seeds; the card's model is the one of the seed at `_place`.
                value = Figure.of_runs([figure.runs[self._place]])
                score = Score(
                    title=column.title,
                    rows=rows,
                    metric=metric_of_column(metric, column),
                    value=value,
                    figure=figure,
                    digits=metric_digits(metric, column),
                )
                scores.append(score)
        return scores

    @property
    def thresholds(self) -> str:
        """The units of thresholds, where a score is one."""
        return units_of_thresholds(self.summary)

    @property
    def chosen_by(self) -> str:
        """The metric that the best run was chosen by."""
        if not self.summary.columns:
            return ""
        column = self.summary.columns[0]
        return metric_of_column(column.metric, column)

    @property
    def notes(self) -> list[str]:
        """The notes on rows, without the texts that they quote: a card is made to be published."""
        return [re.sub(r" \(such as .*\)$", "", note) for note in self.summary.notes]
