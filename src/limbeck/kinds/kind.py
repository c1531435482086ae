"""`Kind`, the base class of kinds of tasks, such as classification or ranking.

A kind says how rows are read from a source, turned into tokens, trained on, predicted and scored. Its *facts*
(`limbeck.core.kinds.KindFacts`) are the part that is needed without torch, such as its head and the names of metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limbeck.core.blocks import counted_rows
from limbeck.core.intervals import Interval, each_of_resampled
from limbeck.core.kinds import KindFacts, kind_of
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.labelled_rows import Label, LabelledRow, without_surrogates
from limbeck.corpus.rows.row_kind import RowEncoder, RowReader
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import open_rows
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES
from limbeck.corpus.tokens.sequences import SequenceEncoder
from limbeck.kinds.beside_teacher import ClassFigures, Disagreements
from limbeck.kinds.corpus_rows import CorpusRows
from limbeck.kinds.drawing import draw
from limbeck.kinds.reading import RowSource, text_rows
from limbeck.kinds.task import Predictions, Submission, Task
from limbeck.kinds.usage import RUN_LOGITS, HeadUsage

Metric: TypeAlias = Callable[[Predictions, Sequence[LabelledRow], Task], float]
"""Scores the predictions of rows; NaN where the figure is undefined."""

Outputs: TypeAlias = Sequence[Sequence[NDArray[np.float32]]]
"""The outputs of a head, each with an array for every row: one output `logits`, `[classes]`; or for question answering
two, the scores of starts and of ends, `[tokens]`, with scores of padding at the end."""

Loss: TypeAlias = Callable[..., Any]
"""A loss for `compute_loss_func` of a `transformers.Trainer`."""


@dataclass(frozen=True)
class LabelTerm:
    """The loss by which a kind learns labels, or the teacher's scores.

    Attributes:
        objective: Name of the objective.
        rows: The rows of logits that it compares: labelled tokens, all rows of a sample, or all valid tokens.
        has_temperature: Whether the objective divides scores by a temperature.
    """

    objective: str
    rows: Literal["label", "sample", "token"] = "sample"
    has_temperature: bool = False


@dataclass(frozen=True)
class HeldOutScore:
    """A score of a model on held-out rows of a corpus.

    Attributes:
        metric: Name of the metric.
        value: The score; None where it is undefined.
    """

    metric: str
    value: float | None


@dataclass(frozen=True)
class HeldOutRows:
    """What is known of held-out rows beside their labels.

    Attributes:
        groups: For each prediction, the number of the sentence or the query that it belongs to; predictions of one
            group follow each other, `[predictions]`.
        classes: Names of the classes, in the order of the head's outputs; empty without classes.
    """

    groups: NDArray[np.int64]
    classes: tuple[str, ...] = ()


class Kind:
    """A kind of task. A new kind is a subclass in one file, and a row of `limbeck.core.kinds.KINDS`.

    Attributes:
        name: Name of the kind in recipes and task files.
        metrics: Name to metric, the default first.
        label_type: Type of stored labels.
        has_queries: Whether rows are documents of queries, which are read together.
        has_windows: Whether a long text becomes several overlapping windows.
        rows_of_words: Whether tables hold a word a line.
        chooses_thresholds: Whether thresholds of its classes can be chosen.
        scoring_types: Further columns of a file of tokens, by which outputs are decoded.
        held_out_metric: Name of the metric of `held_out_score`, by which held-out rows of a corpus are scored.
        scoring_version: Number of the rules by which outputs become scores. A new number lets finished cells of an
            evaluation, which older rules have scored, run again.
        usage: Example code of its head; the default prints the scores as they are.
    """

    name: str
    metrics: Mapping[str, Metric] = {}
    label_type: pa.DataType = pa.int64()
    has_queries: bool = False
    has_windows: bool = False
    rows_of_words: bool = False
    chooses_thresholds: bool = False
    scoring_types: Mapping[str, pa.DataType] = {}
    held_out_metric: str = ""
    scoring_version: int = 1
    usage: HeadUsage = HeadUsage(torch="print(output.logits)", onnx=RUN_LOGITS + "print(logits)")

    @property
    def facts(self) -> KindFacts:
        """The facts of the kind, from the table `limbeck.core.kinds.KINDS`."""
        return kind_of(self.name)

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs of its head."""
        return self.facts.outputs

    def check_source(self, source: RowSource) -> None:
        """Refuse a source whose rows cannot be read, before any is.

        Raises:
            CorpusError: where class names are needed and missing.
        """
        if self.facts.has_classes:
            _ = source.numbers  # It raises without class names.

    def read(self, row: PlacedRow, source: RowSource) -> Sequence[LabelledRow]:
        """Return the labelled rows of one row of a source; none where it is left out, which the source notes.

        The default reads a text or a pair with a label, see `read_label`.

        Args:
            row: The row.
            source: Names the columns, and decides what becomes of rows that cannot be used.

        Raises:
            CorpusError: for a row without a column or a label, or a label that is none of the task's.
        """
        columns = source.columns
        needed = [columns.text]
        if columns.pair is not None:
            needed.append(columns.pair)
        if not source.labelled:
            source.require(row, needed)
            return text_rows(row, source, label=None)

        needed += columns.label_columns or [columns.label]
        source.require(row, needed)
        label = self.read_label(row, source)
        if label is None:
            return []
        return text_rows(row, source, label)

    def looks_ahead(self, source: RowSource) -> bool:
        """Whether all rows of a source have to be looked at before the first can be read."""
        return False

    def look_ahead(self, rows: Iterable[PlacedRow], source: RowSource) -> None:
        """Decide by all rows of a source how they are read; the decision is noted in the source."""

    def read_label(self, row: PlacedRow, source: RowSource) -> Label | None:
        """Return the label of a text or a pair; None leaves the row out.

        Raises:
            CorpusError: for a missing label, or one that is none of the task's.
        """
        raise NotImplementedError

    def reader(self, settings: LabelledSettings) -> RowReader:
        """Return the function that reads the rows of a corpus.

        Args:
            settings: Columns and class names.

        Raises:
            CorpusError: for settings that no row can meet; the function raises as `read`.
        """
        source = CorpusRows(settings, SourceReport())
        self.check_source(source)
        # Some kinds look at all rows before the first is read. They do it only when it is read, since a corpus that is
        # in the cache, or on the Hub while a recipe is checked, is not read at all.
        must_look_ahead = settings.rows is None and self.looks_ahead(source)

        def read(row: PlacedRow, report: SourceReport) -> Sequence[LabelledRow]:
            nonlocal must_look_ahead
            if must_look_ahead:
                must_look_ahead = False
                self.look_ahead(self._rows_of_sources(settings), source)
            source.report = report  # A corpus is read in parts, each with its own report.
            return self.read(row, source)

        return read

    def _rows_of_sources(self, settings: LabelledSettings) -> Iterator[PlacedRow]:
        """Iterate over the rows of all sources of a corpus as they are; what is skipped is reported elsewhere."""
        for name in settings.sources:
            yield from open_rows(name, settings.layout).rows(SourceReport(), of_words=self.rows_of_words)

    def for_training(self, row: LabelledRow, numbers: Sequence[int]) -> LabelledRow | None:
        """Return a row of a task as a corpus has it; None where it cannot be trained on.

        Args:
            row: The row.
            numbers: The teacher's number for each of the task's classes.
        """
        if row.label is None:
            return None
        label = self.renumber(row.label, numbers)
        text = without_surrogates(row.text)
        pair = None if row.pair is None else without_surrogates(row.pair)
        return LabelledRow(id="", text=text, pair=pair, label=label)

    def renumber(self, label: Label, numbers: Sequence[int]) -> Label:
        """Return a label with other numbers of the classes.

        Args:
            label: The label by the task's numbers.
            numbers: The other number of each of the task's classes; empty where there are no classes.
        """
        return label

    def content(self, row: LabelledRow) -> list[Any]:
        """Return the values of a row by which evaluations are known to be of the same rows."""
        values = asdict(row)
        # Earlier versions had no ids: without them, rows keep the hashes that they had.
        if row.ids is None:
            del values["ids"]
        return list(values.values())

    def arrange(self, rows: Sequence[LabelledRow], report: SourceReport) -> Sequence[LabelledRow]:
        """Return the rows of a split in the order in which they are scored; by default that of the source.

        Args:
            rows: The rows of the split, as they were read.
            report: Receives notes on rows that are left out.
        """
        return rows

    def draw(self, rows: Sequence[LabelledRow], most: int | None) -> Sequence[LabelledRow]:
        """Return at most a number of rows of a split, the same for every model and seed.

        Args:
            rows: The rows of the split.
            most: Largest number of them; None for all.
        """
        return draw(rows, most)

    def count(self, rows: Sequence[LabelledRow]) -> tuple[int, str]:
        """Return how many things a draw counts, and their name."""
        return len(rows), "row"

    def size(self, rows: Sequence[LabelledRow]) -> str:
        """Return the number of rows in words."""
        return counted_rows(len(rows))

    def plain_text(self, text: str) -> str:
        """Return the text of a row for people to read."""
        return text

    def encoder(self, tokenizer: Any, length: int, stride: int, *, paired: bool) -> RowEncoder:
        """Return what turns rows into tokens and labels.

        Args:
            tokenizer: A `transformers` tokenizer; not changed.
            length: Most tokens of a row or window.
            stride: Tokens that neighbouring windows share.
            paired: Whether rows have two texts.

        Raises:
            CorpusError: if no token fits between the special ones, or the tokenizer is slow where words or answers
                have to be found.
        """
        return SequenceEncoder(tokenizer, length, paired)

    def encode_for_scoring(
        self, encoder: Any, rows: Sequence[LabelledRow], report: SourceReport, first: int
    ) -> dict[str, Any]:
        """Return the tokens of rows that are scored, by column: `input_ids`, `token_type_ids` and `scoring_types`.

        Args:
            encoder: The encoder that `encoder` returned.
            rows: The rows; labels are not read.
            report: Receives notes on rows that were cut.
            first: Number of the first row in its split.
        """
        encoded = encoder.encode(rows, report)
        return {"input_ids": encoded.input_ids, TOKEN_TYPES: encoded.token_type_ids}

    def model_labels(self, batch: dict[str, Any]) -> None:
        """Replace `labels` in a batch, in place, by the arguments that models of this kind take."""

    def set_up_head(self, config: Any, labels: Sequence[str]) -> None:
        """Set the head's outputs in a configuration, in place.

        Args:
            config: The configuration of the model that is fine-tuned.
            labels: The class names of the task.
        """
        if self.facts.has_classes:
            config.num_labels = len(labels)
            config.id2label = dict(enumerate(labels))
            config.label2id = {label: number for number, label in enumerate(labels)}
        if self.facts.problem_type is not None:
            config.problem_type = self.facts.problem_type

    def loss(self, weights: Sequence[float] | None) -> Loss | None:
        """Return the loss of a fine-tuning; None leaves it to the model.

        Args:
            weights: The weights of the classes; None for none.
        """
        return None

    def decode(
        self, outputs: Outputs, rows: Sequence[LabelledRow], task: Task, tokens: Callable[[], Any]
    ) -> Predictions:
        """Return the predictions that the outputs of a head stand for.

        Args:
            outputs: The outputs of the head, for each row or window.
            rows: The rows that are predicted.
            task: The task of the rows.
            tokens: Opens the tokens of the rows, with the columns of `scoring_types`.
        """
        raise NotImplementedError

    def check_labelled(self, rows: Sequence[LabelledRow]) -> bool:
        """Whether rows have what they are scored by."""
        return all(row.label is not None for row in rows)

    def check_predictions(self, predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> None:
        """Refuse predictions that are not as many as rows.

        Raises:
            ValueError: saying how many there are.
        """
        if isinstance(predictions, Mapping):
            raise ValueError(f"predictions of {task.title} must be a list with one for each row")
        if len(predictions) != len(rows):
            raise ValueError(f"{len(predictions)} predictions for {len(rows)} rows of {task.title}")

    def more_figures(self, predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
        """Return further figures by name; a figure with the name of a metric is taken for that metric."""
        return {}

    def interval(
        self, metric: str, value: float, task: Task, rows: Sequence[LabelledRow], predictions: Predictions
    ) -> Interval | None:
        """Return the 95 % interval of a score over rows; None for a metric that has none.

        Args:
            metric: Name of the metric.
            value: The score.
            task: The task of the rows.
            rows: The rows with their labels.
            predictions: The predictions of the rows.
        """
        return None

    def chance(self, rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
        """Return the scores at chance by metric, see `limbeck.kinds.chance_scores`; metrics without one have 0.

        Args:
            rows: The rows with their labels.
            task: The task of the rows.
        """
        return {}

    def only_answer(self, predictions: Predictions, task: Task) -> str | None:
        """Return the one answer that all rows are given, in words; None where there are several, or one row."""
        return None

    def words(self, prediction: Any, row: LabelledRow, task: Task) -> str:
        """Return a prediction, or a label, in words."""
        raise NotImplementedError

    def label_words(self, row: LabelledRow, task: Task) -> str:
        """Return the label of a row in words."""
        return self.words(row.label, row, task)

    def class_figures(
        self, rows: Sequence[LabelledRow], predictions: Sequence[Predictions], task: Task
    ) -> ClassFigures | None:
        """Return figures of each class; None where there are none.

        Args:
            rows: The rows with their labels.
            predictions: The student's, and the teacher's where there are any.
            task: The task of the rows.
        """
        return None

    def disagreements(
        self,
        rows: Sequence[LabelledRow],
        predictions: tuple[Predictions, Predictions],
        outputs: tuple[Outputs, Outputs],
        task: Task,
    ) -> Disagreements | None:
        """Return how far student and teacher are apart on each row; None where that means nothing.

        Args:
            rows: The rows.
            predictions: The student's and the teacher's, in this order.
            outputs: The outputs of their heads, in the same order.
            task: The task of the rows.
        """
        return None

    def submitted(self, prediction: Any, task: Task, submission: Submission | None) -> str:
        """Return a prediction as a leaderboard's file has it.

        Args:
            prediction: The prediction of one row.
            task: The task of the row.
            submission: The leaderboard's file; None where the task names none.
        """
        raise NotImplementedError

    def held_out_labels(self, batch: dict[str, Any]) -> Any:
        """Remove the labels from a batch of held-out rows, in place, and return them.

        If only some tokens are scored, `scored` is added to the batch: whether each token is scored, `[B, L]`.
        """
        return batch.pop("labels")

    def held_out_predictions(self, logits: Any) -> Any:
        """Return what a head predicts of held-out rows, in the form of their labels.

        Args:
            logits: `[rows, outputs]`, a `torch.Tensor`.
        """
        raise NotImplementedError

    def held_out_score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float | None:
        """Return `held_out_metric` of predictions; None where it is undefined.

        Args:
            predicted: The predictions that `held_out_predictions` returned.
            labels: The labels in the same form.
        """
        # The mean is taken in float32, as in the records of all earlier versions.
        is_right = predicted == labels
        return float(np.mean(is_right, dtype=np.float32))

    def held_out_groups(self, rows: Sequence[Mapping[str, Any]], batch: Mapping[str, Any], first: int) -> Any:
        """Return the number of the group of each prediction; by default each row is a group by itself.

        Args:
            rows: The token rows of a batch.
            batch: The batch that was made of them, without labels.
            first: Number of the first row.
        """
        return np.arange(first, first + len(rows))

    def held_out_scores(
        self, predicted: NDArray[Any], labels: NDArray[Any], rows: HeldOutRows
    ) -> Sequence[HeldOutScore]:
        """Return the scores of predictions by their labels, the main one first; by default `held_out_score` alone.

        Args:
            predicted: The predictions that `held_out_predictions` returned.
            labels: The labels in the same form.
            rows: The groups and the classes of the predictions.
        """
        return [HeldOutScore(self.held_out_metric, self.held_out_score(predicted, labels))]

    def held_out_chance(self, labels: NDArray[Any], rows: HeldOutRows) -> dict[str, float]:
        """Return the scores at chance by metric on the held-out rows of a run, as far as they are known.

        Args:
            labels: The labels of the rows.
            rows: The groups and the classes of the rows.
        """
        return {}

    def held_out_agreement(self, student: NDArray[Any], teacher: NDArray[Any], rows: HeldOutRows) -> HeldOutScore:
        """Return the agreement of two models: the student's main score with the teacher's predictions as labels.

        Args:
            student: The student's predictions.
            teacher: The teacher's.
            rows: The groups and the classes of the predictions.
        """
        return self.held_out_scores(student, teacher, rows)[0]

    def held_out_intervals(
        self, predicted: NDArray[Any], labels: NDArray[Any], rows: HeldOutRows
    ) -> dict[str, Interval]:
        """Return the 95 % intervals of `held_out_scores` by metric; scores that are undefined have none.

        The arguments are those of `held_out_scores`. Groups are drawn with replacement, since the predictions of a
        sentence or of a query are not independent.
        """

        def scores_of(predicted: NDArray[Any], labels: NDArray[Any], rows: HeldOutRows) -> Sequence[HeldOutScore]:
            return self.held_out_scores(predicted, labels, rows)

        return _intervals_of_groups(scores_of, predicted, labels, rows)

    def held_out_agreement_interval(
        self, student: NDArray[Any], teacher: NDArray[Any], rows: HeldOutRows
    ) -> Interval | None:
        """Return the 95 % interval of `held_out_agreement`, over groups; None where the agreement is undefined."""

        def agreement_of(student: NDArray[Any], teacher: NDArray[Any], rows: HeldOutRows) -> Sequence[HeldOutScore]:
            return [self.held_out_agreement(student, teacher, rows)]

        intervals = _intervals_of_groups(agreement_of, student, teacher, rows)
        return next(iter(intervals.values()), None)

    def hard_label(self) -> LabelTerm | None:
        """Return the loss of labels; None where a student does not learn from labels."""
        return None

    def soft_label(self) -> LabelTerm:
        """Return the loss of the teacher's scores."""
        raise NotImplementedError


def _intervals_of_groups(
    score: Callable[[NDArray[Any], NDArray[Any], HeldOutRows], Sequence[HeldOutScore]],
    predicted: NDArray[Any],
    labels: NDArray[Any],
    rows: HeldOutRows,
) -> dict[str, Interval]:
    """Return the bootstrap's intervals of scores over the groups of predictions, by metric.

    Args:
        score: Scores predictions by labels.
        predicted: The predictions.
        labels: The labels, or the teacher's predictions.
        rows: The groups and the classes of the predictions.
    """
    slices = slices_of(rows.groups)
    # A single group is every draw.
    if len(slices) < 2:
        return {}
    indices_of_groups = [np.arange(group.start, group.stop) for group in slices]

    def scores_of(draw: Sequence[int]) -> dict[str, float]:
        indices = np.concatenate([indices_of_groups[group] for group in draw])
        # A group that is drawn twice counts as two.
        sizes = [len(indices_of_groups[group]) for group in draw]
        groups = np.repeat(np.arange(len(draw)), sizes)
        scores = score(predicted[indices], labels[indices], HeldOutRows(groups, rows.classes))
        return {each.metric: math.nan if each.value is None else each.value for each in scores}

    return each_of_resampled(scores_of, len(slices))


def slices_of(groups: NDArray[np.int64]) -> list[slice]:
    """Return a slice of the predictions for each group: neighbours with the same number are of one group.

    Args:
        groups: The number of the group of each prediction, `[predictions]`.
    """
    first_of_further_groups = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    bounds = [0, *first_of_further_groups.tolist(), len(groups)]
    return [slice(start, end) for start, end in pairwise(bounds)]
