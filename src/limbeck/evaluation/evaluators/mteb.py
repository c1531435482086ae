"""The evaluator `mteb`, which scores sentence vectors by tasks of the package mteb.

`mteb:NAME` names one of mteb's own tasks, or a task of limbeck whose rows mteb scores (`mteb_tasks`). mteb computes all
scores, from vectors that limbeck makes (`mteb_model`), and its own records of them are kept (`mteb_records`).
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.core import intervals
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import ModelError
from limbeck.evaluation.evaluators.evaluator import (
    MTEB,
    CellResult,
    EvaluatedTask,
    Evaluator,
    PlannedCells,
    ReadyCell,
    Scores,
    Share,
    register_as_evaluator,
)
from limbeck.evaluation.evaluators.head_outputs import quiet_and_explain_oom
from limbeck.evaluation.evaluators.mteb_model import ModelForMteb
from limbeck.evaluation.evaluators.mteb_records import keep_records
from limbeck.evaluation.evaluators.mteb_tasks import find_mteb_task, measure_splits, quiet_mteb, split_in_limbeck
from limbeck.evaluation.evaluators.prepared_task import PreparedTask
from limbeck.evaluation.evaluators.sentence_vectors import FOLLOWED_SIMILARITIES, longest_text, vectors_of
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import SimilarityPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.kinds.task import Task, TaskData

_CORRELATIONS = {"cosine_spearman": True, "spearman": True, "cosine_pearson": False, "pearson": False}
"""Main scores that are correlations over rows, and whether they are of ranks."""
_BATCH = 32
"""Texts of a forward pass."""


@dataclass(frozen=True)
class _PreparedForMteb(PreparedTask):
    """A task for its cells; the rows of one of mteb's own are in the Hub's cache, and not here.

    Attributes:
        data: All rows of a task of limbeck, those to train on too; None for one of mteb's own.
        fingerprint: Fingerprint of the rows.
        output: The folder of the evaluation.
    """

    data: TaskData | None = None
    fingerprint: str = ""
    output: Path = Path()


@register_as_evaluator()
class ByMteb(Evaluator):
    """Scores models by tasks of mteb; there is one cell for each model and task."""

    name = MTEB

    def check(self, task: Task, model: PlannedModel, request: EvaluationRequest) -> None:
        """Refuse a model that makes no sentence vectors, and a router where there are no queries."""
        pooling = request.settings(task).pooling
        vectors_of(model.queries, pooling)
        vectors_of(model.documents, pooling)
        if not find_mteb_task(task.name).has_queries:
            model.check_is_one(task)

    def facts(self, name: str) -> Task:
        """Return the facts of a task, with all splits that may be scored."""
        return find_mteb_task(name).facts()

    def task(self, name: str, request: EvaluationRequest) -> EvaluatedTask:
        """Return a task with its identity: of rows their content, of a data set on the Hub its revision."""
        mteb_task = find_mteb_task(name)
        settings = request.settings(mteb_task.facts())
        content = mteb_task.content(request)
        title = content.task.title
        notes = list(content.notes)
        if settings.max_scored_rows is not None:
            notes.append(f"{title}: scored on all rows, since max_scored_rows does not apply to tasks of mteb")
        if content.task.metrics[0] not in _CORRELATIONS:
            notes.append(f"{title}: no interval, since mteb gives no scores of single rows")
        return EvaluatedTask(
            name=name,
            evaluator=self.name,
            task=content.task,
            settings=settings,
            data=f"{self.name} {self.version} {content.fingerprint}",
            notes=tuple(notes),
        )

    def cells(
        self, task: EvaluatedTask, model: PlannedModel, models: Sequence[PlannedModel], request: EvaluationRequest
    ) -> PlannedCells:
        """Return one cell, whose settings say how the model reads texts."""
        # One model reads queries and documents, except in a router's folder, which has a model for each. The similarity
        # is then that of the model of documents, which is the last.
        lengths = []
        prompts: list[str] = []
        similarity = None
        for place in dict.fromkeys((model.queries, model.documents)):
            reader = vectors_of(place, task.settings.pooling)
            lengths.append(longest_text(place, reader, task.settings.length))
            similarity = reader.similarity
            # A prompt may be named after a task or a type of task, so all of them are part of the cell's identity.
            prompts += [f"{prompt}: {text}" for prompt, text in reader.nonempty_prompts.items()]
            if reader.prompt():
                prompts.append(f"without a role: {reader.prompt()}")

        notes = []
        if similarity not in FOLLOWED_SIMILARITIES:
            notes.append(
                f"{task.task.title}: scored by the cosine, although the folder of '{model.name}' says {similarity}"
            )
        point = SimilarityPoint(
            length=lengths[0],
            pooling=task.settings.pooling,
            max_scored_rows=None,
            prompts=tuple(prompts),
            dot=similarity == "dot",
            reader_lengths=tuple(lengths[1:]),
        )
        return PlannedCells([Cell(model.name, task.name, point, seed=0)], notes)

    def prepare(
        self, task: EvaluatedTask, cell: Cell, model: PlannedModel, request: EvaluationRequest
    ) -> _PreparedForMteb:
        """Return the rows of a task of limbeck, or bring the data of one of mteb's own into the Hub's cache."""
        data = find_mteb_task(task.name).fetch(request)
        scored_rows: dict[str, Sequence[LabelledRow]] = {}
        if data is not None:
            scored_rows = {split: data.splits[split] for split in data.task.scored}
        return _PreparedForMteb(
            task.task, scored_rows, data=data, fingerprint=task.data, output=request.output.expanduser()
        )

    def run(self, ready: ReadyCell, trained: None, report: Share) -> CellResult:
        """Score the model by mteb, and keep mteb's records."""
        started = time.monotonic()
        cell = ready.cell
        prepared: _PreparedForMteb = ready.prepared
        point = cell.point
        assert isinstance(point, SimilarityPoint)
        with quiet_and_explain_oom(), quiet_mteb():
            mteb_task = find_mteb_task(cell.task).open(prepared.data, prepared.fingerprint)
            sizes = measure_splits(mteb_task)
            texts = sum(size.texts for size in sizes.values())
            model = ModelForMteb(cell.model, point, texts=texts, report=report)
            result = _evaluate(model, mteb_task)
        metadata = mteb_task.metadata
        keep_records(result, metadata, model.mteb_model_meta, model=cell.model, output=prepared.output)

        scores: Scores = {}
        interval_of_split: dict[str, dict[str, list[float]]] = {}
        metric = metadata.main_score
        for split, score in _main_scores(result, metric):
            scores[split] = {metric: score}
            if metric in _CORRELATIONS:
                ends = intervals.of_correlation(score, sizes[split].rows, ranked=_CORRELATIONS[metric])
                if ends is not None:
                    interval_of_split[split] = {metric: list(ends)}
        rows = {"train": 0}
        for split, size in sizes.items():
            rows[split] = size.rows
        return CellResult(
            scores,
            rows=rows,
            seconds=round(time.monotonic() - started, 3),
            intervals=interval_of_split or None,
        )


def _evaluate(model: ModelForMteb, mteb_task: Any) -> Any:
    """Return mteb's result of a model on a task."""
    import mteb

    results = mteb.evaluate(
        model,
        mteb_task,
        co2_tracker=False,
        encode_kwargs={"batch_size": _BATCH, "show_progress_bar": False},
        # limbeck finds finished cells again by itself.
        cache=None,
        show_progress_bar=False,
        # A data set that cannot be read is an error.
        public_only=False,
    )
    return results.task_results[0]


def _main_scores(result: Any, metric: str) -> Iterator[tuple[str, float]]:
    """Yield the main score of each split, by limbeck's name of the split.

    Raises:
        ModelError: for a score that is no number, as the correlation of vectors that are all equal.
    """
    for split, scores_of_subsets in result.scores.items():
        for scores in scores_of_subsets:
            name = split_in_limbeck(split, scores["hf_subset"])
            score = scores["main_score"]
            if score is None or not math.isfinite(score):
                raise ModelError(
                    f"mteb gives no {metric} on {result.task_name} {name}: the score is {score}, which happens "
                    "when all texts have the same vector; examine the model with `limbeck inspect`."
                )
            yield name, float(score)
