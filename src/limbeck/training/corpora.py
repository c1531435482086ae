"""The corpora of a run, one for each stage: built before anything is trained, and described for the record."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from transformers import PreTrainedTokenizerBase

from limbeck import corpus as texts
from limbeck.core import records
from limbeck.core.blocks import counted_rows
from limbeck.core.corpus_progress import CorpusProgress, StepListener
from limbeck.corpus import Corpus, CorpusSettings, LabelledCorpus, LabelledSettings, StreamedCorpus, Tokenizers
from limbeck.corpus.building.splitting import REPEATED
from limbeck.corpus.messages import safe_name
from limbeck.corpus.settings.parallel import describe_place
from limbeck.evaluation.tasks.corpus_rows import TaskRows
from limbeck.kinds.registry import KINDS
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.class_counts import describe_classes
from limbeck.training.rows import AnyCorpus
from limbeck.training.warn import warn


def build_corpora(
    plan: RunPlan,
    tokenizers_of: Callable[[StagePlan], Tokenizers],
    console: Console,
    listener: StepListener | None = None,
) -> list[AnyCorpus]:
    """Build or load from the cache the corpus of every stage, and print a summary of each text and of labelled rows.

    Args:
        plan: The recipe, checked.
        tokenizers_of: Returns the tokenizers of the two models of a stage.
        console: Where progress goes.
        listener: Receives the progress too, see `CorpusProgress`.
    """
    with CorpusProgress(console, listener) as progress:
        corpora = [build_corpus_of(stage, tokenizers_of(stage), progress) for stage in plan.stages]

    # Stages may share a corpus, which is summarised once.
    summarised: set[Path] = set()
    for index, (stage, corpus) in enumerate(zip(plan.stages, corpora, strict=True)):
        # A text that a later stage only cuts in another way is not summarised again.
        is_other_text = _text_of_stage(stage, corpus) != _text_of_stage(plan.stages[0], corpora[0])
        is_of_interest = index == 0 or is_other_text or isinstance(corpus, LabelledCorpus)
        if is_of_interest and corpus.path not in summarised:
            summarised.add(corpus.path)
            _print_summary(stage, corpus, console)

    # Warn of sources of which nothing is read.
    unread: set[str] = set()
    for stage, corpus in zip(plan.stages, corpora, strict=True):
        unread.update(set(stage.corpus.places).difference(_read_places(stage.corpus.places, corpus)))
    for place in sorted(unread):
        warn(
            console,
            f"  no document of '{safe_name(describe_place(place))}' is read, since the sources before it have as many "
            "as max_documents",
        )

    # Warn where some classes have few rows. Stages on the same rows have the same line, which is printed once.
    uneven: set[str] = set()
    for stage, corpus in zip(plan.stages, corpora, strict=True):
        line = describe_classes(stage, corpus)
        if line and line not in uneven:
            uneven.add(line)
            warn(console, f"  {line}")
    return corpora


def build_corpus_of(stage: StagePlan, tokenizers: Tokenizers, progress: CorpusProgress) -> AnyCorpus:
    """Build the corpus of a stage, or load it from the cache.

    Args:
        stage: The stage.
        tokenizers: Those of its two models.
        progress: Shows the progress.

    Returns:
        The corpus; of several lengths that of the last one, with the others in `shorter`.

    Raises:
        CorpusError: if it cannot be built.
        RecipeError: if documents of a query are to be compared and every query has one.
    """
    # The function that builds the stage's form of corpus, and the arguments that this form alone takes.
    build: Callable[..., AnyCorpus] = texts.build_corpus
    options: dict[str, Any] = {}
    if isinstance(stage.corpus, LabelledSettings):
        build = texts.build_labelled_corpus
        options["kind"] = KINDS[stage.corpus.task]
    elif stage.corpus.streaming:
        build = texts.open_stream
    # The recipe's check has refused the forms that do not take these: a stream has one tokenizer, and only text without
    # labels that is no stream has a whole one.
    if tokenizers.teacher is not None:
        options["teacher_tokenizer"] = tokenizers.teacher
    if tokenizers.whole is not None:
        options["whole_tokenizer"] = tokenizers.whole
    corpora = [build(settings, tokenizers.student, progress=progress, **options) for settings in stage.corpora]
    corpus = corpora[-1]
    corpus.shorter = corpora[:-1]
    if stage.compares_documents:
        _check_groups(stage, corpus)
    return corpus


def build_text_alone(
    settings: CorpusSettings, tokenizer: PreTrainedTokenizerBase, console: Console
) -> Corpus | StreamedCorpus:
    """Build the text of a run without stages, or load it from the cache.

    Args:
        settings: The settings of the recipe's text.
        tokenizer: The teacher's tokenizer.
        console: Where progress goes.
    """
    with CorpusProgress(console) as progress:
        if settings.streaming:
            return texts.open_stream(settings, tokenizer, progress=progress)
        return texts.build_corpus(settings, tokenizer, progress=progress)


def describe_corpora(plan: RunPlan, corpora: Sequence[AnyCorpus]) -> records.CorpusText | None:
    """Describe the corpora for the run's record; None without stages."""
    if not corpora:
        return None
    places: list[str] = []
    views = []
    # For each stage whose sources are mixed, how they are, by the stage's title.
    mixed = {}
    for stage, corpus in zip(plan.stages, corpora, strict=True):
        places += _read_places(stage.corpus.places, corpus)
        for settings, view in zip(stage.corpora, corpus.views, strict=True):
            views.append(_describe_view(stage, settings, view))
        if isinstance(stage.corpus, CorpusSettings):
            mix = stage.corpus.mixing
            if mix is not None:
                mixed[stage.spec.title] = mix.describe(streamed=stage.corpus.streaming)
    first_stage = plan.stages[0]
    has_development = first_stage.development is not None
    text = describe_text(first_stage.corpus.places, corpora[0], has_development=has_development)
    text.sources = _described_once(places)
    text.views = views
    text.mixed = mixed
    first_text = _text_of_stage(first_stage, corpora[0])
    if any(_text_of_stage(*pair) != first_text for pair in zip(plan.stages, corpora, strict=True)):
        text.stage = first_stage.spec.title
    return text


def _text_of_stage(stage: StagePlan, corpus: AnyCorpus) -> tuple[object, ...]:
    """Plain values that differ where two stages read other documents, however these are cut."""
    is_labelled = isinstance(corpus, LabelledCorpus)
    return is_labelled, stage.corpus.places, corpus.manifest["documents"], corpus.manifest["held_out_documents"]


def _read_places(places: Sequence[str], corpus: AnyCorpus) -> list[str]:
    """Return the sources of which documents were read: with `max_documents`, the first ones may have enough."""
    # A stream is read without end, and its numbers are those of its beginning.
    if isinstance(corpus, StreamedCorpus):
        return list(places)
    documents_by_source = corpus.manifest.get("sources", {})
    return [place for place in places if documents_by_source.get(place) != 0]


def _described_once(places: Sequence[str]) -> list[str]:
    """Return sources as people read them, each once, in their order."""
    return list(dict.fromkeys(map(describe_place, places)))


def describe_text(places: Sequence[str], corpus: AnyCorpus, *, has_development: bool = False) -> records.CorpusText:
    """Describe where text is from, and how much of it there is.

    Args:
        places: Its sources, some perhaps several times.
        corpus: The text of the first stage, or of a run without stages.
        has_development: The held-out rows are development rows.
    """
    manifest = corpus.manifest
    is_streamed = isinstance(corpus, StreamedCorpus)
    return records.CorpusText(
        sources=_described_once(_read_places(places, corpus)),
        # How much text a stream has is unknown; the corpus knows only its beginning.
        documents=None if is_streamed else manifest["documents"],
        trained_documents=None if is_streamed else _trained_documents(corpus, has_development=has_development),
        held_out_documents=manifest["held_out_documents"],
        queries=manifest.get("queries"),
        trained_queries=manifest.get("trained_queries"),
        held_out_queries=manifest.get("held_out_queries"),
        tokens=None if is_streamed else corpus.tokens,
        report=records.SourceNotes.read(manifest["report"]),
    )


def _trained_documents(corpus: AnyCorpus, *, has_development: bool) -> int:
    """Return how many documents or rows are trained on.

    Args:
        corpus: The corpus, which is no stream.
        has_development: The held-out rows are development rows.
    """
    manifest = corpus.manifest
    # Text has no such entry, and labelled rows lack it in caches of earlier versions.
    if "trained_documents" in manifest:
        return int(manifest["trained_documents"])
    if has_development:
        return int(manifest["documents"] - manifest["report"]["counts"].get(REPEATED, 0))
    # Of a document that is too short no block is made. Caches of earlier versions do not have their number.
    dropped_documents = manifest["splits"]["train"].get("dropped_documents", 0)
    return int(manifest["documents"] - manifest["held_out_documents"] - dropped_documents)


def _check_groups(stage: StagePlan, corpus: AnyCorpus) -> None:
    """Refuse rows of one document a query for a stage that compares the documents of a query."""
    assert isinstance(stage.corpus, LabelledSettings)
    most = stage.corpus.documents_per_query
    if most < 2:
        raise stage.single_documents_error()
    documents_of_queries = np.diff(texts.GroupedRows(corpus.train, corpus.train, most).bounds)
    if max(documents_of_queries) < 2:
        raise stage.single_documents_error()


def _print_summary(stage: StagePlan, corpus: AnyCorpus, console: Console) -> None:
    """Print the size of a corpus, its held-out part, and notes on text that was left out or repaired."""
    unit = "row" if isinstance(corpus, LabelledCorpus) else "document"
    summary = _summary_line(corpus, unit, has_development=stage.development is not None)
    console.print(summary, highlight=False, markup=False, soft_wrap=True)
    if not corpus.manifest["held_out_documents"]:
        warn(console, f"  no {unit} is held out, so the student is not measured on held-out text")
    task = _task_without_development(stage)
    if task is not None:
        warn(
            console, f"  {task} has no development rows in its files, so some training rows are held out in their place"
        )
    # Only the manifest of a ranking counts queries.
    are_pairs = "queries" in corpus.manifest
    for line in (*corpus.describe_rows(), *corpus.report.lines(of_pairs=are_pairs)):
        console.print(f"  {line}", style="dim", highlight=False, markup=False, soft_wrap=True)


def _task_without_development(stage: StagePlan) -> str | None:
    """Return the title of a stage's task if training rows are held out, since the task has no development rows.

    Returns:
        The title. None for text, for rows that do not belong to a task, for a task with development rows, and where the
        recipe itself says how many rows are held out.
    """
    corpus = stage.corpus
    if not isinstance(corpus, LabelledSettings) or not isinstance(corpus.rows, TaskRows):
        return None
    if stage.development is not None or corpus.held_out is not None:
        return None
    return corpus.rows.task.title


def _summary_line(corpus: AnyCorpus, unit: str, *, has_development: bool) -> str:
    """Return one line with how much text there is, and how much is held out.

    Args:
        corpus: The corpus.
        unit: The unit of the counts: "row" or "document".
        has_development: The held-out rows are development rows.
    """
    held_out_count = corpus.manifest["held_out_documents"]
    # Of a ranking; corpora of earlier versions have no counts of queries.
    held_out_queries = corpus.manifest.get("held_out_queries")
    held_out = f"{counted_rows(held_out_count, held_out_queries, unit)} held out"
    if has_development:
        held_out = counted_rows(held_out_count, held_out_queries, "development row")
    if isinstance(corpus, StreamedCorpus):
        sources = ", ".join(f"{source.name} ({source.share:.1%})" for source in corpus.sources)
        count = corpus.manifest["documents"]
        return f"Stream: {sources}; {held_out} of the first {count:,}"
    trained = _trained_documents(corpus, has_development=has_development)
    text = counted_rows(trained, corpus.manifest.get("trained_queries"), unit)
    copies = corpus.manifest.get("augmented")
    if copies:
        text += f" and {copies:,} augmented copies"
    if isinstance(corpus, LabelledCorpus) and not corpus.manifest["settings"].get("labelled", True):
        text += " without labels"
    return f"Corpus: {text}, {corpus.tokens:,} tokens to train on; {held_out}"


def _describe_view(
    stage: StagePlan, settings: CorpusSettings | LabelledSettings, view: AnyCorpus
) -> records.CorpusView:
    """Describe the text of a stage at one of its lengths."""
    described = records.CorpusView(
        stage=stage.spec.title,
        # Only text without labels is cut into units. Labelled rows stay whole.
        unit=getattr(stage.corpus, "unit", "row"),
        length=settings.length,
        **_size_fields(view),
        fingerprint=view.path.name,
        content=view.content,
        roles=view.shares_of_roles() or None,
        pieces=view.rows_by_unit() or None,
    )
    if not stage.pairing.labelled:
        described.labelled = False  # Records have the field only where rows lack their labels.
    if view.languages:
        described.languages = _describe_languages(view)
    return described


def _describe_languages(view: AnyCorpus) -> list[records.LanguageRows]:
    """Describe the rows to train on of each language."""
    share_of_language = view.shares_of_languages()
    rows_of_language = view.rows_by_language()
    described = []
    for language, share in share_of_language.items():
        described.append(records.LanguageRows(language=language, rows=rows_of_language.get(language), share=share))
    return described


def _size_fields(corpus: AnyCorpus) -> dict[str, Any]:
    """Return the fields of a `CorpusView` for its size, which a stream lacks, and for the shares of its sources."""
    if isinstance(corpus, StreamedCorpus):
        return {"streamed": True, "shares": dict(zip(corpus.titles, corpus.shares(), strict=True))}
    extent: dict[str, Any] = {"blocks": len(corpus.train), "tokens": corpus.tokens}
    if corpus.mix is not None:
        extent["shares"] = dict(zip(corpus.titles, corpus.shares(), strict=True))
    return extent
