"""Rows of a task to tokens, in an Arrow file that all cells and processes read; answers from the scores of tokens."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.core.blocks import counted
from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.core.kinds import KINDS
from limbeck.corpus.answers import AnswerWindow, AnswerWindows, Question
from limbeck.corpus.collating import LABELS_OF_TASK, PadCollator
from limbeck.corpus.labelled import NO_ANSWER, TOKEN_TYPES, WORD_GAP, Example, SequenceEncoder, WordEncoder
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tags import OUTSIDE
from limbeck.errors import CorpusError
from limbeck.evaluation.cell import AsIsPoint, Cell, Point, SimilarityPoint, TrainingPoint
from limbeck.evaluation.task_files import TRAIN
from limbeck.evaluation.tasks import AnswerPrediction, Predictions, Task, TaskData, TaskKind, TaskRow, queries_of

if TYPE_CHECKING:
    from datasets import Dataset

Item = TypeVar("Item")
_ROWS_AT_ONCE = 500
_DRAW = 0
"""Seed of the draw of rows: the same for every cell, so that all seeds see the same rows."""


def drawn(rows: Sequence[Item], most: int | None) -> Sequence[Item]:
    """Return so many rows, drawn once for all and in their own order; all of them where there are no more."""
    if most is None or len(rows) <= most:
        return rows
    return [rows[index] for index in sorted(random.Random(_DRAW).sample(range(len(rows)), most))]


def drawn_rows(rows: Sequence[TaskRow], task: Task, most: int | None) -> Sequence[TaskRow]:
    """Return so many rows as `drawn` does; of a ranking whole queries, as far as they have no more rows.

    Of a retrieval so many queries are looked for, in all documents.
    """
    if most is None or not KINDS[task.kind].has_queries or len(rows) <= most:
        return drawn(rows, most)
    if KINDS[task.kind].of_vectors:  # All documents stay, since fewer would be easier to search.
        kept = set(drawn(list(dict.fromkeys(row.keys[0] for row in rows if row.text)), most))
        return [row if row.keys[0] in kept else _without_query(row) for row in rows]
    queries = queries_of(rows)
    random.Random(_DRAW).shuffle(queries)
    sizes = accumulate(query.stop - query.start for query in queries)
    chosen = [query for query, size in zip(queries, sizes, strict=True) if size <= most] or queries[:1]
    return [row for query in sorted(chosen, key=lambda query: query.start) for row in rows[query]]


def _without_query(row: TaskRow) -> TaskRow:
    return replace(row, text="", label=0.0, ids=None if row.ids is None else ("", row.ids[1]))


def encode_rows(
    rows: Sequence[TaskRow], task: Task, tokenizer: Any, point: TrainingPoint | AsIsPoint, path: Path, *, training: bool
) -> SourceReport:
    """Write the tokens of rows, or of the windows of questions, to an Arrow stream.

    Columns: `input_ids`, `token_type_ids` where known, `length`; `labels` to train on (of a window the first and last
    token of the answer, of tagged words a class or -100 for each token); else of windows `row`, `first` and `offsets`,
    which answers are decoded by, or `row` and `words`, see `decode_tags`.

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
    report, kind = SourceReport(), KINDS[task.kind]
    if kind.has_answers:
        decoding = {"row": pa.string(), "first": pa.int32(), "offsets": pa.list_(pa.int32())}
        more = {"labels": pa.list_(pa.int32(), 2)} if training else decoding
        cutter = AnswerWindows(tokenizer, point.length, point.stride)
    elif kind.of_words:
        parts = {"row": pa.int64(), "words": pa.list_(pa.int32())}
        more = {"labels": pa.list_(pa.int64())} if training else parts
        word_encoder = WordEncoder(tokenizer, point.length)
    else:
        of_row = pa.list_(pa.float32()) if kind.has_several else pa.float32() if kind.has_value else pa.int64()
        more = {"labels": of_row} if training else {}
        encoder = SequenceEncoder(tokenizer, point.length, paired=rows[0].pair is not None)

    def encode(start: int) -> dict[str, Any]:
        part = rows[start : start + _ROWS_AT_ONCE]
        if kind.of_words:
            sentences = [Example(row.text, None, row.label or ()) for row in part]
            if training:
                return word_encoder.encode(sentences, report)._asdict()
            cut = word_encoder.windows([sentence.text for sentence in sentences], report)
            of_parts = {name: [getattr(one, name) for one in cut] for name in ("input_ids", TOKEN_TYPES, "words")}
            return of_parts | {"row": [start + one.sentence for one in cut]}
        if not kind.has_answers:
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
            batch = encode(start)
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
    return windows.cut(questions, report, "answer that none of its context's tokens cover, row left out")


def open_columns(path: Path) -> Dataset:
    """Open the columns of a file of tokens, mapped into memory."""
    from datasets import Dataset

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


def decode_tags(
    rows: Sequence[TaskRow], of_windows: Iterable[tuple[int, Sequence[int]]], scores: Sequence[ArrayLike], missing: int
) -> list[list[int]]:
    """Return the class of each word: the best of its first token's.

    Args:
        rows: Sentences.
        of_windows: Of each window the number of its row, and of each of its tokens the word that it is the first of, or
            -1.
        scores: Per window a score of each class for each of its tokens, `[tokens, classes]`; what stands after them
            (padding) is skipped.
        missing: The class of words without a token.
    """
    found = [[missing] * (row.text.count(WORD_GAP) + 1) for row in rows]
    for (row, words), of_tokens in zip(of_windows, scores, strict=True):
        best = np.asarray(of_tokens).argmax(-1)
        for token, word in enumerate(words):
            if word >= 0:
                found[row][word] = int(best[token])
    return found


class TaskCollator:
    """Pads rows to the longest of their batch and names their labels as the model does.

    Questions and tagged words are always padded on the right, so that the places of tokens in a row and in a batch
    agree.

    Args:
        model: Whether it knows segments.
        tokenizer: Whose padding token and side are used.
        kind: Of the task.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any, kind: TaskKind) -> None:
        self._spans = KINDS[kind].has_answers
        side = "right" if KINDS[kind].of_tokens else tokenizer.padding_side
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
        folder: Holds a file of tokens for each split of `rows`; None where texts are compared by their vectors.
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
        folder, number = (self.train_folder, 0) if split == TRAIN else (self.folder, [*self.rows].index(split))
        assert folder is not None, f"{self.task.name} has no tokens of '{split}'"
        return folder / _file(number)

    def count_tokens(self, split: str, length: int = 0) -> int:
        """Return the tokens of a split's rows or windows; where only texts are kept, `length` a row."""
        if self.folder is None:
            return length * len(self.rows[split])
        return _count_tokens(self.tokens(split))

    def decode(self, split: str, *scores: Sequence[ArrayLike]) -> Predictions:
        """Return the answers of a split or the classes of its words, see `decode_answers` and `decode_tags`."""
        if KINDS[self.task.kind].of_words:
            items = open_columns(self.tokens(split)).select_columns(["row", "words"]).with_format(None)
            outside = self.task.labels.index(OUTSIDE) if OUTSIDE in self.task.labels else 0
            return decode_tags(self.rows[split], ((item["row"], item["words"]) for item in items), scores[0], outside)
        columns = open_columns(self.tokens(split)).select_columns(["row", "first", "offsets"]).with_format(None)
        windows = []
        for item in columns:
            offsets = np.array(item["offsets"], np.int64).reshape(-1, 2)
            windows.append(AnswerWindow(item["row"], [], None, item["first"], offsets, (0, 0)))
        contexts = {row.id: row.text for row in self.rows[split]}
        answerable = self.task.answerable_only
        return decode_answers(windows, scores[0], scores[1], contexts, answerable_only=answerable)


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
    unasked = isinstance(point, AsIsPoint) and task.scored and not point.predict
    left_out = {TRAIN, *(task.predicted if point.max_scored_rows is not None or unasked else ())}
    rows = {
        split: drawn_rows(found, task, point.max_scored_rows)
        for split, found in data.splits.items()
        if split not in left_out and found
    }
    notes = [note for split in rows for note in _note_of_draw(task, split, data.splits[split], rows[split])]
    if isinstance(point, SimilarityPoint):
        return PreparedTask(task, rows, notes=tuple(notes))
    choices, root = [TOKEN_FORMAT, keys.tokenizer, point.length, point.stride], cache_dir / "evaluation"
    train: Sequence[TaskRow] = ()
    train_folder: Path | None = None
    if isinstance(point, TrainingPoint):
        if not data.splits.get(TRAIN):
            raise CorpusError(
                f"{task.title} has no rows to train on ({task.train}); give --data a folder that has some."
            )
        train = drawn_rows(data.splits[TRAIN], task, point.max_train_rows)
        notes = [*_note_of_draw(task, TRAIN, data.splits[TRAIN], train), *notes]
        train_folder = root / fingerprint([*choices, keys.training_set, point.max_train_rows])
        notes += _encode_splits({TRAIN: train}, task, tokenizer, point, train_folder)
    folder = root / fingerprint([*choices, keys.rows, point.max_scored_rows, list(rows)])
    notes += _encode_splits(rows, task, tokenizer, point, folder)
    return PreparedTask(task, rows, len(train), train_folder, folder, tuple(notes))


def _note_of_draw(task: Task, split: str, every: Sequence[TaskRow], rows: Sequence[TaskRow]) -> Iterator[str]:
    """Say how many rows of a split were drawn, or queries of a retrieval, unless all were."""
    queries = KINDS[task.kind].of_vectors and KINDS[task.kind].has_queries
    scored, known = (
        len({row.keys[0] for row in found if row.text}) if queries else len(found) for found in (rows, every)
    )
    if scored < known:
        yield f"{task.title} {split}: {scored:,} of {counted(known, 'query' if queries else 'row')}, drawn"


def _encode_splits(
    splits: Mapping[str, Sequence[TaskRow]], task: Task, tokenizer: Any, point: TrainingPoint | AsIsPoint, folder: Path
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


@cache
def _count_tokens(path: Path) -> int:
    return int(pc.sum(open_columns(path).data.column("length")).as_py() or 0)


def _file(number: int) -> str:
    return f"{number:02d}.arrow"
