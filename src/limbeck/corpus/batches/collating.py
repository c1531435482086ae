"""`PadCollator`: a batch of token rows as tensors, padded to the longest row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from limbeck.core.kinds import LabelKind
from limbeck.corpus.batches.batch import GROUPS, LABELS, SKIPPED
from limbeck.corpus.batches.collated_labels import LABEL_COLLATORS
from limbeck.corpus.batches.padding import PaddedLayout, lay_out
from limbeck.corpus.text.text_keys import TEXT_KEY
from limbeck.corpus.tokens.encoded_rows import OF_TEACHER, TOKEN_TYPES
from limbeck.corpus.tokens.reading import PROMPT, TEACHER_IDS, TEACHER_PROMPT
from limbeck.errors import CorpusError, suggestion

_SIDES = ("right", "left")
_TOKEN_TYPE_OF_PADDING = 0


@dataclass(frozen=True)
class PadCollator:
    """Pads a batch of B rows to its longest, L tokens.

    Rows are grouped by length when the batches are drawn, so that little is padded here. The rows of several groups
    (see `GroupedRows`) become one batch, with the number of each row's group. Token types (the segments of BERT) are
    only in the batch if the rows have them, since not every model reads them.

    | `labels` | a row's `labels` | in the batch |
    |---|---|---|
    | `"none"` | not read | absent |
    | `"token"` | as many as tokens | int64 `[B, L]`, padded with -100 |
    | `"class"` | a whole number | int64 `[B]` |
    | `"classes"` | 1 or 0 for each class | float32 `[B, classes]` |
    | `"value"`, `"relevance"` | a number | float32 `[B]` |
    | `"span"` | first and last token of an answer | int64 `[B, 2]`, counted in the padded row; -100 stays |

    Args:
        pad_token_id: Id of the padding; of the student where the teacher has another tokenizer.
        side: Where the padding goes, `"right"` or `"left"`.
        multiple_of: Round L up to a multiple of this; 8 suits GPUs.
        labels: Kind of the rows' labels.
        teacher_pad_token_id: Id of the teacher's padding, where it has another tokenizer; None where both share one.

    Raises:
        CorpusError: if `side` or `labels` is unknown, there is no padding id, or `multiple_of` is not positive.
    """

    pad_token_id: int | None
    side: str = "right"
    multiple_of: int = 1
    labels: LabelKind = "none"
    teacher_pad_token_id: int | None = None

    def __post_init__(self) -> None:
        if self.side not in _SIDES:
            raise CorpusError(f"Unknown padding side '{self.side}'.{suggestion(self.side, _SIDES)}")
        if self.pad_token_id is None:
            raise CorpusError(
                "The tokenizer has no padding token, which batches need: set its pad_token, for example to its "
                "eos_token."
            )
        if self.multiple_of < 1:
            raise CorpusError(f"multiple_of is {self.multiple_of}: give 1 or more.")
        if self.labels not in LABEL_COLLATORS:
            raise CorpusError(f"Unknown kind of labels '{self.labels}'.{suggestion(self.labels, LABEL_COLLATORS)}")

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Return the columns of a batch, see `limbeck.corpus.batches.batch.Batch`.

        They are `input_ids`, `attention_mask` and perhaps `token_type_ids`, int64 `[B, L]`, and `labels`. Rows with a
        prompt have `skipped` too, int64 `[B]`: the number of its tokens, which pooling leaves out. If the teacher reads
        other tokens than the student, its inputs have the prefix `teacher_`, and `skipped` is an input of the teacher.
        Rows with the key of their text have `text_key`, int64 `[B]`.

        Args:
            features: Rows with `input_ids`, with `labels` unless their kind is `"none"`, and perhaps with
                `token_type_ids`, which all rows or none must have. Or groups of such rows, each with the rows of a
                query as `documents`; the batch then has `groups`, int64 `[B]`.

        Raises:
            CorpusError: if a row has no labels where they are needed, or its labels are not as many as its tokens.
        """
        batch: dict[str, NDArray[Any]] = {}
        rows = features
        group_of_row = None
        if "documents" in features[0]:
            rows = [row for feature in features for row in feature["documents"]]
            rows_by_group = [len(feature["documents"]) for feature in features]
            group_of_row = np.repeat(np.arange(len(features)), rows_by_group)

        layout = self._add_inputs(batch, rows, prefix="", pad_token_id=self.pad_token_id)
        collate_labels = LABEL_COLLATORS[self.labels]
        if collate_labels is not None:
            batch[LABELS] = collate_labels(self._labels_of(rows), layout)

        has_teacher_ids = TEACHER_IDS in rows[0]
        if has_teacher_ids:
            pad_token_id = self.pad_token_id if self.teacher_pad_token_id is None else self.teacher_pad_token_id
            self._add_inputs(batch, rows, prefix=OF_TEACHER, pad_token_id=pad_token_id)

        # A teacher with a tokenizer of its own has the number of its prompt's tokens in `TEACHER_PROMPT`, and the
        # student has its own in `PROMPT`. A teacher that reads other tokens of the same tokenizer alone reads prompts,
        # so that `PROMPT` is of the teacher then.
        has_teacher_prompt = TEACHER_PROMPT in rows[0]
        if has_teacher_prompt:
            batch[f"{OF_TEACHER}{SKIPPED}"] = _numbers(rows, TEACHER_PROMPT)
        if PROMPT in rows[0]:
            only_teacher_reads_prompts = has_teacher_ids and not has_teacher_prompt
            reader = OF_TEACHER if only_teacher_reads_prompts else ""
            batch[f"{reader}{SKIPPED}"] = _numbers(rows, PROMPT)
        if TEXT_KEY in rows[0]:
            batch[TEXT_KEY] = _numbers(rows, TEXT_KEY)
        if group_of_row is not None:
            batch[GROUPS] = group_of_row
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _add_inputs(
        self,
        batch: dict[str, NDArray[Any]],
        rows: Sequence[Mapping[str, Any]],
        *,
        prefix: str,
        pad_token_id: int | None,
    ) -> PaddedLayout:
        """Add the ids, the attention mask and the segments of student or teacher to a batch, which is changed in place.

        Args:
            batch: The batch.
            rows: The rows of the batch.
            prefix: Prefix of the names in rows and batch: `OF_TEACHER` for the teacher, empty for the student.
            pad_token_id: Id of the padding of this side.

        Returns:
            The places of the tokens in the padded batch.
        """
        ids = _column(rows, f"{prefix}input_ids")
        layout = lay_out(ids, self.side, self.multiple_of)
        assert pad_token_id is not None
        batch[f"{prefix}input_ids"] = layout.fill(ids, pad_token_id)
        batch[f"{prefix}attention_mask"] = layout.is_filled.astype(np.int64)
        if f"{prefix}{TOKEN_TYPES}" in rows[0]:
            token_types = _column(rows, f"{prefix}{TOKEN_TYPES}")
            batch[f"{prefix}{TOKEN_TYPES}"] = layout.fill(token_types, _TOKEN_TYPE_OF_PADDING)
        return layout

    def _labels_of(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return the labels of all rows; refuse a row without them."""
        for row in rows:
            if LABELS not in row:
                raise CorpusError(
                    f"A row has no labels, but labels='{self.labels}' needs them in every row of a batch: give "
                    "every row 'labels', or leave the row out."
                )
        return [row[LABELS] for row in rows]


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[NDArray[np.int64]]:
    """Return a column with an array in each row."""
    return [np.asarray(row[name], dtype=np.int64) for row in rows]


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> NDArray[np.int64]:
    """Return a column with a number in each row, `[rows]`."""
    return np.array([row[name] for row in rows], dtype=np.int64)
