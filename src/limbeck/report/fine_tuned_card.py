"""The card of a fine-tuned model: its scores, how it was chosen, its rows and settings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from limbeck.core.paths import MODEL_CARD
from limbeck.core.studies import EvaluatedModel, Evaluation, EvaluationCell, Figure
from limbeck.evaluation.tasks import Task
from limbeck.models.card_facts import teacher_facts
from limbeck.report import card_parts
from limbeck.report.card_parts import HEADS
from limbeck.report.evaluation import digits_of, units_of_thresholds
from limbeck.report.model_card import dump_front_matter, task_results, usage_fields
from limbeck.report.quality import metric_name


@dataclass(frozen=True)
class _Score:
    """A figure of the card: of the model alone, and over the seeds of its grid point."""

    title: str
    rows: int | None
    metric: str
    value: Figure
    figure: Figure
    digits: int


@dataclass(frozen=True)
class FineTunedCard:
    """The facts of a fine-tuned model's card, as its template and its front matter have them.

    Attributes:
        cell: The run that made it.
        task: Its task.
        summary: Of the evaluation that it was chosen in, of its model and task alone.
    """

    cell: EvaluationCell
    task: Task
    summary: Evaluation

    @property
    def model(self) -> EvaluatedModel:
        """The row of the summary."""
        return self.summary.models[0]

    @property
    def head_kind(self) -> str:
        """The kind of its head."""
        return self.task.kind

    @property
    def shape(self) -> str:
        """Its shape in words."""
        return self.model.shape

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The facts of the model that was fine-tuned: its name on the Hub, its licence and its language."""
        return teacher_facts(self.cell.model)

    @property
    def hub_name(self) -> str | None:
        """Its name on the Hub, where it has one."""
        return self.facts["hub_id"]

    @property
    def base(self) -> str:
        """Its name, or the last part of its path."""
        return self.hub_name or card_parts.short_name(self.cell.model)

    @property
    def title(self) -> str:
        """Heads the card."""
        return f"{re.sub(r'^package:', '', self.base).rpartition('/')[2]} on {self.task.title}"

    @property
    def reads_pairs(self) -> bool | None:
        """Whether its rows are pairs of texts; None of a task of the user's own."""
        return card_parts.reads_pairs({"name": self.task.name})

    @property
    def runs(self) -> int:
        """Number of runs of the chosen grid point."""
        return self.model.chosen[self.task.name].runs

    @property
    def _place(self) -> int:
        """Place of the model's run among those of its grid point."""
        return self.model.chosen[self.task.name].seeds.index(self.cell.seed)

    @cached_property
    def scores(self) -> list[_Score]:
        """Every metric of every column."""
        return list(self._scores())

    def _scores(self) -> Iterator[_Score]:
        for column in self.summary.columns:
            found = self.model.columns.get(column.key)
            rows = sum(self.cell.rows.get(split, 0) for split in column.splits) or None
            for metric, figure in (found.metrics if found else {}).items():
                own = Figure.of_runs([figure.runs[self._place]])
                yield _Score(column.title, rows, metric, own, figure, digits_of(metric, column))

    @property
    def thresholds(self) -> str:
        """What thresholds are, where a score is one."""
        return units_of_thresholds(self.summary)

    @property
    def choice(self) -> str:
        """Say what the development rows chose, which is what makes their scores too good."""
        chosen, cell = self.model.chosen[self.task.name], self.cell
        metric = metric_name(next((column.metric for column in self.summary.columns), ""))
        parts = [
            f"the best of {chosen.points} grid points" if chosen.points > 1 else "",
            f"the best of {self.runs} seeds (seed {cell.seed})" if self.runs > 1 else "",
            f"the best epoch ({cell.epoch:g})" if cell.epoch is not None else "",
        ]
        said = ", ".join(filter(None, parts))
        if not said:
            return (
                "Nothing was chosen by these rows: there was one grid point with one seed, and the last weights were "
                "kept."
            )
        return (
            f"This model was chosen on the rows of {cell.select} by {metric}: {said}. These rows are therefore not an "
            "untouched test set; scores on other rows may be lower."
        )

    @property
    def notes(self) -> list[str]:
        """What the evaluation says of rows, without the texts that it quotes: a card is made to be published."""
        return [re.sub(r" \(such as .*\)$", "", note) for note in self.summary.notes]

    @property
    def settings(self) -> list[str]:
        """The settings of its run, a line each."""
        of, rows = self.cell.settings, self.cell.rows
        more = [
            f"warm-up over {of['warmup']:g} of the steps, {of['schedule']} schedule, "
            f"weight decay {of['weight_decay']:g}"
        ]
        more += [f"stride {of['stride']}"] if of["stride"] else []
        epoch = "the last weights" if self.cell.epoch is None else f"the weights after epoch {self.cell.epoch:g}"
        epochs = f"{of['epochs']:g} epoch{'' if of['epochs'] == 1 else 's'}"
        return [
            f"Rows: {rows.get('train', 0):,} of {self.task.title}, {self.task.train}.",
            f"Peak learning rate {of['learning_rate']:g}, {epochs}, batch {of['batch_size']}, at most {of['length']} "
            f"tokens; {'; '.join(more)}; AdamW, {'bfloat16' if of['bf16'] else 'float32'}.",
            f"Seed {self.cell.seed}; {epoch}.",
            f"Settings of limbeck's preset {self.summary.preset}, except for those given by the user; "
            f"{self.cell.seconds or 0:,.0f} seconds of training in this run.",
        ]

    def front_matter(self) -> str:
        """Return the front matter, `---` lines included."""
        fields: dict[str, Any] = dict(self.facts["card"] or {})
        fields |= usage_fields(pooled=False, head=HEADS[self.task.kind])
        if self.hub_name:
            fields |= {"base_model": self.hub_name, "base_model_relation": "finetune"}
        fields["tags"] = ["fine-tuned", "limbeck", self.task.name]
        drawn = self.cell.settings.get("max_scored_rows")
        if (
            drawn is not None and drawn in self.cell.rows.values()
        ):  # Part of the rows, which is no score of the data set.
            return dump_front_matter(fields)
        own = self.model.model_copy(update={"columns": {
            key: found.model_copy(update={"mean": found.runs[self._place]}) for key, found in self.model.columns.items()
        }})  # fmt: skip
        alone = self.summary.model_copy(update={"models": [own]})
        if results := [*task_results(card_parts.scores_of_model(own, alone))]:
            types = dict.fromkeys(metric["type"] for result in results for metric in result["metrics"])
            fields |= {"metrics": list(types), "model-index": [{"name": self.title, "results": results}]}
        return dump_front_matter(fields)


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
    template = card_parts.card_templates().get_template("fine_tuned_card.md.j2")
    body = template.render(card=card, head=HEADS[task.kind], cell=cell)
    path = folder / MODEL_CARD
    text = card.front_matter() + "\n" + re.sub(r"\n{3,}", "\n\n", body).strip() + "\n"
    path.write_text(text, encoding="utf-8")
    return path
