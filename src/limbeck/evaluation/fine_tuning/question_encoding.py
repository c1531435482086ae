"""Questions to windows of tokens in an Arrow file, with what their answers are decoded by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.corpus.documents import SourceReport
from limbeck.corpus.labelled import TOKEN_TYPES
from limbeck.evaluation.answers.windows import AnswerWindow, AnswerWindows
from limbeck.evaluation.fine_tuning.encoding import open_columns, write_columns
from limbeck.evaluation.tasks.task import TaskRow

_ROWS_AT_ONCE = 500


def encode_questions(
    rows: Sequence[TaskRow], tokenizer: Any, length: int, stride: int, path: Path, *, training: bool
) -> SourceReport:
    """Write the windows of questions to a file: `input_ids`, `token_type_ids` where known, `length`, and either
    `labels` (first and last token of the answer) or `row`, `first` and `offsets`.

    Args:
        rows: Questions and contexts.
        tokenizer: Of the model; a fast one.
        length: Most tokens of a window.
        stride: Tokens of the context that neighbouring windows share.
        path: The file.
        training: Whether to write labels, and to leave out questions whose answer has no place.

    Returns:
        Which questions were cut or left out.

    Raises:
        CorpusError: if the tokenizer is slow, or the windows have no room.
    """
    report = SourceReport()
    cutter = AnswerWindows(tokenizer, length, stride)
    fields = [("input_ids", pa.list_(pa.int32())), ("length", pa.int32())]
    if TOKEN_TYPES in tokenizer.model_input_names:
        fields.append((TOKEN_TYPES, pa.list_(pa.int8())))
    if training:
        fields.append(("labels", pa.list_(pa.int32(), 2)))
    else:
        fields += [("row", pa.string()), ("first", pa.int32()), ("offsets", pa.list_(pa.int32()))]

    def batches() -> Iterable[Mapping[str, Any]]:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            windows = cutter.cut(rows[start : start + _ROWS_AT_ONCE], report, training=training)
            yield {
                "input_ids": [window.input_ids for window in windows],
                TOKEN_TYPES: [window.token_type_ids for window in windows],
                "length": [len(window.input_ids) for window in windows],
                "labels": [list(window.label) for window in windows],
                "row": [window.row for window in windows],
                "first": [window.first for window in windows],
                "offsets": [window.offsets.ravel() for window in windows],
            }

    write_columns(path, pa.schema(fields), batches())
    return report


def read_windows(path: Path) -> list[AnswerWindow]:
    """Read the windows that answers are decoded in, without their tokens."""
    columns = open_columns(path).select_columns(["row", "first", "offsets"]).with_format(None)
    return [
        AnswerWindow(
            row=item["row"],
            input_ids=[],
            token_type_ids=None,
            first=item["first"],
            offsets=np.asarray(item["offsets"], dtype=np.int64).reshape(-1, 2),
            label=(0, 0),
        )
        for item in columns
    ]
