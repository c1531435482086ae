"""Scores that need no labels: how much of its teacher a student shows on text that was held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.comparison.held_out import common_relation_heads
from limbeck.core.machine import choose_device
from limbeck.corpus import Corpus, PadCollator
from limbeck.errors import CorpusError
from limbeck.evaluation import build_pairs, pair_similarities, spearman_agreement
from limbeck.models.families import depth, family_of, shape_of
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap
from limbeck.objectives import relation_kl
from limbeck.recipe.plan import RunPlan
from limbeck.search.proxy_scores import Scores

PAIRS = 1500
BLOCKS = 128
_BATCH = 32
_PARTS = ("query", "key", "value")


def describe_held_out(plan: RunPlan) -> dict[str, Any]:
    """Return what tells these scores from others, as plain values."""
    return {"held_out": list(HeldOutScores.names), "pairs": PAIRS, "blocks": BLOCKS, "pooling": plan.pooling}


class HeldOutScores:
    """Scores students on held-out text against the whole teacher, always at the last layers of both.

    `agreement` is Spearman's correlation of the student's and the teacher's similarities of sentence pairs.
    `relations` is the share of the teacher's token relations that the student has: 1 - d(student) / d(uniform), where d
    is the mean divergence KL(teacher ‖ ·) of query-query, key-key and value-value relations (MiniLMv2 section 3.1) and
    the uniform relation looks at all tokens alike. Both are in percent, 100 for a student that equals its teacher, and
    0 for one that knows nothing.

    The loss that a candidate was trained on is no score, not even on held-out text: a mapping that teaches fewer or
    easier layers has a lower loss, however good its student is. These two ask the same of every mapping. They do prefer
    mappings that teach the last layer what the teacher's last one does; for students that are to be fine-tuned, tasks
    say more.

    What the teacher gives is computed once and kept; the teacher itself is not.

    Args:
        teacher: Whole, in float32.
        tokenizer: Of all models.
        corpus: With held-out text.
        plan: Of the recipe that is searched for.

    Raises:
        CorpusError: if too little text is held out.
    """

    names = ("agreement", "relations")

    def __init__(
        self, teacher: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, corpus: Corpus, plan: RunPlan
    ) -> None:
        self._device = choose_device("auto")
        self._tokenizer = tokenizer
        self._pairs = held_out_pairs(corpus)
        self._encoding: dict[str, Any] = {
            "pooling": plan.pooling,
            "max_length": int(corpus.manifest["settings"]["length"]),
            "batch_size": _BATCH,
        }
        self._heads = common_relation_heads(shape_of(teacher.config), [plan.student])
        self._causal = family_of(teacher.config).causal
        self._batches = _batches(corpus, tokenizer)
        teacher = teacher.to(self._device).eval()
        self._similarities = pair_similarities(teacher, tokenizer, self._pairs, **self._encoding).numpy()
        self._streams = [{part: found.cpu() for part, found in streams.items()} for streams in self._read(teacher)]
        teacher.cpu()
        # Vectors of zeros relate to all tokens alike.
        blank = ({part: torch.zeros_like(found) for part, found in streams.items()} for streams in self._streams)
        self._of_uniform = self._divergence(blank)

    def measure(self, student: PreTrainedModel, plan: RunPlan, name: str) -> Scores:
        """Score a student; see `limbeck.search.proxy_scores.ProxyScores`."""
        student = student.to(self._device)
        ours = pair_similarities(student, self._tokenizer, self._pairs, **self._encoding)
        agreement = spearman_agreement(ours.numpy(), self._similarities)
        relations = 1 - self._divergence(self._read(student)) / self._of_uniform
        student.cpu()
        return {"agreement": 100 * agreement, "relations": 100 * relations}

    def _read(self, model: PreTrainedModel) -> Iterator[dict[str, Tensor]]:
        """The queries, keys and values of a model's last layer, batch by batch."""
        last = depth(model.config)
        with StreamTap(model, [StreamKey(part, last) for part in _PARTS]) as tap:
            for batch in self._batches:
                with torch.no_grad():
                    streams = tap(batch["input_ids"].to(self._device), batch["attention_mask"].to(self._device))
                yield {key.kind: found for key, found in streams.items()}

    def _divergence(self, found: Iterable[Mapping[str, Tensor]]) -> float:
        """Mean KL of the teacher's relations from others, in nats."""
        total = count = 0.0
        for batch, streams, kept in zip(self._batches, found, self._streams, strict=True):
            valid = batch["attention_mask"].bool().to(self._device)
            for part in _PARTS:
                ours, theirs = streams[part].to(self._device), kept[part].to(self._device)
                term = relation_kl(ours, ours, theirs, theirs, heads=self._heads, valid=valid, causal=self._causal)
                total, count = total + float(term.total), count + float(term.count)
        return total / count


def held_out_pairs(corpus: Corpus) -> list[tuple[str, str]]:
    """Choose the sentence pairs of the agreement.

    Raises:
        CorpusError: if too little text is held out.
    """
    documents = [document.text for document in corpus.held_out_documents()]
    if not documents or not len(corpus.held_out):
        raise CorpusError(
            "No text is held out, and without proxy tasks candidates are scored on it; give corpus.held_out a share "
            "above 0, or --tasks."
        )
    try:
        return [(pair.first, pair.second) for pair in build_pairs(documents, PAIRS)]
    except CorpusError as problem:
        raise CorpusError(f"{problem} Raise corpus.held_out, give more text, or give --tasks.") from None


def _batches(corpus: Corpus, tokenizer: PreTrainedTokenizerBase) -> list[dict[str, Tensor]]:
    """The first held-out blocks, in the order of the sources."""
    collate = PadCollator(tokenizer.pad_token_id, side=tokenizer.padding_side)
    rows = list(islice(corpus.held_out, BLOCKS))
    return [collate(rows[start : start + _BATCH]) for start in range(0, len(rows), _BATCH)]
