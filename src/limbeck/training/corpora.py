"""The corpora of a run, one for each stage: built before anything is trained, and described for the record."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from transformers import PreTrainedTokenizerBase

from limbeck import corpus as texts
from limbeck.core import records
from limbeck.core.blocks import counted
from limbeck.core.progress import CorpusProgress, StepListener
from limbeck.corpus import CorpusSettings, LabelledCorpus, LabelledSettings, StreamedCorpus
from limbeck.evaluation.task_rows import TaskRows
from limbeck.kinds.registry import KINDS
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.class_counts import describe_classes
from limbeck.training.rows import AnyCorpus


def build_corpora(
    plan: RunPlan, tokenizer: PreTrainedTokenizerBase, console: Console, listener: StepListener | None = None
) -> list[AnyCorpus]:
    """Build the corpus of every stage, from the cache where it can be, and say what is in the first and in rows.

    Args:
        plan: The recipe, checked.
        tokenizer: The teacher's.
        console: Where progress goes.
        listener: Receives it too, see `CorpusProgress`.
    """
    with CorpusProgress(console, listener) as progress:
        corpora = [build_corpus_of(choice, tokenizer, progress) for choice in plan.stages]
    told_of: dict[Path, tuple[StagePlan, AnyCorpus]] = {}
    for choice, corpus in zip(plan.stages, corpora, strict=True):
        if not told_of or isinstance(corpus, LabelledCorpus):
            told_of.setdefault(corpus.path, (choice, corpus))
    for choice, corpus in told_of.values():
        kind = "row" if isinstance(corpus, LabelledCorpus) else "document"
        scored = choice.development is not None
        console.print(_summary(corpus, kind, scored=scored), highlight=False, markup=False, soft_wrap=True)
        if not corpus.manifest["held_out_documents"]:
            console.print(f"  none of the {kind}s is held out, so there are no held-out figures", style="yellow")
        if (task := _without_development(choice)) is not None:
            said = f"  {task} has no development rows there, so some of its training rows are held out"
            console.print(said, style="yellow", highlight=False, markup=False, soft_wrap=True)
        for line in (*corpus.describe_rows(), *corpus.report.lines()):
            console.print(f"  {line}", style="dim", highlight=False, markup=False, soft_wrap=True)
    uneven = (describe_classes(*each) for each in zip(plan.stages, corpora, strict=True))
    for line in dict.fromkeys(filter(None, uneven)):
        console.print(f"  {line}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    return corpora


def _without_development(choice: StagePlan) -> str | None:
    """Return the title of a stage's task where rows are held out for want of a development split."""
    corpus = choice.corpus
    if not isinstance(corpus, LabelledSettings) or choice.development is not None or corpus.held_out is not None:
        return None
    return corpus.rows.task.title if isinstance(corpus.rows, TaskRows) else None


def _summary(corpus: AnyCorpus, kind: str, *, scored: bool) -> str:
    """Say in one line how much text there is, and whether what is held out are development rows."""
    held = corpus.manifest["held_out_documents"]
    held_out = counted(held, "development row") if scored else f"{counted(held, kind)} held out"
    if not isinstance(corpus, StreamedCorpus):
        copies = f" and {count:,} augmented copies" if (count := corpus.manifest.get("augmented")) else ""
        read = f"{counted(corpus.manifest['documents'], kind)}{copies}"
        return f"Corpus: {read}, {corpus.tokens:,} tokens to train on, {held_out}"
    sources = ", ".join(f"{source.name} ({source.share:.1%})" for source in corpus.sources)
    return f"Stream: {sources}; {held_out} of the first {corpus.manifest['documents']:,}"


def describe_corpora(plan: RunPlan, corpora: Sequence[AnyCorpus]) -> records.CorpusText | None:
    """Describe the corpora for the run's record; None without stages."""
    if not corpora:
        return None
    first = corpora[0].manifest
    streamed = isinstance(corpora[0], StreamedCorpus)
    return records.CorpusText(
        sources=list(dict.fromkeys(source for choice in plan.stages for source in choice.corpus.places)),
        # The length of a stream is unknown, and its beginning is no measure of it.
        documents=None if streamed else first["documents"],
        held_out_documents=first["held_out_documents"],
        tokens=None if streamed else corpora[0].tokens,
        report=records.SourceNotes.read(first["report"]),
        views=[
            records.CorpusView(
                stage=choice.spec.title,
                unit=getattr(choice.corpus, "unit", "row"),
                length=settings.length,
                **_extent(view),
                fingerprint=view.path.name,
                content=view.content,
                roles=view.shares_of_roles() or None,
                pieces=view.rows_by_unit() or None,
            )
            for choice, corpus in zip(plan.stages, corpora, strict=True)
            for settings, view in zip(choice.corpora, corpus.views, strict=True)
        ],
        mixed={
            choice.spec.title: mix.describe(streamed=choice.corpus.streaming)
            for choice in plan.stages
            if isinstance(choice.corpus, CorpusSettings) and (mix := choice.corpus.mixing) is not None
        },
    )


def _extent(corpus: AnyCorpus) -> dict[str, Any]:
    """Describe how many rows there are, or what a stream is made of; and the shares of sources that are mixed."""
    if isinstance(corpus, StreamedCorpus):
        return {"streamed": True, "shares": dict(zip(corpus.titles, corpus.shares(), strict=True))}
    extent: dict[str, Any] = {"blocks": len(corpus.train), "tokens": corpus.tokens}
    if corpus.mix is not None:
        extent["shares"] = dict(zip(corpus.titles, corpus.shares(), strict=True))
    return extent


def build_corpus_of(choice: StagePlan, tokenizer: PreTrainedTokenizerBase, progress: CorpusProgress) -> AnyCorpus:
    """Build the corpus of a stage; of several lengths it is the last one's, with those before it."""
    build: Callable[..., AnyCorpus] = texts.build_corpus
    if isinstance(choice.corpus, LabelledSettings):
        build = partial(texts.build_labelled_corpus, kind=KINDS[choice.corpus.task])
    elif choice.corpus.streaming:
        build = texts.open_stream
    *shorter, corpus = [build(settings, tokenizer, progress=progress) for settings in choice.corpora]
    corpus.shorter = shorter
    if choice.compares_documents:
        _check_groups(choice, corpus)
    return corpus


def _check_groups(choice: StagePlan, corpus: AnyCorpus) -> None:
    """Refuse rows of one document a query for a stage that compares the documents of a query."""
    assert isinstance(choice.corpus, LabelledSettings)
    most = choice.corpus.documents_per_query
    if most < 2 or max(np.diff(texts.GroupedRows(corpus.train, corpus.train, most).bounds)) < 2:
        raise choice.refuse_single_documents()
