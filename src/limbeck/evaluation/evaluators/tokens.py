"""Rows of a task as tokens, in Arrow files that all cells and processes read, and their batches."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.core.blocks import counted
from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.corpus.batches.collating import PadCollator
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.splits import TRAIN
from limbeck.kinds.kind import Outputs
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import Predictions, Task, TaskData

if TYPE_CHECKING:
    from datasets import Dataset

TOKEN_FORMAT = 3
"""Raise it when the same rows would give other tokens, or other files: older ones are then made anew."""
_ROWS_AT_ONCE = 500


def encode_rows(
    rows: Sequence[LabelledRow],
    task: Task,
    tokenizer: Any,
    path: Path,
    *,
    length: int,
    stride: int,
    training: bool,
) -> SourceReport:
    """Write the tokens of rows, or of the windows of questions and sentences, to an Arrow stream.

    Columns: `input_ids`, `token_type_ids` where known, `length`; to train on `labels`, else the columns by which the
    kind decodes outputs.

    Args:
        rows: All single, or all pairs.
        task: Its kind decides the columns.
        tokenizer: Of the model; not changed.
        path: The file.
        length: Most tokens of a row; the longer text of a pair is cut first.
        stride: Tokens that windows share.
        training: Write labels, and leave out questions whose answer has no place.

    Returns:
        Rows that were cut or left out.

    Raises:
        CorpusError: if no token fits between the special ones, or the tokenizer is slow where windows are needed.
    """
    kind = KINDS[task.kind]
    encoder = kind.encoder(tokenizer, length, stride, paired=rows[0].pair is not None)
    fields = [pa.field("input_ids", pa.list_(pa.int32())), pa.field("length", pa.int32())]
    if TOKEN_TYPES in tokenizer.model_input_names:
        fields.append(pa.field(TOKEN_TYPES, pa.list_(pa.int8())))
    types = {"labels": kind.label_type} if training else kind.scoring_types
    fields += [pa.field(name, type_) for name, type_ in types.items()]
    schema = pa.schema(fields)

    report = SourceReport()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            if training:
                columns: dict[str, Any] = encoder.encode(part, report)._asdict()
            else:
                columns = kind.encode_for_scoring(encoder, part, report, start)
            columns["length"] = [len(ids) for ids in columns["input_ids"]]
            arrays = [pa.array(columns[field.name], field.type) for field in schema]
            writer.write_batch(pa.record_batch(arrays, schema))
    return report


def open_columns(path: Path) -> Dataset:
    """Open the columns of a file of tokens, mapped into memory."""
    from datasets import Dataset

    return Dataset.from_file(str(path)).with_format("numpy")


class TaskCollator:
    """Pads rows to the longest of their batch and names their labels as the model does.

    Padding stands on the right, whatever the tokenizer says: positions count from the left in many families, so that
    padding in front of a text would move them, and the scores of a row would depend on its batch.

    Args:
        model: Whether it knows segments.
        tokenizer: Whose padding token is used.
        kind: Name of the task's kind.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any, kind: str) -> None:
        self._kind = KINDS[kind]
        self._labelled = PadCollator(tokenizer.pad_token_id, labels=self._kind.facts.label)
        self._unlabelled = PadCollator(tokenizer.pad_token_id)
        has_segments = getattr(model.config, "type_vocab_size", 2) >= 2
        self._passes_segments = has_segments and TOKEN_TYPES in inspect.signature(model.forward).parameters

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch, with the labels of the model where the rows are labelled."""
        is_labelled = "labels" in rows[0]
        batch = self._labelled(rows) if is_labelled else self._unlabelled(rows)
        if not self._passes_segments:
            batch.pop(TOKEN_TYPES, None)
        if is_labelled:
            self._kind.model_labels(batch)
        return batch


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
        notes: Rows drawn, cut or left out on the way to tokens, for the user to read.
    """

    task: Task
    rows: Mapping[str, Sequence[LabelledRow]]
    train_rows: int = 0
    train_folder: Path | None = None
    folder: Path | None = None
    notes: tuple[str, ...] = ()

    def tokens(self, split: str) -> Path:
        """Return the file of a split's tokens; of those to train on, for `"train"`."""
        if split == TRAIN:
            folder = self.train_folder
            number = 0
        else:
            folder = self.folder
            number = list(self.rows).index(split)
        assert folder is not None, f"{self.task.name} has no tokens of '{split}'"
        return folder / _file_name(number)

    def count_tokens(self, split: str, length: int = 0) -> int:
        """Return the tokens of a split's rows or windows; where only texts are kept, `length` a row."""
        if self.folder is None:
            return length * len(self.rows[split])
        return _count_tokens(self.tokens(split))

    def decode(self, split: str, outputs: Outputs) -> Predictions:
        """Return the predictions that the outputs of a head stand for.

        Args:
            split: Whose rows were read.
            outputs: Of the head, a row (or window) each.
        """
        return KINDS[self.task.kind].decode(
            outputs, self.rows[split], self.task, lambda: open_columns(self.tokens(split))
        )


def select_split(prepared: PreparedTask) -> str | None:
    """Return the split that grid points and epochs are chosen on: the task's, else the first that is scored."""
    task = prepared.task
    if task.select in prepared.rows:
        return task.select
    return next(iter(task.scored), None)


def prepare(
    data: TaskData,
    tokenizer: Any,
    *,
    keys: TokenKeys,
    cache_dir: Path,
    length: int,
    stride: int,
    max_scored_rows: int | None,
    max_train_rows: int | None = None,
    training: bool = False,
    predicting: bool = True,
) -> PreparedTask:
    """Draw the rows that are asked for, and encode them unless that was done before.

    Args:
        data: All rows of the task.
        tokenizer: Of the model.
        keys: Of tokenizer and rows.
        cache_dir: Root of the cache of tokens.
        length: Most tokens of a row.
        stride: Tokens that windows share.
        max_scored_rows: Rows drawn of every split that is scored; None for all.
        max_train_rows: Rows drawn for training; None for all.
        training: Encode the rows to train on too.
        predicting: Encode unlabelled splits too, for leaderboards.

    Raises:
        CorpusError: if the task has no rows to train on, or they cannot be encoded.
    """
    task = data.task
    rows = draw_splits(data, max_scored_rows, predicting=predicting)
    notes = notes_of_draws(data, rows)
    key = [TOKEN_FORMAT, keys.tokenizer, length, stride]
    root = cache_dir / "evaluation"

    train: Sequence[LabelledRow] = ()
    train_folder: Path | None = None
    if training:
        if not data.splits.get(TRAIN):
            raise CorpusError(
                f"{task.title} has no rows to train on ({task.train}); give --data a folder that has some."
            )
        train = KINDS[task.kind].draw(data.splits[TRAIN], max_train_rows)
        notes = [*notes_of_draws(data, {TRAIN: train}), *notes]
        train_folder = root / fingerprint([*key, keys.training_set, max_train_rows])
        notes += _encode_splits({TRAIN: train}, task, tokenizer, train_folder, length=length, stride=stride)

    folder = root / fingerprint([*key, keys.rows, max_scored_rows, list(rows)])
    notes += _encode_splits(rows, task, tokenizer, folder, length=length, stride=stride)
    return PreparedTask(task, rows, len(train), train_folder, folder, tuple(notes))


def draw_splits(data: TaskData, most: int | None, *, predicting: bool = True) -> dict[str, Sequence[LabelledRow]]:
    """Return the rows of every split that is scored or predicted.

    Args:
        data: All rows of the task.
        most: Rows drawn of every split; None for all. Unlabelled splits are then left out, since a leaderboard takes
            whole splits only.
        predicting: Whether unlabelled splits are predicted.
    """
    task = data.task
    left_out = {TRAIN}
    if most is not None or not predicting:
        left_out |= set(task.predicted)
    kind = KINDS[task.kind]
    return {split: kind.draw(rows, most) for split, rows in data.splits.items() if rows and split not in left_out}


def notes_of_draws(data: TaskData, drawn: Mapping[str, Sequence[LabelledRow]]) -> list[str]:
    """Return a note for each split of which not all rows (or queries) were drawn.

    Args:
        data: All rows of the task.
        drawn: Those that were drawn, by split.
    """
    kind = KINDS[data.task.kind]
    notes = []
    for split, rows in drawn.items():
        used, noun = kind.count(rows)
        known, _ = kind.count(data.splits[split])
        if used < known:
            notes.append(f"{data.task.title} {split}: {used:,} of {counted(known, noun)}, drawn")
    return notes


def _encode_splits(
    splits: Mapping[str, Sequence[LabelledRow]],
    task: Task,
    tokenizer: Any,
    folder: Path,
    *,
    length: int,
    stride: int,
) -> Iterator[str]:
    """Write a file for each split unless they are there, and yield the notes on them."""

    def build(aside: Path) -> dict[str, Any]:
        reports = []
        for number, (split, rows) in enumerate(splits.items()):
            path = aside / _file_name(number)
            report = encode_rows(rows, task, tokenizer, path, length=length, stride=stride, training=split == TRAIN)
            reports.append(report.to_dict())
        return {"reports": reports}

    reports = build_once(folder, build)["reports"]
    for split, report in zip(splits, reports, strict=True):
        for line in SourceReport.from_dict(report).lines():
            yield f"{task.title} {split}: {line}"


@cache
def _count_tokens(path: Path) -> int:
    return int(pc.sum(open_columns(path).data.column("length")).as_py() or 0)


def _file_name(number: int) -> str:
    return f"{number:02d}.arrow"
