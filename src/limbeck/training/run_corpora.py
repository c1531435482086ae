"""The corpora of a run: one for each stage, built before anything is trained, and described for the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from transformers import PreTrainedTokenizerBase

from limbeck.corpus import (
    Corpus,
    CorpusSettings,
    LabelKind,
    LabelledCorpus,
    LabelledSettings,
    build_corpus,
    build_labelled_corpus,
)
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StageChoice
from limbeck.training.corpus_progress import CorpusProgress

AnyCorpus = Corpus | LabelledCorpus


def build_corpora(plan: RunPlan, tokenizer: PreTrainedTokenizerBase, console: Console) -> list[AnyCorpus]:
    """Build the corpus of every stage, from the cache where it can be, and say what is in the first."""
    with CorpusProgress(console) as progress:
        corpora = [_build(choice.corpus, tokenizer, progress) for choice in plan.stages]
    if corpora:
        first = corpora[0].manifest
        kind = "rows" if isinstance(corpora[0], LabelledCorpus) else "documents"
        console.print(
            f"Corpus: {first['documents']:,} {kind}, {corpora[0].tokens:,} tokens to train on, "
            f"{first['held_out_documents']:,} {kind} held out",
            highlight=False,
            soft_wrap=True,
        )
        if not first["held_out_documents"]:
            console.print(f"  none of the {kind} is held out, so there are no held-out figures", style="yellow")
        for line in corpora[0].report.lines():
            console.print(f"  {line}", style="dim", highlight=False, markup=False, soft_wrap=True)
    return corpora


def describe_corpora(plan: RunPlan, corpora: Sequence[AnyCorpus]) -> dict[str, Any] | None:
    """Describe the corpora for the run's record; None without stages."""
    if not corpora:
        return None
    first = corpora[0].manifest
    return {
        "sources": list(dict.fromkeys(source for choice in plan.stages for source in choice.corpus.sources)),
        "documents": first["documents"],
        "held_out_documents": first["held_out_documents"],
        "tokens": corpora[0].tokens,
        "report": first["report"],
        "views": [
            {
                "stage": choice.spec.title,
                "unit": getattr(choice.corpus, "unit", "row"),
                "length": choice.corpus.length,
                "blocks": len(corpus.train),
                "tokens": corpus.tokens,
                "fingerprint": corpus.path.name,
            }
            for choice, corpus in zip(plan.stages, corpora, strict=True)
        ],
    }


def label_kind(choice: StageChoice) -> LabelKind:
    """Return what the labels of a stage's rows are, as its collator pads them."""
    kinds: dict[str, LabelKind] = {"classification": "class", "regression": "value", "question_answering": "span"}
    return kinds.get(choice.pairing.task, "token" if choice.mask_tokens > 0 else "none")


def _build(
    settings: CorpusSettings | LabelledSettings, tokenizer: PreTrainedTokenizerBase, progress: CorpusProgress
) -> AnyCorpus:
    if isinstance(settings, LabelledSettings):
        return build_labelled_corpus(settings, tokenizer, progress=progress)
    return build_corpus(settings, tokenizer, progress=progress)
