"""The card of a fine-tuned model: its scores, how it was chosen, its rows and settings, which a template words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from limbeck.core.blocks import counted
from limbeck.core.files import atomic_text, writing
from limbeck.core.kinds import kind_of, own_kind_like
from limbeck.core.paths import MODEL_CARD
from limbeck.core.studies import ChosenPoint, EvaluatedModel, Evaluation, EvaluationCell, Figure
from limbeck.corpus.source_report import without_examples
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
from limbeck.report.chance import guesser_sentence
from limbeck.report.evaluation_tables import metric_digits, units_of_thresholds
from limbeck.report.names import metric_of_column
from limbeck.report.task_scores import hub_results, names_of_splits, scores_of_model


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
        size: Number of scored rows in words, or of queries and pairs; empty where it is not known.
        metric: The metric as tables head it.
        value: The score of this model, which is one run.
        figure: The scores of all seeds with the same settings: their mean and deviation.
        digits: Number of decimals of both.
    """

    title: str
    size: str
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
        _, _, name = self.base.removeprefix("package:").rpartition("/")
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
        """The scores of this one run as the Hub has them; none if a split was cut, and so not scored as a whole.

        Scores that `hub_results` leaves out, such as those over rows that were trained on, are not among them.
        """
        # A split of which exactly the largest allowed number of rows was scored is taken for one that was cut.
        most_rows = self.cell.settings.get("max_scored_rows")
        scored_splits = {split for column in self.summary.columns for split in column.splits}
        if most_rows is not None and any(self.cell.rows.get(split) == most_rows for split in scored_splits):
            return []
        # `hub_results` reads the means of a summary, which are over seeds. The card is of one run, so it gets a copy of
        # the summary in which the scores of this run take the place of the means.
        columns = {}
        for key, column in self.model.columns.items():
            columns[key] = column.model_copy(update={"mean": column.runs[self._seed_index]})
        model = self.model.model_copy(update={"columns": columns})
        summary = self.summary.model_copy(update={"models": [model]})
        return list(hub_results(scores_of_model(model, summary)))

    @property
    def model(self) -> EvaluatedModel:
        """The model's scores in the summary, which is of this model alone."""
        return self.summary.models[0]

    @property
    def chosen(self) -> ChosenPoint:
        """The chosen grid point."""
        return self.model.chosen[self.task.name]

    @property
    def _seed_index(self) -> int:
        """Index of this model's run in `runs` of a figure, which has a score for each seed of the grid point."""
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
        """A score for each metric of each column of the evaluation that the model was scored on."""
        scores = []
        for column in self.summary.columns:
            column_figure = self.model.columns.get(column.key)
            if column_figure is None:
                continue
            size = self._size_of(column.splits)
            for metric, figure_of_all_seeds in column_figure.metrics.items():
                score_of_this_run = figure_of_all_seeds.runs[self._seed_index]
                score = Score(
                    title=column.title,
                    size=size,
                    metric=metric_of_column(metric, column),
                    value=Figure.of_runs([score_of_this_run]),
                    figure=figure_of_all_seeds,
                    digits=metric_digits(metric, column),
                )
                scores.append(score)
        return scores

    @property
    def scored_splits(self) -> str:
        """The splits that the scores are over, in words: `validation`, `validation and test`."""
        names = [
            name
            for column in self.summary.columns
            if column.key in self.model.columns
            for name in names_of_splits(column)
        ]
        return " and ".join(dict.fromkeys(names))

    def _size_of(self, splits: Sequence[str]) -> str:
        """Return the number of rows of some splits in words; empty where the record does not have it."""
        rows = sum(self.cell.rows.get(split, 0) for split in splits)
        if not rows:
            return ""
        if self.cell.queries is None:
            return f"{rows:,}"
        queries = sum(self.cell.queries.get(split, 0) for split in splits)
        return f"{queries:,} ({counted(rows, 'pair')})"

    @property
    def train_size(self) -> str:
        """The number of rows to train on, in words, or of queries and pairs."""
        return self._size_of(["train"]) or "0"

    @property
    def guessers(self) -> list[str]:
        """A sentence for each column whose score has a guesser beside it."""
        sentences = []
        for column in self.summary.columns:
            column_figure = self.model.columns.get(column.key)
            if column_figure is not None:
                sentences.append(guesser_sentence(column, column_figure))
        return [sentence for sentence in sentences if sentence]

    @property
    def rows_name(self) -> str:
        """The name of what is counted: queries in a ranking, in older records its pairs of a query and a document."""
        if self.cell.queries is not None:
            return "Queries"
        return "Pairs" if kind_of(self.task.kind).has_queries else "Rows"

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
        return [without_examples(note) for note in self.summary.notes]
