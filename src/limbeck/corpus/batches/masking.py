"""`MaskedTokens` and `ReplacedTokens`: token rows of which some tokens are changed as they are read."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from limbeck.core import IGNORED_LABEL
from limbeck.corpus.tokens.reading import PROMPT, TEACHER_IDS, TEACHER_PROMPT
from limbeck.errors import CorpusError

# Shares of the chosen tokens that become the mask, or a random token. The others stay as they are.
_MASKED = 0.8
_RANDOM = 0.1


class _ChosenTokens(NamedTuple):
    """The tokens of a row that are to be changed.

    Args:
        ids: A copy of all ids of the row.
        is_chosen: Whether each token is to be changed, `[tokens]`.
        generator: Random generator that decides how they are changed.
    """

    ids: NDArray[np.int64]
    is_chosen: NDArray[np.bool_]
    generator: np.random.Generator


class _ChangedTokens(Dataset[dict[str, Any]], ABC):
    """Token blocks of which a share of the tokens is changed when a block is read.

    The changes depend on the tokens of the block and the seed, and not on the order of reading, so that a run that
    resumes reads the same text. Columns that are read by name are those of the wrapped blocks, unchanged.
    """

    change: str
    """The change as a word for messages, such as `masked`."""

    def __init__(
        self, blocks: Any, share: float, *, words: NDArray[np.int64], special: Iterable[int], seed: int
    ) -> None:
        if not 0 < share <= 1:
            raise CorpusError(f"The share of {self.change} tokens is {share}: give a number above 0, up to 1.")
        self._blocks = blocks
        self._share = share
        self._words = words
        self._special = np.asarray(sorted(special), dtype=np.int64)
        self._seed = seed

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, key: Any) -> Any:
        """Return the row with a number, changed; or a column by its name, unchanged."""
        if isinstance(key, str):
            return self._blocks[key]
        return self.change_row(self._blocks[key])

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several rows at once, as data loaders do."""
        return [self.change_row(row) for row in self._blocks.__getitems__(list(indices))]

    @abstractmethod
    def change_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of a row with some tokens changed."""

    def _choose(self, row: Mapping[str, Any], *more_seeds: int) -> _ChosenTokens:
        """Choose the tokens of a row that are to be changed.

        Args:
            row: The row.
            more_seeds: Further numbers that decide the choice, such as the epoch.
        """
        ids = np.array(row["input_ids"], dtype=np.int64)
        generator = np.random.default_rng([self._seed, *more_seeds, zlib.crc32(ids.tobytes())])
        is_chosen = generator.random(len(ids)) < self._share
        is_chosen &= ~np.isin(ids, self._special)
        # A prompt is not changed. One that the teacher alone reads is not in `ids`, which the student reads.
        if PROMPT in row and not _only_teacher_reads_prompt(row):
            prompt_length = row[PROMPT]
            is_chosen[:prompt_length] = False
        return _ChosenTokens(ids, is_chosen, generator)

    def _with_ids(self, row: Mapping[str, Any], ids: NDArray[np.int64]) -> dict[str, Any]:
        """Return a copy of a row with other ids, also of its teacher where both sides read the same tokens."""
        # The teacher reads the student's ids if it has none of its own. If its ids are of another tokenizer, or of the
        # text that is translated, no token of the student corresponds to one of them: they stay as they are.
        if not _only_teacher_reads_prompt(row):
            return {**row, "input_ids": ids}
        # The teacher's ids have the prompt in front. A tokenizer may join the end of the prompt with the text, so the
        # common part of both is found from their ends.
        teacher_ids = np.array(row[TEACHER_IDS], dtype=np.int64)
        common_length = _common_length(np.asarray(row["input_ids"]), teacher_ids)
        teacher_ids[len(teacher_ids) - common_length :] = ids[len(ids) - common_length :]
        return {**row, "input_ids": ids, TEACHER_IDS: teacher_ids}


class MaskedTokens(_ChangedTokens):
    """A data set of token blocks with masked tokens and their `labels`, int64, as long as `input_ids`.

    Every token that is not special is chosen with the same probability. Of the chosen tokens 80 % become the mask
    token, 10 % become a random token, and 10 % stay. `labels` has the ids of the chosen tokens, and -100 for all
    others. In a short block it may happen that no token is chosen.

    The masks depend on the tokens of the block, the seed and the epoch, and not on the order of reading, so that a run
    that resumes has the same masks. Columns that are read by name are those of the wrapped blocks, without masks.

    If the wrapped blocks are `ReplacedTokens`, the labels are ids after the replacement.

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

    change = "masked"

    def __init__(
        self, blocks: Any, share: float, *, mask_id: int, words: NDArray[np.int64], special: Sequence[int], seed: int
    ) -> None:
        super().__init__(blocks, share, words=words, special={*special, mask_id}, seed=seed)
        if len(words) == 0:
            raise CorpusError("'words' is empty, so no random tokens can be drawn: give at least one token id.")
        self._mask_id = mask_id
        # The epoch is in shared memory, so that worker processes of a data loader see it change.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the masks of this epoch, 0 or more. Without a call, as for held-out blocks, the epoch is 0."""
        self._epoch.fill_(epoch)

    def change_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Mask one row in the epoch of the data set; see `mask`."""
        return self.mask(row, int(self._epoch))

    def mask(self, row: Mapping[str, Any], epoch: int) -> dict[str, Any]:
        """Mask a row, which need not be from this data set.

        Args:
            row: The row.
            epoch: The epoch, which decides the masks.

        Raises:
            CorpusError: if the row has labels.
        """
        if "labels" in row:
            raise CorpusError(
                "Rows with labels cannot be masked, because masked tokens get labels of their own: leave out "
                "either the masking or corpus.task."
            )
        ids, is_chosen, generator = self._choose(row, epoch)
        labels = np.where(is_chosen, ids, IGNORED_LABEL)

        # What becomes of each chosen token: the mask, a random word, or nothing.
        draws = generator.random(len(ids))
        is_masked = is_chosen & (draws < _MASKED)
        is_random = is_chosen & (draws >= _MASKED) & (draws < _MASKED + _RANDOM)
        ids[is_masked] = self._mask_id
        ids[is_random] = generator.choice(self._words, int(is_random.sum()))
        return {**self._with_ids(row, ids), "labels": labels}


class ReplacedTokens(_ChangedTokens):
    """A data set of token blocks in which a share of the tokens is replaced by random words.

    In this way even a narrow corpus has all words of the vocabulary. Distillation needs no labels: teacher and student
    read the same changed text, and the teacher's outputs are the target.

    The replacements depend on the tokens of the block and the seed, and not on the order of reading, so that a run that
    resumes reads the same text.

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

    change = "replaced"

    def change_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Replace tokens of one row; see `replace`."""
        return self.replace(row)

    def replace(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Replace tokens of a row, which need not be from this data set.

        Raises:
            CorpusError: for a row of which the teacher reads other tokens.
        """
        if TEACHER_IDS in row and not _only_teacher_reads_prompt(row):
            raise CorpusError(
                "Rows that student and teacher read by two tokenizers, or in two languages, have no tokens that could "
                "be replaced for both: leave the replacement out."
            )
        ids, is_chosen, generator = self._choose(row)
        ids[is_chosen] = generator.choice(self._words, int(is_chosen.sum()))
        return self._with_ids(row, ids)


def _only_teacher_reads_prompt(row: Mapping[str, Any]) -> bool:
    """Return whether the teacher's ids are those of the student behind a prompt.

    In all other rows with ids of the teacher, these are of another tokenizer or of another text. Such rows have the
    prompts of both sides, or none.
    """
    return TEACHER_IDS in row and PROMPT in row and TEACHER_PROMPT not in row


def _common_length(first: NDArray[np.int64], second: NDArray[np.int64]) -> int:
    """Return the number of ids that two rows have in common, counted from their ends."""
    length = min(len(first), len(second))
    end_of_first = first[len(first) - length :]
    end_of_second = second[len(second) - length :]
    differences = np.flatnonzero(end_of_first != end_of_second)
    if len(differences) == 0:
        return length
    last_difference = int(differences[-1])
    return length - (last_difference + 1)
