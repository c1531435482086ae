"""`MaskedLanguageModel`: the words that a masked language model predicts in the places of masked words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from limbeck.core.devices import choose_device
from limbeck.corpus.augmentation.row_copies import MaskedWord
from limbeck.corpus.augmentation.words import fast_tokenizer, pieces_of, vocabulary_words
from limbeck.corpus.batches.collating import PadCollator
from limbeck.corpus.settings import ModelName
from limbeck.corpus.settings.augmentation import Algorithm
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES
from limbeck.models.families import shape_of
from limbeck.models.loading import load_model

_TOKENS_AT_ONCE = 1 << 16
"""About how many tokens, padding included, one forward pass reads."""


class _MaskedRow(NamedTuple):
    """The tokens of a row with a mask in the place of a word.

    Args:
        columns: The row, for `PadCollator`.
        mask_place: The place of the mask among its tokens.
    """

    columns: dict[str, Any]
    mask_place: int


class MaskedLanguageModel:
    """Predicts words in the places of masked words; an instance is a `Propose` of `augment_rows`.

    The printed algorithm gets the K likeliest of the vocabulary's words. The released one takes the K likeliest tokens
    of the vocabulary and leaves out those that go on with a word, so that it may get fewer than K, and punctuation
    among them. Special tokens, which the authors' code does not leave out, are never proposed.

    Args:
        name: The model and its revision.
        length: Most tokens of a row, special tokens included. Rows of the released algorithm hold a text twice, so they
            may have twice as many, up to the positions of the model.
        count: Number of likeliest words or tokens, K.
        algorithm: The algorithm that the proposals are for.

    Raises:
        ModelError: if the model has no head for masked language modelling.
        CorpusError: if its tokenizer is a slow one.
    """

    def __init__(self, name: ModelName, length: int, count: int, algorithm: Algorithm = "released") -> None:
        self.device = choose_device("auto")
        self._tokenizer = fast_tokenizer(name)
        model_name, revision = name
        self._model = load_model(model_name, revision=revision, head="masked_lm").to(self.device)
        shape = shape_of(self._model.config)
        is_released = algorithm == "released"
        # The released algorithm predicts a word from its text and, as a second segment, the whole text again.
        most_tokens = 2 * length if is_released else length
        # A model without a table of positions has no bound.
        if shape.positions:
            most_tokens = min(most_tokens, shape.positions)
        self._length = most_tokens
        self._count = count
        # Token id → word. Only these words are proposed; to the released algorithm punctuation marks are words too.
        self._word_of_token = vocabulary_words(self._tokenizer, punctuation=is_released)
        # The ids of the tokens among which the K likeliest are chosen. In the printed algorithm they are words, and in
        # the released one all tokens, of which those that are no words are left out afterwards.
        candidates = list(range(shape.vocabulary)) if is_released else list(self._word_of_token)
        self._candidates = torch.tensor(candidates, device=self.device)
        self._has_token_types = TOKEN_TYPES in self._tokenizer.model_input_names
        self._pad = PadCollator(self._tokenizer.pad_token_id)

    @torch.inference_mode()
    def __call__(self, words: Sequence[MaskedWord]) -> list[list[str]]:
        """Return the likeliest words for each masked word, the likeliest first; see `Propose`."""
        proposals: list[list[str]] = [[] for _ in words]
        # Words that can be predicted: their indices in `words`, and their rows of tokens.
        predicted_words: list[int] = []
        rows: list[_MaskedRow] = []
        for number, row in enumerate(self._encode_masked(words)):
            if row is not None:
                predicted_words.append(number)
                rows.append(row)
        if not rows:
            return proposals

        longest = max(len(row.columns["input_ids"]) for row in rows)
        rows_at_once = max(1, _TOKENS_AT_ONCE // longest)
        for first in range(0, len(rows), rows_at_once):
            part = slice(first, first + rows_at_once)
            batch = self._pad([row.columns for row in rows[part]])
            tokens_of_rows = self._predict(batch, [row.mask_place for row in rows[part]])
            for number, tokens in zip(predicted_words[part], tokens_of_rows, strict=True):
                proposals[number] = [self._word_of_token[token] for token in tokens if token in self._word_of_token]
        return proposals

    def needs_neighbours(self, words: Sequence[str]) -> list[bool]:
        """Return for each word whether it is not a single known token, so that the model cannot predict it."""
        unknown = self._tokenizer.unk_token_id
        return [len(ids) != 1 or ids[0] == unknown for ids in pieces_of(self._tokenizer, words)]

    def _encode_masked(self, words: Sequence[MaskedWord]) -> Iterator[_MaskedRow | None]:
        """Encode rows with one mask in the place of the word; None where truncation has cut the word off."""
        # Either all rows have a second text or none.
        has_pairs = bool(words) and words[0].pair is not None
        encoded = self._tokenizer(
            [word.text for word in words],
            [word.pair for word in words] if has_pairs else None,
            truncation="longest_first",
            max_length=self._length,
        )
        for word, encoding in zip(words, encoded.encodings, strict=True):
            first = encoding.char_to_token(word.start, word.part)
            last = encoding.char_to_token(word.end - 1, word.part)
            if first is None or last is None:
                yield None
                continue
            # All tokens of the word become one mask.
            pieces = slice(first, last + 1)
            ids = list(encoding.ids)
            ids[pieces] = [self._tokenizer.mask_token_id]
            columns = {"input_ids": ids}
            if self._has_token_types:
                token_types = list(encoding.type_ids)
                token_types[pieces] = [encoding.type_ids[first]]
                columns[TOKEN_TYPES] = token_types
            yield _MaskedRow(columns, first)

    def _predict(self, batch: Mapping[str, torch.Tensor], mask_places: Sequence[int]) -> list[list[int]]:
        """Return the ids of the likeliest tokens at each row's mask, `[rows][count]`.

        Args:
            batch: Tensors of the forward pass, `[rows, tokens]`, padded on the right.
            mask_places: The place of the mask in each row. The text may spell further masks.
        """
        batch = {name: tensor.to(self.device) for name, tensor in batch.items()}
        mask_place = torch.tensor(mask_places, device=self.device)  # [rows]
        rows = torch.arange(len(mask_places), device=self.device)

        # The output layer is large, so it gets only the hidden states at the masks: [rows, 1, hidden].
        def keep_masks(_module: Any, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
            return inputs[0][rows, mask_place][:, None]

        handle = self._model.get_output_embeddings().register_forward_pre_hook(keep_masks)
        try:
            scores = self._model(**batch).logits[:, 0, self._candidates]  # [rows, candidates]
        finally:
            handle.remove()
        places = scores.float().topk(min(self._count, len(self._candidates))).indices
        token_ids: list[list[int]] = self._candidates[places].tolist()
        return token_ids
