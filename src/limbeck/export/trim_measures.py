"""What a cut vocabulary costs: tokens and words of texts before and after, and differences of a model's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from tokenizers import Tokenizer
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
        encodings = [backend.encode(text, add_special_tokens=False) for backend in (plain_before, plain_after)]
        costs.tokens_before += len(encodings[0].ids)
        costs.tokens_after += len(encodings[1].ids)
        if not has_words:
            continue
        words_before, words_after = (np.asarray(encoding.word_ids, dtype=np.int64) for encoding in encodings)
        # An unused slot that has gone was a word of its own, so that the words behind it have other numbers.
        if not len(words_before) or words_before.max() != words_after.max():
            continue
        lengths_before = np.bincount(words_before)
        lengths_after = np.bincount(words_after, minlength=len(lengths_before))
        costs.words += int((lengths_before > 0).sum())
        costs.words_cut_more += int((lengths_after > lengths_before).sum())


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
    head = None if before.head == "masked_lm" else before.head
    modules = [OutputModule(_without_vocabulary_scores(loaded)) for loaded in (before, after)]
    rows_before = tokenise(before.tokenizer, texts, modules[0].inputs, before.longest)
    rows_after = tokenise(after.tokenizer, texts, modules[1].inputs, before.longest)
    same_texts = 0
    largest_of_same: dict[str, Number | None] = {}
    largest_of_others: dict[str, Number | None] = {}
    for number, (row_before, row_after) in enumerate(zip(rows_before, rows_after, strict=True)):
        report(number / len(texts), "Comparing with the whole vocabulary", Count(number, "texts"))
        ids_before = [old_ids[new_id] for new_id in row_after["input_ids"]]
        is_same = ids_before == row_before["input_ids"]
        if not ids_before or not row_before["input_ids"]:
            continue
        outputs_before = _outputs_of(modules[0], row_before)
        outputs_after = _outputs_of(modules[1], row_after)
        largest = largest_of_others
        if is_same:
            largest = largest_of_same
            same_texts += 1
        for name, tensor in outputs_after.items():
            if is_same or not is_per_token(name, head):
                difference = float((tensor - outputs_before[name]).abs().max())
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
