"""The card of a fine-tuned model: its scores, how it was chosen, its rows and settings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from limbeck.core.kinds import own_kind_like
from limbeck.core.studies import ChosenPoint, EvaluatedModel, Evaluation, EvaluationCell, Figure
from limbeck.kinds.task import Task
from limbeck.models.card_facts import teacher_facts
from limbeck.report.card import (
    HEADS,
    base_model_fields,
    front_matter,
    reads_pairs,
    result_fields,
    short_name,
    usage_fields,
    write_card,
)
from limbeck.report.evaluation import digits_of, units_of_thresholds
from limbeck.report.names import metric_name
from limbeck.report.task_scores import hub_results, scores_of_model


def write_fine_tuned_card(cell: EvaluationCell, task: Task, summary: Evaluation, folder: Path) -> Path:
    """Write the model card of a fine-tuned model.

    Args:
        cell: The run that made it.
        task: Its task.
        summary: Of the evaluation that it was chosen in, of its model and task alone.
        folder: The model's folder.

    Returns:
        The path of `README.md`.
    """
    card = FineTunedCard(cell, task, summary)
    return write_card(folder, front_matter(card.data), "fine_tuned_card.md.j2", card=card)


@dataclass(frozen=True)
class Score:
    """A figure of the card: of the model alone, and over the seeds of its grid point."""

    title: str
    rows: int | None
    metric: str
    value: Figure
    figure: Figure
    digits: int


@dataclass(frozen=True)
class FineTunedCard:
    """The facts of a fine-tuned model's card.

    Attributes:
        cell: The run that made it.
        task: Its task.
        summary: Of the evaluation that it was chosen in, of its model and task alone.
    """

    cell: EvaluationCell
    task: Task
    summary: Evaluation

    @property
    def data(self) -> ModelCardData:
        """The front matter."""
        return ModelCardData(
            **(self.facts["card"] or {}),
            **usage_fields(pooled=False, head=self.task.kind),
            **base_model_fields(self.hub_name),
            tags=["fine-tuned", "limbeck", self.task.name],
            **self._results(),
        )

    def _results(self) -> dict[str, Any]:
        """Return the scores of this one run as the Hub has them."""
        drawn = self.cell.settings.get("max_scored_rows")
        if drawn is not None and drawn in self.cell.rows.values():
            return {}  # The score of a part of the rows is none of the data set.
        # The summary has means over seeds; the card is of one run.
        columns = {}
        for key, column in self.model.columns.items():
            columns[key] = column.model_copy(update={"mean": column.runs[self._place]})
        model = self.model.model_copy(update={"columns": columns})
        summary = self.summary.model_copy(update={"models": [model]})
        return result_fields(list(hub_results(scores_of_model(model, summary))), self.title)

    @property
    def model(self) -> EvaluatedModel:
        """The row of the summary."""
        return self.summary.models[0]

    @property
    def head_kind(self) -> str:
        """The kind of its head."""
        return self.task.kind

    @property
    def head(self) -> Any:
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
        return self.hub_name or short_name(self.cell.model)

    @property
    def title(self) -> str:
        """The title of the card."""
        name = self.base.removeprefix("package:").rpartition("/")[2]
        return f"{name} on {self.task.title}"

    @property
    def reads_pairs(self) -> bool | None:
        """Whether its rows are pairs of texts; None of a task of the user's own."""
        return reads_pairs({"name": self.task.name})

    @property
    def chosen(self) -> ChosenPoint:
        """The chosen grid point."""
        return self.model.chosen[self.task.name]

    @property
    def runs(self) -> int:
        """Number of runs of the chosen grid point."""
        return self.chosen.runs

    @property
    def _place(self) -> int:
        """Place of the model's run among those of its grid point."""
        return self.chosen.seeds.index(self.cell.seed)

    @cached_property
    def scores(self) -> list[Score]:
        """Every metric of every column."""
        scores = []
        for column in self.summary.columns:
            figures = self.model.columns.get(column.key)
            if figures is None:
                continue
            rows = sum(self.cell.rows.get(split, 0) for split in column.splits) or None
            for metric, figure in figures.metrics.items():
                value = Figure.of_runs([figure.runs[self._place]])
                scores.append(Score(column.title, rows, metric, value, figure, digits_of(metric, column)))
        return scores

    @property
    def thresholds(self) -> str:
        """The units of thresholds, where a score is one."""
        return units_of_thresholds(self.summary)

    @property
    def choice(self) -> str:
        """The choices that the development rows made, which make their scores too good."""
        choices = []
        if self.chosen.points > 1:
            choices.append(f"the best of {self.chosen.points} grid points")
        if self.runs > 1:
            choices.append(f"the best of {self.runs} seeds (seed {self.cell.seed})")
        if self.cell.epoch is not None:
            choices.append(f"the best epoch ({self.cell.epoch:g})")
        if not choices:
            return (
                "Nothing was chosen by these rows: there was one grid point with one seed, and the last weights were "
                "kept."
            )
        metric = metric_name(self.summary.columns[0].metric) if self.summary.columns else ""
        return (
            f"This model was chosen on the rows of {self.cell.select} by {metric}: {', '.join(choices)}. These rows "
            "are therefore not an untouched test set; scores on other rows may be lower."
        )

    @property
    def notes(self) -> list[str]:
        """The notes on rows, without the texts that they quote: a card is made to be published."""
        return [re.sub(r" \(such as .*\)$", "", note) for note in self.summary.notes]

    @property
    def settings(self) -> Iterator[str]:
        """The settings of its run, a line each."""
        settings = self.cell.settings
        rows = self.cell.rows.get("train", 0)
        yield f"Rows: {rows:,} of {self.task.title}, {self.task.train}."

        epochs = f"{settings['epochs']:g} epoch{'' if settings['epochs'] == 1 else 's'}"
        stride = f"; stride {settings['stride']}" if settings["stride"] else ""
        precision = "bfloat16" if settings["bf16"] else "float32"
        yield (
            f"Peak learning rate {settings['learning_rate']:g}, {epochs}, batch {settings['batch_size']}, at most "
            f"{settings['length']} tokens; warm-up over {settings['warmup']:g} of the steps, {settings['schedule']} "
            f"schedule, weight decay {settings['weight_decay']:g}{stride}; AdamW, {precision}."
        )
        weights = "the last weights" if self.cell.epoch is None else f"the weights after epoch {self.cell.epoch:g}"
        yield f"Seed {self.cell.seed}; {weights}."
        yield (
            f"Settings of limbeck's preset {self.summary.preset}, except for those given by the user; "
            f"{self.cell.seconds or 0:,.0f} seconds of training in this run."
        )
