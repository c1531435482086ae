"""The corpora of a run: one for each stage, built before anything is trained, and described for the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from transformers import PreTrainedTokenizerBase

from limbeck.core.progress import CorpusProgress, Told
from limbeck.corpus import (
    Corpus,
    CorpusSettings,
    LabelKind,
    LabelledCorpus,
    LabelledSettings,
    StreamedCorpus,
    build_corpus,
    build_labelled_corpus,
    open_stream,
)
from limbeck.recipe.plan import RunPlan, StageChoice

AnyCorpus = Corpus | LabelledCorpus


def build_corpora(
    plan: RunPlan, tokenizer: PreTrainedTokenizerBase, console: Console, told: Told | None = None
) -> list[AnyCorpus]:
    """Build the corpus of every stage, from the cache where it can be, and say what is in the first.

    Args:
        plan: The recipe, checked.
        tokenizer: The teacher's.
        console: Where progress goes.
        told: Told of it too, see `CorpusProgress`.
    """
    with CorpusProgress(console, told) as progress:
        corpora = [_build(choice.corpus, tokenizer, progress) for choice in plan.stages]
    if corpora:
        first = corpora[0].manifest
        kind = "rows" if isinstance(corpora[0], LabelledCorpus) else "documents"
        console.print(_summary(corpora[0], kind), highlight=False, markup=False, soft_wrap=True)
        if not first["held_out_documents"]:
            console.print(f"  none of the {kind} is held out, so there are no held-out figures", style="yellow")
        for line in corpora[0].report.lines():
            console.print(f"  {line}", style="dim", highlight=False, markup=False, soft_wrap=True)
    return corpora


def _summary(corpus: AnyCorpus, kind: str) -> str:
    """Say in one line how much text there is."""
    held_out = f"{corpus.manifest['held_out_documents']:,} {kind} held out"
    if not isinstance(corpus, StreamedCorpus):
        return f"Corpus: {corpus.manifest['documents']:,} {kind}, {corpus.tokens:,} tokens to train on, {held_out}"
    sources = ", ".join(f"{source.name} ({source.share:.1%})" for source in corpus.sources)
    return f"Stream: {sources}; {held_out} of the first {corpus.manifest['documents']:,}"


def describe_corpora(plan: RunPlan, corpora: Sequence[AnyCorpus]) -> dict[str, Any] | None:
    """Describe the corpora for the run's record; None without stages."""
    if not corpora:
        return None
    first = corpora[0].manifest
    streamed = isinstance(corpora[0], StreamedCorpus)
    return {
        "sources": list(dict.fromkeys(source for choice in plan.stages for source in choice.corpus.sources)),
        # Of a stream nobody knows how much there is; what its beginning had is no measure of it.
        "documents": None if streamed else first["documents"],
        "held_out_documents": first["held_out_documents"],
        "tokens": None if streamed else corpora[0].tokens,
        "report": first["report"],
        "views": [
            {
                "stage": choice.spec.title,
                "unit": getattr(choice.corpus, "unit", "row"),
                "length": choice.corpus.length,
                **_extent(corpus),
                "fingerprint": corpus.path.name,
            }
            for choice, corpus in zip(plan.stages, corpora, strict=True)
        ],
    }


def _extent(corpus: AnyCorpus) -> dict[str, Any]:
    """Describe how many rows there are, or what a stream is made of; and the shares of sources that are mixed."""
    if isinstance(corpus, StreamedCorpus):
        return {"streamed": True, "shares": {source.name: source.share for source in corpus.sources}}
    extent: dict[str, Any] = {"blocks": len(corpus.train), "tokens": corpus.tokens}
    if corpus.mix is not None:
        shares = corpus.mix.shares(corpus.manifest["source_rows"])
        extent["shares"] = dict(zip(corpus.manifest["settings"]["sources"], shares, strict=True))
    return extent


def label_kind(choice: StageChoice) -> LabelKind:
    """Return what the labels of a stage's rows are, as its collator pads them."""
    kinds: dict[str, LabelKind] = {"classification": "class", "regression": "value", "question_answering": "span"}
    return kinds.get(choice.pairing.task, "token" if choice.mask_tokens > 0 else "none")


def _build(
    settings: CorpusSettings | LabelledSettings, tokenizer: PreTrainedTokenizerBase, progress: CorpusProgress
) -> AnyCorpus:
    if isinstance(settings, LabelledSettings):
        return build_labelled_corpus(settings, tokenizer, progress=progress)
    if settings.streaming:
        return open_stream(settings, tokenizer, progress=progress)
    return build_corpus(settings, tokenizer, progress=progress)
