"""Rows of a task to tokens, in an Arrow file that all cells and processes read; answers from the scores of tokens."""

import inspect
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from datasets import Dataset
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.core.files import build_once, fingerprint
from limbeck.corpus.answers import AnswerWindow, AnswerWindows, Question
from limbeck.corpus.batches import LABELS_OF_TASK, PadCollator
from limbeck.corpus.documents import SourceReport
from limbeck.corpus.labelled import NO_ANSWER, TOKEN_TYPES, Example, SequenceEncoder
from limbeck.errors import CorpusError
from limbeck.evaluation.cell import Cell, Point, SimilarityPoint, TrainingPoint
from limbeck.evaluation.task_files import TRAIN
from limbeck.evaluation.tasks import AnswerPrediction, Predictions, Task, TaskData, TaskKind, TaskRow

Item = TypeVar("Item")
_ROWS_AT_ONCE = 500
_DRAW = 0
"""Seed of the draw of rows: the same for every cell, so that all seeds see the same rows."""


def drawn(rows: Sequence[Item], most: int | None) -> Sequence[Item]:
    """Return so many rows, drawn once for all and in their own order; all of them where there are no more."""
    if most is None or len(rows) <= most:
        return rows
    return [rows[index] for index in sorted(random.Random(_DRAW).sample(range(len(rows)), most))]


def encode_rows(
    rows: Sequence[TaskRow], task: Task, tokenizer: Any, point: TrainingPoint, path: Path, *, training: bool
) -> SourceReport:
    """Write the tokens of rows, or of the windows of questions, to an Arrow stream.

    Columns: `input_ids`, `token_type_ids` where known, `length`; `labels` to train on (of a window the first and last
    token of the answer); else of windows `row`, `first` and `offsets`, which answers are decoded by.

    Args:
        rows: All single, or all pairs.
        task: Its kind decides the columns and the type of the labels.
        tokenizer: Of the model; not changed.
        point: Most tokens of a row (the longer text of a pair is cut first), and tokens that windows share.
        path: The file.
        training: Write labels, and leave out questions whose answer has no place.

    Returns:
        Rows that were cut or left out.

    Raises:
        CorpusError: if no token fits between the special ones, or the tokenizer is slow where windows are needed.
    """
    report = SourceReport()
    if task.kind == "question_answering":
        decoding = {"row": pa.string(), "first": pa.int32(), "offsets": pa.list_(pa.int32())}
        more = {"labels": pa.list_(pa.int32(), 2)} if training else decoding
        cutter = AnswerWindows(tokenizer, point.length, point.stride)
    else:
        more = {"labels": pa.float32() if task.kind == "regression" else pa.int64()} if training else {}
        encoder = SequenceEncoder(tokenizer, point.length, paired=rows[0].pair is not None)

    def encode(part: Sequence[TaskRow]) -> dict[str, Any]:
        if task.kind != "question_answering":
            encoded = encoder.encode([Example(row.text, row.pair, row.label or 0) for row in part], report)
            return {"input_ids": encoded.input_ids, TOKEN_TYPES: encoded.token_type_ids, "labels": encoded.labels}
        windows = cut_rows(cutter, part, report, training=training)
        names = ("input_ids", TOKEN_TYPES, "row", "first")
        found: dict[str, Any] = {name: [getattr(window, name) for window in windows] for name in names}
        offsets = [window.offsets.ravel() for window in windows]
        return found | {"labels": [list(window.label) for window in windows], "offsets": offsets}

    types = {TOKEN_TYPES: pa.list_(pa.int8())} if TOKEN_TYPES in tokenizer.model_input_names else {}
    schema = pa.schema({"input_ids": pa.list_(pa.int32()), "length": pa.int32(), **types, **more})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            batch = encode(rows[start : start + _ROWS_AT_ONCE])
            batch["length"] = [len(ids) for ids in batch["input_ids"]]
            writer.write_batch(pa.record_batch([pa.array(batch[field.name], field.type) for field in schema], schema))
    return report


def cut_rows(
    windows: AnswerWindows, rows: Sequence[TaskRow], report: SourceReport, *, training: bool = False
) -> list[AnswerWindow]:
    """Return the windows of every row, in order.

    Args:
        windows: Cuts them.
        rows: Questions and contexts.
        report: Receives questions that were cut, and rows that were left out.
        training: Label the windows with the first answer, and leave out a row whose answer its context does not hold or
            that has no token. Else every row keeps its windows, and no label is looked for.
    """
    questions = []
    for row in rows:
        answer = None
        if training and row.answers:
            start = row.answer_starts[0]
            answer = (start, start + len(row.answers[0])) if start >= 0 else NO_ANSWER
        questions.append(Question(row.id, row.pair or "", row.text, answer))
    return windows.cut(questions, report, "answer without a place in its context's tokens, row left out")


def open_columns(path: Path) -> Dataset:
    """Open the columns of a file of tokens, mapped into memory."""
    return Dataset.from_file(str(path)).with_format("numpy")


def decode_answers(
    windows: Sequence[AnswerWindow],
    start_scores: Sequence[ArrayLike],
    end_scores: Sequence[ArrayLike],
    contexts: Mapping[str, str],
    *,
    n_best: int = 20,
    max_answer_tokens: int = 30,
    answerable_only: bool = True,
) -> dict[str, AnswerPrediction]:
    """Return the best answer of each question.

    In each window the `n_best` best starts and the `n_best` best ends among the context's tokens are paired; a pair
    counts if it does not end before it starts and is not too long. The best pair of all windows is the answer. The
    score of no answer is the lowest, over the windows, of the first token's start and end scores added.

    Args:
        windows: As `AnswerWindows` cuts them.
        start_scores: Per window a score of each of its tokens, `[tokens]`; what stands after them (padding) is passed
            over.
        end_scores: Likewise.
        contexts: Row id to context.
        n_best: Starts and ends that are paired. Where no pair of theirs counts, all are.
        max_answer_tokens: Most tokens of an answer.
        answerable_only: Every question has an answer: the null odds are then 0, which no threshold is below.

    Returns:
        Row id to answer, in the order of the windows; empty with infinite null odds if the context has no token.

    Source: BERT (arXiv 1810.04805, sections 4.2 and 4.3).
    """
    best: dict[str, tuple[float, str]] = {}
    null: dict[str, float] = {}
    for window, starts, ends in zip(windows, start_scores, end_scores, strict=True):
        of_starts, of_ends = np.asarray(starts, dtype=np.float64), np.asarray(ends, dtype=np.float64)
        score, place = best_span(window, of_starts, of_ends, n_best=n_best, max_answer_tokens=max_answer_tokens)
        if window.row not in best or score > best[window.row][0]:  # A score that is no number stays one.
            best[window.row] = score, contexts[window.row][place].strip()
        null[window.row] = min(null.get(window.row, math.inf), float(of_starts[0] + of_ends[0]))
    return {
        row: AnswerPrediction(text, 0.0 if answerable_only else null[row] - score)
        for row, (score, text) in best.items()
    }


def best_span(
    window: AnswerWindow,
    start_scores: NDArray[np.float64],
    end_scores: NDArray[np.float64],
    *,
    n_best: int,
    max_answer_tokens: int,
) -> tuple[float, slice]:
    """Return the score of a window's best answer, and its characters; minus infinity if no token can be one.

    Args:
        window: The window.
        start_scores: Score of each token, `[tokens]`.
        end_scores: Likewise.
        n_best: Starts and ends that are paired; where no pair of theirs counts, all are.
        max_answer_tokens: Most tokens of an answer.
    """
    tokens = slice(window.first, window.first + len(window.offsets))
    starts, ends = start_scores[tokens], end_scores[tokens]
    for count in (n_best, len(starts)):
        # The places of the highest scores, the highest first; of equals the earlier.
        first, last = (np.argsort(-scores, kind="stable")[:count] for scores in (starts, ends))
        counts = (first[:, None] <= last) & (last - first[:, None] < max_answer_tokens)
        # Some tokenizers have tokens of no characters.
        counts &= window.offsets[first, 0][:, None] < window.offsets[last, 1]
        if counts.any():
            scores: Any = np.where(counts, starts[first][:, None] + ends[last], -np.inf)
            row, column = np.unravel_index(scores.argmax(), scores.shape)
            place = slice(int(window.offsets[first[row], 0]), int(window.offsets[last[column], 1]))
            return float(scores[row, column]), place
    return -math.inf, slice(0)


class TaskCollator:
    """Pads rows to the longest of their batch and names their labels as the model does.

    Questions are always padded on the right, so that the places of tokens in a row and in a batch agree.

    Args:
        model: Whether it knows segments.
        tokenizer: Whose padding token and side are used.
        kind: Of the task.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any, kind: TaskKind) -> None:
        self._spans = kind == "question_answering"
        side = "right" if self._spans else tokenizer.padding_side
        self._labelled = PadCollator(tokenizer.pad_token_id, side=side, labels=LABELS_OF_TASK[kind])
        self._unlabelled = PadCollator(tokenizer.pad_token_id, side=side)
        segments = getattr(model.config, "type_vocab_size", 2) >= 2
        self._segments = segments and TOKEN_TYPES in inspect.signature(model.forward).parameters

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch; `labels`, or `start_positions` and `end_positions`, where the rows are labelled."""
        batch = (self._labelled if "labels" in rows[0] else self._unlabelled)(rows)
        if not self._segments:
            batch.pop(TOKEN_TYPES, None)
        if self._spans and "labels" in batch:
            spans = batch.pop("labels")
            batch |= {"start_positions": spans[:, 0], "end_positions": spans[:, 1]}
        return batch


TOKEN_FORMAT = 2
"""Raise it when the same rows would give other tokens, or other files: older ones are then made anew."""


class TokenKeys(NamedTuple):
    """Fingerprints of what tokens are made of.

    Attributes:
        tokenizer: The tokenizer.
        rows: All rows of the task.
        training_set: The rows that it is trained on, which may be another task's too.
    """

    tokenizer: str
    rows: str
    training_set: str


@dataclass(frozen=True)
class PreparedTask:
    """Rows and tokens of a task for its cells; it can be sent to another process.

    Attributes:
        task: The task.
        rows: The rows of every split that is scored or predicted.
        train_rows: Number of rows to train on.
        train_folder: Holds the file of tokens to train on, for all tasks that are trained on them; None where nothing
            is trained.
        folder: Holds a file of tokens for each split of `rows`; None where nothing is trained.
        notes: Rows cut or left out on the way to tokens, for the user to read.
    """

    task: Task
    rows: Mapping[str, Sequence[TaskRow]]
    train_rows: int = 0
    train_folder: Path | None = None
    folder: Path | None = None
    notes: tuple[str, ...] = ()

    def tokens(self, split: str) -> Path:
        """Return the file of a split's tokens; of those to train on, for `"train"`."""
        assert self.folder is not None and self.train_folder is not None, f"{self.task.name} has no tokens"
        return self.train_folder / _file(0) if split == TRAIN else self.folder / _file([*self.rows].index(split))

    def decode(self, split: str, start_scores: Sequence[ArrayLike], end_scores: Sequence[ArrayLike]) -> Predictions:
        """Return the answers of a split, see `decode_answers`."""
        columns = open_columns(self.tokens(split)).select_columns(["row", "first", "offsets"]).with_format(None)
        windows = []
        for item in columns:
            offsets = np.array(item["offsets"], np.int64).reshape(-1, 2)
            windows.append(AnswerWindow(item["row"], [], None, item["first"], offsets, (0, 0)))
        contexts = {row.id: row.text for row in self.rows[split]}
        answerable = self.task.answerable_only
        return decode_answers(windows, start_scores, end_scores, contexts, answerable_only=answerable)


class PreparedCell(NamedTuple):
    """A cell and its task's rows and tokens."""

    cell: Cell
    task: PreparedTask


def prepare(data: TaskData, point: Point, tokenizer: Any, *, keys: TokenKeys, cache_dir: Path) -> PreparedTask:
    """Draw the rows that a grid point asks for, and encode them unless that was done before.

    Args:
        data: All rows of the task.
        point: Any of its grid points: all of them have the same length and draw the same rows.
        tokenizer: Of the model.
        keys: Of tokenizer and rows.
        cache_dir: Root of the cache of tokens.

    Raises:
        CorpusError: if the task has no rows to train on, or they cannot be encoded.
    """
    task = data.task
    # A leaderboard takes whole splits only, so none is predicted where rows are drawn.
    left_out = {TRAIN, *(task.predicted if point.max_scored_rows is not None else ())}
    rows = {
        split: drawn(found, point.max_scored_rows)
        for split, found in data.splits.items()
        if split not in left_out and found
    }
    if isinstance(point, SimilarityPoint):
        return PreparedTask(task, rows)
    if not data.splits.get(TRAIN):
        raise CorpusError(f"{task.title} has no rows to train on ({task.train}); give --data a folder that has them.")
    train = drawn(data.splits[TRAIN], point.max_train_rows)
    choices, root = [TOKEN_FORMAT, keys.tokenizer, point.length, point.stride], cache_dir / "evaluation"
    train_key = fingerprint([*choices, keys.training_set, point.max_train_rows])
    rows_key = fingerprint([*choices, keys.rows, point.max_scored_rows, list(rows)])
    notes = _encode_splits({TRAIN: train}, task, tokenizer, point, root / train_key)
    notes += _encode_splits(rows, task, tokenizer, point, root / rows_key)
    return PreparedTask(task, rows, len(train), root / train_key, root / rows_key, tuple(notes))


def _encode_splits(
    splits: Mapping[str, Sequence[TaskRow]], task: Task, tokenizer: Any, point: TrainingPoint, folder: Path
) -> list[str]:
    """Write a file for each split unless they are there, and return the notes on them."""

    def build(aside: Path) -> dict[str, Any]:
        reports = []
        for number, (split, rows) in enumerate(splits.items()):
            path = aside / _file(number)
            reports.append(encode_rows(rows, task, tokenizer, point, path, training=split == TRAIN).to_dict())
        return {"reports": reports}

    reports = build_once(folder, build)["reports"]
    return [
        f"{task.title} {split}: {line}"
        for split, report in zip(splits, reports, strict=True)
        for line in SourceReport.from_dict(report).lines()
    ]


def _file(number: int) -> str:
    return f"{number:02d}.arrow"
