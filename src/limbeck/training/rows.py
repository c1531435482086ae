"""The rows that a stage trains on and is measured on, with tokens replaced and masked as the recipe says.

A *row* is one input of the student: a block of a text's tokens, or a labelled example. *Replaced* tokens are random
words in place of the text's (augmentation). *Masked* tokens are hidden from the models, and become labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset, Subset
from transformers import PreTrainedTokenizerBase

from limbeck import corpus as texts
from limbeck.corpus import Corpus, LabelledCorpus, LengthSchedule, MaskedTokens, ReplacedTokens, RowMix
from limbeck.corpus.streams.source_blocks import Block
from limbeck.corpus.streams.streamed_corpus import StreamedCorpus

AnyCorpus = Corpus | LabelledCorpus
"""The text of a stage, or its labelled rows."""
_HELD_OUT_ROWS = 512
"""Most held-out rows that a stage is measured on."""


class StreamedRows(Dataset[dict[str, Any]]):
    """The rows of a stream, which are made of its blocks as they are read.

    A stream cannot be indexed. As a data set it has a few rows of its beginning alone, for those who need to see some
    rows before the training.

    Args:
        corpus: The stream.
        replacing: Replaces tokens of these first rows, and of any row of the stream; None replaces none.
        masking: Masks tokens likewise; None masks none.
    """

    def __init__(self, corpus: StreamedCorpus, replacing: ReplacedTokens | None, masking: MaskedTokens | None) -> None:
        self.corpus = corpus
        self._replacing = replacing
        self._masking = masking
        # Masked rows are made of replaced ones, and these of the corpus, so the outermost is the finished data set.
        self._beginning: Any = corpus.train
        if replacing is not None:
            self._beginning = replacing
        if masking is not None:
            self._beginning = masking

    def __len__(self) -> int:
        return len(self._beginning)

    def __getitem__(self, key: Any) -> Any:
        return self._beginning[key]

    def make(self, block: Block) -> dict[str, Any]:
        """Make the row of a block, its tokens replaced and masked."""
        row: dict[str, Any] = {"input_ids": block.ids, "length": len(block.ids), **block.columns}
        if self._replacing is not None:
            row = self._replacing.replace(row)
        if self._masking is not None:
            # Each pass over the text masks other tokens.
            row = self._masking.mask(row, block.earlier_passes)
        return row


class RowsByLength(Dataset[dict[str, Any]]):
    """The rows of a stage at several lengths, trained on one after the other; as a data set, those of the first length.

    Args:
        parts: The rows of each length.
        mixes: The rows that an epoch of each length has; None for every row once.
        schedule: The time that each length is trained on.
    """

    def __init__(self, parts: Sequence[Any], mixes: Sequence[RowMix | None], schedule: LengthSchedule) -> None:
        self.parts = parts
        self.mixes = mixes
        self.schedule = schedule

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, key: Any) -> Any:
        return self.parts[0][key]


def training_rows(
    corpus: AnyCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    replace_tokens: float,
    mask_tokens: float,
    seed: int,
    documents: int | None = None,
) -> Any:
    """Return the rows to train on.

    Args:
        corpus: The corpus.
        tokenizer: Its tokenizer.
        replace_tokens: Share of tokens that are replaced by random words.
        mask_tokens: Share of tokens that are masked, replaced ones among them.
        seed: Decides which tokens are replaced and masked.
        documents: For rankings, most documents of a query that are read together as one row; None for other rows,
            those of a stream among them.

    Returns:
        A data set of rows: `StreamedRows` of a stream, `GroupedRows` with `documents`.
    """
    # Each step reads the rows of the one before, so that replaced tokens may be masked too.
    rows: Any = corpus.train
    replacing: ReplacedTokens | None = None
    masking: MaskedTokens | None = None
    if replace_tokens > 0:
        replacing = ReplacedTokens(rows, replace_tokens, **_replacement_options(tokenizer, seed))
        rows = replacing
    if mask_tokens > 0:
        masking = _mask_tokens_of(rows, tokenizer, mask_tokens, seed)
        rows = masking
    # A stream has its own rows, to which it applies the same steps.
    if isinstance(corpus, StreamedCorpus):
        return StreamedRows(corpus, replacing, masking)
    if documents is None:
        return rows
    return texts.GroupedRows(rows, table=corpus.train, most=documents)


def held_out_rows(
    corpus: AnyCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    mask_tokens: float,
    seed: int,
    documents: int | None = None,
) -> Any:
    """Return up to 512 held-out rows, with no token replaced and the same tokens masked each time.

    Arguments are those of `training_rows`.
    """
    rows = corpus.held_out.select(held_out_places(corpus))
    if documents is not None:
        return texts.GroupedRows(rows, table=rows, most=documents)
    return rows if mask_tokens == 0 else _mask_tokens_of(rows, tokenizer, mask_tokens, seed)


def held_out_places(corpus: AnyCorpus) -> list[int]:
    """Choose the held-out rows that a stage is measured on, and return their indices among all held-out rows.

    They are the first 512 rows. Where languages are known, as many first rows of each language make the same number.
    """
    places_by_language = corpus.held_out_by_language("rows")
    if not places_by_language:
        return list(range(min(_HELD_OUT_ROWS, len(corpus.held_out))))
    rows_of_each = max(1, _HELD_OUT_ROWS // len(places_by_language))
    places: list[int] = []
    for places_of_language in places_by_language.values():
        places += places_of_language[:rows_of_each]
    return sorted(places)


def held_out_languages(corpus: AnyCorpus, rows: Any) -> dict[str, Any]:
    """Divide the measured rows of a corpus by language; a language without a measured row is left out.

    Args:
        corpus: The corpus.
        rows: The rows that `held_out_rows` returned; None without any.
    """
    if rows is None:
        return {}
    # The index of each measured row in `rows`, by its index among all held-out rows of the corpus.
    index_of_place = {place: index for index, place in enumerate(held_out_places(corpus))}
    rows_of_language = {}
    for language, places in corpus.held_out_by_language("rows").items():
        indices = [index_of_place[place] for place in places if place in index_of_place]
        if indices:
            rows_of_language[language] = Subset(rows, indices)
    return rows_of_language


def _mask_tokens_of(rows: Any, tokenizer: PreTrainedTokenizerBase, share: float, seed: int) -> MaskedTokens:
    """Return a view of rows in which a share of the tokens is masked."""
    return MaskedTokens(rows, share, mask_id=texts.mask_id_of(tokenizer), **_replacement_options(tokenizer, seed))


def _replacement_options(tokenizer: PreTrainedTokenizerBase, seed: int) -> dict[str, Any]:
    """Return the keywords of random replacement: the words to draw, the tokens to leave alone, and the seed."""
    return {"words": texts.word_ids(tokenizer), "special": tokenizer.all_special_ids, "seed": seed}
