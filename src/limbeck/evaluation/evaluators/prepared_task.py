"""`PreparedTask`, a task with the rows that are drawn of each split, and their tokens.

Tokens are kept in the cache as files, one for each split. A split may be limited to a number of rows, which are then
*drawn* at random, always the same ones.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from limbeck.core.blocks import counted, plural
from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.evaluation.evaluators import token_files
from limbeck.evaluation.tasks.registry import DRAWN, TASKS
from limbeck.evaluation.tasks.repeated_rows import repeated_row_notes
from limbeck.evaluation.tasks.splits import TRAIN
from limbeck.kinds.kind import Outputs
from limbeck.kinds.ranking_scores import queries_of
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import Predictions, Task, TaskData

_CACHE = "evaluation"
"""Folder of tokens in the cache."""


TRAINING_COST = 3
"""Cost of a token that is trained on, in forward passes: the backward pass costs as much as two of them."""
_LETTERS_OF_A_TOKEN = 4
"""Letters of a token of English text, about."""


@dataclass(frozen=True)
class PreparedTask:
    """Rows and tokens of a task for its cells; it can be sent to another process.

    Attributes:
        task: The task.
        rows: The rows of every split that is scored or predicted.
        train_rows: Number of rows to train on.
        train_queries: How many queries these rows are of, in a ranking; None for other kinds.
        train_folder: Holds the file of tokens to train on, for all tasks that are trained on them; None where nothing
            is trained.
        folder: Holds a file of tokens for each split of `rows`; None where texts are compared by their vectors.
        notes: Rows drawn, cut or left out on the way to tokens, for the user to read.
    """

    task: Task
    rows: Mapping[str, Sequence[LabelledRow]]
    train_rows: int = 0
    train_queries: int | None = None
    train_folder: Path | None = None
    folder: Path | None = None
    notes: tuple[str, ...] = ()

    def queries(self, splits: Iterable[str]) -> dict[str, int] | None:
        """Return the number of queries of each split; None where the rows are not documents of queries."""
        if not KINDS[self.task.kind].facts.has_queries:
            return None
        return {split: len(queries_of(self.rows[split])) for split in splits}

    def amount(self, split: str) -> tuple[int, str]:
        """Return what a split has for progress to count, and its name in the plural: 60 `queries`, 500 `rows`.

        The head reads the pairs of a query, or the pieces of a long text.
        """
        number, noun = KINDS[self.task.kind].count(self.rows[split])
        return number, plural(noun)

    def tokens(self, split: str) -> Path:
        """Return the file of a split's tokens; the split `"train"` has the tokens to train on.

        The files of a folder are numbered in the order of its splits, as `_encode_splits` writes them.
        """
        if split == TRAIN:
            folder = self.train_folder
            number = 0  # It is the only split in its folder.
        else:
            folder = self.folder
            number = list(self.rows).index(split)
        assert folder is not None, f"{self.task.name} has no tokens of '{split}'"
        return folder / _name_of_file(number)

    def count_tokens(self, split: str, length: int = 0) -> int:
        """Return the number of tokens of a split, an estimate by the letters of its texts without files of tokens.

        Args:
            split: The split.
            length: Most tokens of a text, for the estimate.
        """
        if self.folder is None:
            return _estimate_tokens(self.rows[split], length)
        return _count_tokens(self.tokens(split))

    def decode(self, split: str, outputs: Outputs) -> Predictions:
        """Return the predictions that the outputs of a head stand for.

        Args:
            split: The split whose rows were read.
            outputs: The outputs of the head, with an array for each row or window.
        """
        kind = KINDS[self.task.kind]

        def open_tokens() -> Any:
            return token_files.open_columns(self.tokens(split))

        # Most kinds decode without the tokens, whose file is opened only by those that need it.
        return kind.decode(outputs, self.rows[split], self.task, open_tokens)


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


def prepare(
    data: TaskData,
    tokenizer: Any,
    *,
    keys: TokenKeys,
    cache_dir: Path,
    length: int,
    stride: int,
    max_scored_rows: int | None,
    positions: int | None = None,
    max_train_rows: int | None = None,
    training: bool = False,
    predicting: bool = True,
) -> PreparedTask:
    """Draw the rows that are asked for, and encode them unless that was done before.

    Args:
        data: All rows of the task.
        tokenizer: The tokenizer of the model.
        keys: Fingerprints of tokenizer and rows, which name the files in the cache.
        cache_dir: Root of the cache of tokens.
        length: Most tokens of a row.
        stride: Tokens that windows share.
        max_scored_rows: Rows drawn of every split that is scored; None for all.
        positions: Most tokens that the model reads; None where nothing limits them. Notes on cut rows name it.
        max_train_rows: Rows drawn for training; None for all.
        training: Encode the rows to train on too.
        predicting: Encode unlabelled splits too, for leaderboards.

    Raises:
        CorpusError: if the task has no rows to train on, or they cannot be encoded.
    """
    task = data.task
    notes: list[str] = []
    # What the tokens of all splits depend on. With the rows it gives the name of their folder.
    key = [token_files.TOKEN_FORMAT, keys.tokenizer, length, stride]
    root = cache_dir / _CACHE

    # The rows to train on have a folder of their own, which tasks with the same training set share.
    train_rows: Sequence[LabelledRow] = ()
    train_folder: Path | None = None
    encoding_notes: list[str] = []
    if training:
        if not data.splits.get(TRAIN):
            raise CorpusError(
                f"{task.title} has no rows to train on (split '{task.train}'); give a folder that has this split "
                "as --data."
            )
        train_rows = KINDS[task.kind].draw(data.splits[TRAIN], max_train_rows)
        notes += notes_of_draws(data, {TRAIN: train_rows})
        train_folder = root / fingerprint([*key, keys.training_set, max_train_rows])
        encoding_notes += _encode_splits({TRAIN: train_rows}, task, tokenizer, train_folder, length, stride)

    rows = draw_splits(data, max_scored_rows, predicting=predicting)
    notes += notes_of_draws(data, rows)
    # What the splits of built-in tasks have in common is known, and scores are published with it.
    if training and task.name not in TASKS:
        # Unlabelled rows have no scores.
        scored_rows = {split: rows_of_split for split, rows_of_split in rows.items() if split not in task.predicted}
        notes += repeated_row_notes(task.title, train_rows, scored_rows)
    folder = root / fingerprint([*key, keys.rows, max_scored_rows, list(rows)])
    encoding_notes += _encode_splits(rows, task, tokenizer, folder, length, stride)
    train_queries = None
    if KINDS[task.kind].facts.has_queries:
        train_queries = len(queries_of(train_rows))
    return PreparedTask(
        task,
        rows,
        train_rows=len(train_rows),
        train_queries=train_queries,
        train_folder=train_folder,
        folder=folder,
        notes=(*notes, *_with_longer_lengths(encoding_notes, length, positions)),
    )


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
        left_out.update(task.predicted)
    kind = KINDS[task.kind]
    return {split: kind.draw(rows, most) for split, rows in data.splits.items() if rows and split not in left_out}


def notes_of_draws(data: TaskData, drawn: Mapping[str, Sequence[LabelledRow]]) -> list[str]:
    """Return a note for each split of which not all rows (or queries) were drawn.

    Args:
        data: All rows of the task.
        drawn: The rows that were drawn, by split.
    """
    kind = KINDS[data.task.kind]
    notes = []
    for split, rows in drawn.items():
        used, noun = kind.count(rows)
        known, _ = kind.count(data.splits[split])
        if used < known:
            # The size of a ranking has the number of its pairs in brackets, which is what the setting counts.
            _, bracket, pairs = kind.size(rows).partition(" (")
            notes.append(f"{data.task.title} {split}: {used:,} of {counted(known, noun)}{bracket}{pairs}, {DRAWN}")
    return notes


def select_split(task: Task, splits: Collection[str]) -> str | None:
    """Return the split that grid points and epochs are chosen on: the task's, else the first that is scored.

    Args:
        task: The task.
        splits: The splits that have rows.
    """
    if task.select in splits:
        return task.select
    return next(iter(task.scored), None)


def _encode_splits(
    splits: Mapping[str, Sequence[LabelledRow]], task: Task, tokenizer: Any, folder: Path, length: int, stride: int
) -> list[str]:
    """Write a file of tokens for each split, unless an earlier process has written them.

    Args:
        splits: Rows by split; files are numbered in this order.
        task: The task.
        tokenizer: The tokenizer.
        folder: Folder of the files, in the cache.
        length: Most tokens of a row or window.
        stride: Tokens that neighbouring windows share.

    Returns:
        Notes on rows that were cut or left out. They are saved with the files, so a later process has them too.
    """

    def write_files(unfinished_folder: Path) -> dict[str, Any]:
        """Write the files into a folder, and return what was cut or left out of each split."""
        reports = []
        for number, (split, rows) in enumerate(splits.items()):
            path = unfinished_folder / _name_of_file(number)
            report = token_files.encode_rows(
                rows, task, tokenizer, path, length=length, stride=stride, training=split == TRAIN
            )
            reports.append(report.to_dict())
        return {"reports": reports}

    # The manifest of the folder holds what `write_files` returned, in this process or in an earlier one.
    manifest = build_once(folder, write_files)
    notes: list[str] = []
    for split, report in zip(splits, manifest["reports"], strict=True):
        lines = SourceReport.from_dict(report).lines(of_pairs=KINDS[task.kind].facts.has_queries)
        notes += [f"{task.title} {split}: {line}" for line in lines]
    return notes


def _with_longer_lengths(notes: Sequence[str], length: int, positions: int | None) -> list[str]:
    """Return the notes, those on cut rows with the way to read more of them.

    Args:
        notes: The notes on rows that were cut or left out.
        length: Most tokens of a row.
        positions: Most tokens that the model reads; None where nothing limits them.
    """
    if positions is not None and length >= positions:
        return list(notes)
    most = "" if positions is None else f" (at most {positions})"
    lines = []
    for note in notes:
        if f" cut to {length} tokens" in note:
            note += f"; a greater length reads more of them, with --set length=N{most}"
        lines.append(note)
    return lines


@cache
def _count_tokens(path: Path) -> int:
    return int(pc.sum(token_files.open_columns(path).data.column("length")).as_py() or 0)


def _estimate_tokens(rows: Sequence[LabelledRow], length: int) -> int:
    """Estimate the tokens of rows whose texts are read one by one, each different text once.

    Args:
        rows: The rows.
        length: Most tokens of a text.
    """
    texts: set[str] = set()
    for row in rows:
        texts.add(row.text)
        texts.add(row.pair or "")
    # A single text has no second one, and a document of a retrieval may have no query.
    texts.discard("")
    return sum(min(length, len(text) // _LETTERS_OF_A_TOKEN + 1) for text in texts)


def _name_of_file(number: int) -> str:
    """Return the name of the file of a split, by its number among those of a folder."""
    return f"{number:02d}.arrow"
