"""What a cut vocabulary costs: tokens and words of texts before and after, and differences of a model's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor

from limbeck.core.progress import Count, Report, no_progress
from limbeck.core.records import Number
from limbeck.core.trims import OutputDifferences, SourceCosts
from limbeck.export.batches import tokenise
from limbeck.export.outputs import OutputModule, is_per_token
from limbeck.models.loaded import LoadedModel
from limbeck.models.tokenizers import plain_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def measure_costs(
    before: PreTrainedTokenizerBase,
    after: PreTrainedTokenizerBase,
    texts_of_sources: Sequence[Sequence[str]],
    costs_of_sources: Sequence[SourceCosts],
) -> None:
    """Count the tokens of texts by two tokenizers, and the words that the second one cuts into more tokens.

    A word is what the tokenizers cut a text into before they look for pieces. A tokenizer that looks for pieces in the
    whole text has no words, so that none are counted.

    Args:
        before: The tokenizer with all pieces.
        after: The same with some of them.
        texts_of_sources: The texts of each source.
        costs_of_sources: For each source what gets its counts.
    """
    # Copies of tokenizers with large vocabularies take much memory, so there is one of each.
    plain_before = plain_tokenizer(before).backend_tokenizer
    plain_after = plain_tokenizer(after).backend_tokenizer
    for texts, costs in zip(texts_of_sources, costs_of_sources, strict=True):
        _add_costs(plain_before, plain_after, texts, costs)


def _add_costs(plain_before: Tokenizer, plain_after: Tokenizer, texts: Sequence[str], costs: SourceCosts) -> None:
    """Count the tokens and words of the texts of a source."""
    costs.texts = len(texts)
    has_words = _splits_words(plain_before)
    for text in texts:
        encoding_before = plain_before.encode(text, add_special_tokens=False)
        encoding_after = plain_after.encode(text, add_special_tokens=False)
        costs.tokens_before += len(encoding_before.ids)
        costs.tokens_after += len(encoding_after.ids)
        if has_words:
            _add_words(encoding_before, encoding_after, costs)


def _add_words(encoding_before: Encoding, encoding_after: Encoding, costs: SourceCosts) -> None:
    """Count the words of a text, and those that are cut into more tokens than before, unless they cannot be compared.

    Args:
        encoding_before: The text by the tokenizer with all pieces.
        encoding_after: The same by the smaller one.
        costs: Gets the counts.
    """
    # The number of the word that each token belongs to, from 0.
    word_of_token_before = np.asarray(encoding_before.word_ids, dtype=np.int64)
    word_of_token_after = np.asarray(encoding_after.word_ids, dtype=np.int64)
    if len(word_of_token_before) == 0:
        return
    # An unused slot of the vocabulary that stands in the text was a word of its own. If the slot has gone, the words
    # behind it have other numbers than before.
    if word_of_token_before.max() != word_of_token_after.max():
        return
    token_counts_before = np.bincount(word_of_token_before)
    token_counts_after = np.bincount(word_of_token_after, minlength=len(token_counts_before))
    costs.words += int((token_counts_before > 0).sum())
    costs.words_cut_more += int((token_counts_after > token_counts_before).sum())


def _splits_words(backend: Tokenizer) -> bool:
    """Whether a tokenizer cuts a text at its spaces before it looks for pieces."""
    if backend.pre_tokenizer is None:
        return False
    text = "a b"
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    return len(backend.pre_tokenizer.pre_tokenize_str(text)) > 1


def measure_outputs(
    before: LoadedModel,
    after: LoadedModel,
    old_ids: Sequence[int],
    texts: Sequence[str],
    report: Report = no_progress,
) -> OutputDifferences:
    """Compare the outputs of two models on texts, each read alone, so that no padding adds rounding.

    Of a masked language model the hidden states are compared: its scores are for other tokens.

    Args:
        before: The model with all pieces.
        after: The same with some of them.
        old_ids: For each id of `after` that of the same piece in `before`.
        texts: The texts, cut to the longest input.
        report: Receives progress.
    """
    module_before = OutputModule(_without_vocabulary_scores(before))
    module_after = OutputModule(_without_vocabulary_scores(after))
    rows_before = tokenise(before.tokenizer, texts, module_before.inputs, before.longest)
    rows_after = tokenise(after.tokenizer, texts, module_after.inputs, before.longest)
    same_texts = 0
    largest_of_same: dict[str, Number | None] = {}
    largest_of_others: dict[str, Number | None] = {}
    for number, (row_before, row_after) in enumerate(zip(rows_before, rows_after, strict=True)):
        report(number / len(texts), "Comparing with the whole vocabulary", Count(number, "texts"))
        ids_before = row_before["input_ids"]
        ids_after = [old_ids[new_id] for new_id in row_after["input_ids"]]
        # A text may have no tokens, such as an empty one.
        if not ids_before or not ids_after:
            continue
        outputs_before = _outputs_of(module_before, row_before)
        outputs_after = _outputs_of(module_after, row_after)
        is_cut_alike = ids_after == ids_before
        largest = largest_of_others
        if is_cut_alike:
            largest = largest_of_same
            same_texts += 1
        for name, output_after in outputs_after.items():
            # A text that is cut differently has other tokens, so only its outputs for the whole text are compared.
            if is_cut_alike or not is_per_token(name, module_after.head):
                difference = float((output_after - outputs_before[name]).abs().max())
                largest[name] = max(difference, largest.get(name) or 0.0)
    # A record writes the fields that it was made with, so all are given.
    return OutputDifferences(texts=len(texts), same_texts=same_texts, same=largest_of_same, others=largest_of_others)


def _without_vocabulary_scores(loaded: LoadedModel) -> LoadedModel:
    """A model, and of a masked language model its Transformer alone."""
    if loaded.head != "masked_lm":
        return loaded
    return LoadedModel(
        name=loaded.name,
        model=loaded.model.base_model,
        tokenizer=loaded.tokenizer,
        head=None,
        sentence=None,
        longest=loaded.longest,
    )


def _outputs_of(module: OutputModule, row: dict[str, list[int]]) -> dict[str, Tensor]:
    """Run a model on one text, and return its outputs by name."""
    inputs = [torch.tensor([row[name]], dtype=torch.long) for name in module.inputs]
    with torch.inference_mode():
        outputs = module(*inputs)
    return dict(zip(module.outputs, outputs, strict=True))
