"""Batches of token rows: grouped by length, their tokens masked or replaced, padded to the longest of the batch."""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from limbeck.core import IGNORED_LABEL
from limbeck.core.kinds import KINDS, LabelKind
from limbeck.errors import CorpusError, suggestion

_BATCHES_SORTED_TOGETHER = 50
_MASKED, _RANDOM = 0.8, 0.1  # Of the chosen positions; the rest stays.
_WORD_STARTS = ("Ġ", "▁")
_ENOUGH_WORDS = 32


def group_by_length(
    order: NDArray[np.int64], lengths: NDArray[np.int64], batch_size: int, generator: np.random.Generator
) -> list[NDArray[Any]]:
    """Cut a random order of rows into batches of similar length, and put these into a random order.

    Args:
        order: Indices of rows, shuffled; fifty batches at a time are sorted by length.
        lengths: Length of every row.
        batch_size: Rows of a batch.
        generator: Decides the order of the batches.

    Returns:
        The indices of each batch; a last one that is not full stays last.
    """
    group = batch_size * _BATCHES_SORTED_TOGETHER
    batches: list[NDArray[Any]] = []
    for start in range(0, len(order), group):
        part = order[start : start + group]
        part = part[np.argsort(-lengths[part], kind="stable")]
        batches.extend(np.split(part, range(batch_size, len(part), batch_size)))
    # In the middle a batch that is not full would shift the bounds of all others.
    full = [batch for batch in batches if len(batch) == batch_size]
    rest = [batch for batch in batches if len(batch) < batch_size]
    return [*(full[index] for index in generator.permutation(len(full))), *rest]


def mask_id_of(tokenizer: Any) -> int:
    """Return the id of the mask token.

    Args:
        tokenizer: A `transformers` tokenizer.

    Raises:
        CorpusError: if it has no mask token.
    """
    mask_id: int | None = tokenizer.mask_token_id
    if mask_id is None:
        raise CorpusError(
            f"The tokenizer ({type(tokenizer).__name__}) has no mask token: choose a method without masked language "
            f"modelling, or a teacher that was trained with it."
        )
    return mask_id


def word_ids(tokenizer: Any) -> NDArray[np.int64]:
    """Ids of the tokens that are whole words of letters; all but the special tokens where there are too few.

    Args:
        tokenizer: A `transformers` tokenizer: WordPiece, byte-level BPE or SentencePiece.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    special = set(tokenizer.all_special_ids)
    marked = any(token.startswith(_WORD_STARTS) for token in vocabulary)
    words = [
        index
        for token, index in vocabulary.items()
        if index not in special
        and (token.startswith(_WORD_STARTS) if marked else not token.startswith("##"))
        and len(letters := token.lstrip("".join(_WORD_STARTS))) > 1
        and letters.isalpha()
    ]
    if len(words) < _ENOUGH_WORDS:
        words = [index for index in vocabulary.values() if index not in special]
    return np.asarray(sorted(words), dtype=np.int64)


QUERY = "query"
"""Column of a ranking corpus: a number for the query of each row."""
PROMPT = "prompt"
"""Column of a corpus with prompts: tokens of a row's prompt, with the special ones before it; 0 without one."""
TEACHER_IDS, TEACHER_MASK = "teacher_input_ids", "teacher_attention_mask"
"""Column of a corpus whose prompts the teacher alone reads: its `input_ids`, the student's being without them."""
SKIPPED = "skipped"
"""Key of a batch: how many first tokens of each row are not pooled."""


class GroupedRows(Dataset[dict[str, Any]]):
    """The rows of a ranking corpus, a query's documents together: as many items as queries.

    A row is a pair of a query and a document, and consecutive rows of the same query are one group. A query with more
    documents than fit becomes several groups, of nearly equal size.

    Args:
        rows: Pairs as token rows, read by number; or some of them changed, as `ReplacedTokens`.
        table: The same rows unchanged, with the column `QUERY`.
        most: Most documents of a group.

    Attributes:
        bounds: Where each group begins, and where the last one ends.
    """

    def __init__(self, rows: Any, table: Any, most: int) -> None:
        self._rows = rows
        queries = np.asarray(table.with_format("numpy")[QUERY][:])
        starts = np.append(0, np.flatnonzero(queries[1:] != queries[:-1]) + 1)[: len(queries)]
        sizes = np.diff([*starts, len(queries)])
        parts = -(-sizes // most)
        # The i-th of p parts of a group begins at i · size / p.
        index = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        begin = np.repeat(starts, parts) + index * np.repeat(sizes, parts) // np.repeat(parts, parts)
        self.bounds = np.append(begin, len(queries))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, key: Any) -> Any:
        """Return a group; by the name of a column, the largest value in each group, as `length` is needed."""
        if isinstance(key, str):
            return np.maximum.reduceat(np.asarray(self._rows[key][:]), self.bounds[:-1])
        return self.__getitems__([key])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several groups at once, as data loaders do."""
        ranges = [range(self.bounds[index], self.bounds[index + 1]) for index in indices]
        read = iter(self._rows.__getitems__([number for numbers in ranges for number in numbers]))
        return [{"documents": [next(read) for _ in numbers]} for numbers in ranges]

    def padding_share(self, order: Sequence[int], batch_size: int) -> float:
        """Return the share of padding in batches of so many groups, in the given order, from 0 to below 1."""
        longest, sizes = self["length"], np.diff(self.bounds)
        batches = (order[start : start + batch_size] for start in range(0, len(order), batch_size))
        padded = sum(int(longest[batch].max() * sizes[batch].sum()) for batch in map(list, batches))
        return 1 - int(np.sum(self._rows["length"][:])) / padded if padded else 0.0


class _ChangedTokens(Dataset[dict[str, Any]]):
    """Token blocks of which a share of the tokens is changed as they are read, each block always in the same way.

    A change is a function of the block's tokens and the seed, not of the order of reading: a resumed run meets the same
    text. Columns read by name are those of the wrapped blocks, unchanged.
    """

    _verb: str
    _change: Callable[..., dict[str, Any]]

    def __init__(
        self, blocks: Any, share: float, *, words: NDArray[np.int64], special: Iterable[int], seed: int
    ) -> None:
        if not 0 < share <= 1:
            raise CorpusError(f"The share of {self._verb} tokens is {share}: give a number above 0, up to 1.")
        self._blocks = blocks
        self._share = share
        self._words = words
        self._special = np.asarray(sorted(special), dtype=np.int64)
        self._seed = seed

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, key: Any) -> Any:
        return self._blocks[key] if isinstance(key, str) else self._change(self._blocks[key])

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several rows at once, as data loaders do."""
        return [self._change(row) for row in self._blocks.__getitems__(list(indices))]

    def _choose(
        self, row: Mapping[str, Any], *more_seeds: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], np.random.Generator]:
        """Return a copy of a row's ids, those chosen to be changed, and the generator for the change."""
        ids = np.array(row["input_ids"], dtype=np.int64)
        generator = np.random.default_rng([self._seed, *more_seeds, zlib.crc32(ids.tobytes())])
        chosen = (generator.random(len(ids)) < self._share) & ~np.isin(ids, self._special)
        if TEACHER_IDS not in row:
            chosen[: row.get(PROMPT, 0)] = False
        return ids, chosen, generator


class MaskedTokens(_ChangedTokens):
    """A data set of token blocks with masked tokens and their `labels`, int64, as long as `input_ids`.

    Every token that is not special is chosen with the same chance. Of the chosen ones 80 % become the mask token,
    10 % a random token and 10 % stay; `labels` has their ids, and -100 at all other positions. A block that is short
    may have none.

    The masks are a function of the block's tokens, the seed and the epoch, not of the order of reading: a resumed run
    meets the same masks. Columns read by name are those of the wrapped blocks, without masks.

    Around `ReplacedTokens` the labels are the replaced ids: the teacher reads what is also to be predicted.

    Args:
        blocks: Rows with `input_ids`, read by number; other columns are passed on.
        share: Chance of each token that is not special to be chosen, above 0 up to 1; BERT has 0.15.
        mask_id: Id of the mask token; see `mask_id_of`.
        words: Ids to draw random tokens from, all equally likely; see `word_ids`.
        special: Ids that are never chosen; the mask token is one of them anyway.
        seed: Decides the masks; 0 or more.

    Raises:
        CorpusError: if the share is out of range, there is no word, or the blocks have labels already.

    Source:
        BERT (arXiv 1810.04805, section 3.1) for the shares; RoBERTa (arXiv 1907.11692, section 4.1) for masking anew
        every time. Nearest alternative: `ReplacedTokens`, which changes the text and asks for no prediction.
    """

    _verb = "masked"

    def __init__(
        self, blocks: Any, share: float, *, mask_id: int, words: NDArray[np.int64], special: Sequence[int], seed: int
    ) -> None:
        super().__init__(blocks, share, words=words, special={*special, mask_id}, seed=seed)
        if len(words) == 0:
            raise CorpusError("There are no words to draw random tokens from: give at least one token id.")
        self._mask_id = mask_id
        # In shared memory: worker processes of a data loader that outlive the epoch see it change.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the masks of this epoch, 0 or more; it is 0 until said otherwise, as held-out blocks need it."""
        self._epoch.fill_(epoch)

    def mask(self, row: Mapping[str, Any], epoch: int | None = None) -> dict[str, Any]:
        """Mask one row, whether it is of this data set or not.

        Args:
            row: The row.
            epoch: How often it was read before; that of the data set by default.

        Raises:
            CorpusError: if the row has labels.
        """
        if "labels" in row:
            raise CorpusError("Labelled rows cannot be masked as well: leave out either the masking or the task.")
        ids, chosen, generator = self._choose(row, int(self._epoch) if epoch is None else epoch)
        labels = np.where(chosen, ids, IGNORED_LABEL)
        fate = generator.random(len(ids))
        ids[chosen & (fate < _MASKED)] = self._mask_id
        replaced = chosen & (fate >= _MASKED) & (fate < _MASKED + _RANDOM)
        ids[replaced] = generator.choice(self._words, int(replaced.sum()))
        return {**row, "input_ids": ids, "labels": labels}

    _change = mask


class ReplacedTokens(_ChangedTokens):
    """A data set of token blocks in which a share of the tokens is replaced by random words.

    So a narrow corpus reaches the whole vocabulary. Distillation needs no labels: teacher and student read the same
    changed text, and the teacher's answer to it is as good a target as to any other.

    The replacements are a function of the block's tokens and the seed, not of the order of reading: a resumed run meets
    the same text.

    Args:
        blocks: Rows with `input_ids`; also the columns of the data set by name.
        share: Chance of each token that is not special to be replaced, above 0 up to 1.
        words: Ids to draw from, all equally likely; see `word_ids`.
        special: Ids that stay as they are.
        seed: Decides the replacements.

    Raises:
        CorpusError: if the share is out of range.

    Source:
        Replacing words of the training text is TinyBERT's data augmentation (arXiv 1909.10351, section 3.2), which
        picks likely words by a language model; here all words are equally likely, to reach those that the text lacks.
    """

    _verb = "replaced"

    def replace(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Replace tokens of one row, whether it is of this data set or not."""
        ids, chosen, generator = self._choose(row)
        before = ids.copy()
        ids[chosen] = generator.choice(self._words, int(chosen.sum()))
        if TEACHER_IDS not in row:
            return {**row, "input_ids": ids}
        teacher = np.array(row[TEACHER_IDS], dtype=np.int64)
        shared = _shared_end(before, teacher)  # A tokenizer may join the end of a prompt with what follows it.
        teacher[len(teacher) - shared :] = ids[len(ids) - shared :]
        return {**row, "input_ids": ids, TEACHER_IDS: teacher}

    _change = replace


def _shared_end(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Return how many ids at their ends are the same."""
    shorter = min(len(one), len(other))
    differs = np.flatnonzero(one[len(one) - shorter :] != other[len(other) - shorter :])
    return shorter - (int(differs[-1]) + 1 if len(differs) else 0)


LABELS_OF_TASK: Mapping[str, LabelKind] = {name: kind.label for name, kind in KINDS.items()}
"""Kind of the labels that the rows of a task have."""


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
        """Return `input_ids` and `attention_mask`, int64 `[B, L]`; `token_type_ids`, the same; `labels`; and `groups`.

        Of rows with prompts `skipped` are the first tokens that a pooling may leave out, int64 `[B]`; where prompts are
        the teacher's alone, `teacher_input_ids` and `teacher_attention_mask` are what it reads.

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
        if TEACHER_IDS in features[0]:
            theirs, _, places = self._lay_out(features, TEACHER_IDS)
            batch[TEACHER_IDS] = _fill(theirs, places, self.pad_token_id)
            batch[TEACHER_MASK] = places.astype(np.int64)
        if PROMPT in features[0]:
            batch[SKIPPED] = np.array([feature[PROMPT] for feature in features], dtype=np.int64)
        if "token_type_ids" in features[0]:
            types = [np.asarray(feature["token_type_ids"], dtype=np.int64) for feature in features]
            batch["token_type_ids"] = _fill(types, valid, 0)
        if self.labels != "none":
            batch["labels"] = self._collate_labels(features, lengths, valid)
        if groups is not None:
            batch["groups"] = groups
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
        given = [feature["labels"] for feature in features]
        if self.labels == "token":
            rows = [np.asarray(labels, dtype=np.int64) for labels in given]
            if [len(row) for row in rows] != lengths[:, 0].tolist():
                raise CorpusError(
                    "A row has different numbers of labels and tokens: with labels='token' every token has a label."
                )
            return _fill(rows, valid, IGNORED_LABEL)
        if self.labels in ("value", "classes", "relevance"):
            return np.asarray(given, dtype=np.float32)
        labels = np.asarray(given, dtype=np.int64)
        if self.labels == "span" and self.side == "left":
            labels = np.where(labels == IGNORED_LABEL, labels, labels + valid.shape[1] - lengths)
        return labels


def _fill(rows: Sequence[NDArray[np.int64]], valid: NDArray[np.bool_], filler: int | None) -> NDArray[np.int64]:
    """Lay the rows into the places that are valid, `[B, L]`."""
    filled = np.full(valid.shape, filler, dtype=np.int64)
    filled[valid] = np.concatenate(rows)
    return filled


def padding_share(lengths: Sequence[int], batch_size: int) -> float:
    """Return the share of padding in batches made of `lengths` in the given order, from 0 to below 1."""
    real = sum(lengths)
    batches = (lengths[start : start + batch_size] for start in range(0, len(lengths), batch_size))
    padded = sum(max(batch) * len(batch) for batch in batches)
    return 1 - real / padded if padded else 0.0
