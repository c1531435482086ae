"""`PadCollator`: batches of token rows, padded to the longest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from limbeck.core import IGNORED_LABEL
from limbeck.core.kinds import LabelKind
from limbeck.corpus.batches.batch import GROUPS, LABELS, OF_TEACHER, SKIPPED
from limbeck.corpus.tokens.reading import PROMPT, TEACHER_IDS
from limbeck.errors import CorpusError, suggestion


@dataclass(frozen=True)
class PadCollator:
    """Pads a batch of B rows to its longest, L tokens.

    Rows are grouped by length when the batches are drawn, so that little or nothing is padded here. Groups of rows, as
    `GroupedRows` has them, become the rows of one batch, with the number of each one's group. Token types are
    padded where the rows have them: a block of text is one segment, and not every model knows them.

    | `labels` | a row's `labels` | in the batch |
    |---|---|---|
    | `"none"` | not read | absent |
    | `"token"` | as many as tokens | int64 `[B, L]`, padded with -100 |
    | `"class"` | a whole number | int64 `[B]` |
    | `"classes"` | 1 or 0 for each class | float32 `[B, classes]` |
    | `"value"`, `"relevance"` | a number | float32 `[B]` |
    | `"span"` | first and last token of an answer | int64 `[B, 2]`, counted in the padded row; -100 stays |

    Args:
        pad_token_id: Id that fills the room.
        side: Where the padding goes, `"right"` or `"left"`.
        multiple_of: Round L up to a multiple of this; 8 suits GPUs.
        labels: Kind of the rows' labels.

    Raises:
        CorpusError: if `side` or `labels` is none of these, there is no padding id, or `multiple_of` is not positive.
    """

    pad_token_id: int | None
    side: str = "right"
    multiple_of: int = 1
    labels: LabelKind = "none"

    def __post_init__(self) -> None:
        if self.side not in ("right", "left"):
            raise CorpusError(f"Unknown padding side '{self.side}'.{suggestion(self.side, ('right', 'left'))}")
        if self.pad_token_id is None:
            raise CorpusError("The tokenizer has no padding token: set one, for example its eos token.")
        if self.multiple_of < 1:
            raise CorpusError(f"multiple_of is {self.multiple_of}: give 1 or more.")
        if self.labels not in get_args(LabelKind):
            raise CorpusError(f"Unknown kind of labels '{self.labels}'.{suggestion(self.labels, get_args(LabelKind))}")

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Return the columns of a batch, see `limbeck.corpus.batches.batch.Batch`.

        They are `input_ids` and `attention_mask`, int64 `[B, L]`; `token_type_ids`, the same; `labels`; and `groups`.
        Of rows with prompts `skipped` are the first tokens that a pooling may leave out, int64 `[B]`. Rows that the
        teacher reads otherwise have its inputs too, with the prefix `teacher_`; then `skipped` is the teacher's alone.

        Args:
            features: Rows with `input_ids`; `token_type_ids` where all of them have it; `labels` as announced. Or
                groups of such rows, each the `documents` of a query; the batch then has `groups`, int64 `[B]`.

        Raises:
            CorpusError: if labels were announced and a row has none, or not as many as tokens.
        """
        groups = None
        if "documents" in features[0]:
            groups = np.repeat(np.arange(len(features)), [len(feature["documents"]) for feature in features])
            features = [row for feature in features for row in feature["documents"]]

        rows, lengths, valid = self._lay_out(features, "input_ids")
        batch = {"input_ids": _fill(rows, valid, self.pad_token_id), "attention_mask": valid.astype(np.int64)}
        prompted = ""  # Prefix of the side that reads the prompts.
        if TEACHER_IDS in features[0]:
            prompted = OF_TEACHER
            teacher_rows, _, teacher_valid = self._lay_out(features, TEACHER_IDS)
            batch[TEACHER_IDS] = _fill(teacher_rows, teacher_valid, self.pad_token_id)
            batch[f"{OF_TEACHER}attention_mask"] = teacher_valid.astype(np.int64)
        if PROMPT in features[0]:
            batch[prompted + SKIPPED] = np.array([feature[PROMPT] for feature in features], dtype=np.int64)
        if "token_type_ids" in features[0]:
            types = [np.asarray(feature["token_type_ids"], dtype=np.int64) for feature in features]
            batch["token_type_ids"] = _fill(types, valid, 0)
        if self.labels != "none":
            batch[LABELS] = self._collate_labels(features, lengths, valid)
        if groups is not None:
            batch[GROUPS] = groups
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _lay_out(
        self, features: Sequence[Mapping[str, Any]], name: str
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.int64], NDArray[np.bool_]]:
        """Return the ids of each row, their number `[B, 1]`, and the places that they fill `[B, L]`."""
        rows = [np.asarray(feature[name], dtype=np.int64) for feature in features]
        lengths = np.array([len(row) for row in rows])[:, None]
        width = -(-int(lengths.max()) // self.multiple_of) * self.multiple_of
        columns = np.arange(width)[None, :]
        return rows, lengths, columns < lengths if self.side == "right" else columns >= width - lengths

    def _collate_labels(
        self, features: Sequence[Mapping[str, Any]], lengths: NDArray[np.int64], valid: NDArray[np.bool_]
    ) -> NDArray[Any]:
        if not all("labels" in feature for feature in features):
            raise CorpusError(f"A row has no labels, but this batch needs labels of the kind '{self.labels}'.")
        labels_by_row = [feature["labels"] for feature in features]
        if self.labels == "token":
            rows = [np.asarray(labels, dtype=np.int64) for labels in labels_by_row]
            if [len(row) for row in rows] != lengths[:, 0].tolist():
                raise CorpusError(
                    "A row has different numbers of labels and tokens: with labels='token' every token has a label."
                )
            return _fill(rows, valid, IGNORED_LABEL)
        if self.labels in ("value", "classes", "relevance"):
            return np.asarray(labels_by_row, dtype=np.float32)
        labels = np.asarray(labels_by_row, dtype=np.int64)
        if self.labels == "span" and self.side == "left":
            labels = np.where(labels == IGNORED_LABEL, labels, labels + valid.shape[1] - lengths)
        return labels


def _fill(rows: Sequence[NDArray[np.int64]], valid: NDArray[np.bool_], filler: int | None) -> NDArray[np.int64]:
    """Lay the rows into the places that are valid, `[B, L]`."""
    filled = np.full(valid.shape, filler, dtype=np.int64)
    filled[valid] = np.concatenate(rows)
    return filled
