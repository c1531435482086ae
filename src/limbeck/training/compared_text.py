"""The held-out text that a run compares student and teacher on: how much is compared, and whether it is enough."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from transformers import PreTrainedTokenizerBase

from limbeck.core.blocks import counted
from limbeck.core.records.run_evaluation import FEWEST_DOCUMENTS, FEWEST_QUERIES
from limbeck.corpus import CorpusSettings, Document, LabelledCorpus, LabelledSettings
from limbeck.corpus.building.cache_root import cache_root
from limbeck.corpus.building.splitting import held_out_threshold
from limbeck.corpus.stored.arrow_files import lowest_keys
from limbeck.corpus.stored.stored_documents import store_documents
from limbeck.errors import CorpusError
from limbeck.evaluation import Amounts
from limbeck.evaluation.passages import build_search_pairs
from limbeck.evaluation.sentence_pairs import distinct_sentences, text_of
from limbeck.evaluation.similarity_strata import choose_sentences
from limbeck.recipe.plan import RunPlan
from limbeck.training.corpora import build_text_alone
from limbeck.training.rows import AnyCorpus

_Text: TypeAlias = str | tuple[str, str]
"""A text; or its title and the rest."""
_FIRST_TEXTS = 100
"""Held-out texts that are looked at before all of them, since they are enough in most runs."""
_MOST_ADVISED = 0.5
"""Largest share of the documents that a warning advises to hold out."""
_SPARE_SENTENCES = 1.5
"""The sentences that are advised, as a multiple of the fewest that are enough: texts differ in their sentences."""
_SPARE_DOCUMENTS = 2
"""The documents that are advised, as a multiple of the fewest that are enough."""


class _SentenceCount(NamedTuple):
    """The distinct sentences of some texts.

    Attributes:
        documents: Number of the texts that have any.
        sentences: Number of the sentences.
    """

    documents: int
    sentences: int

    @property
    def is_enough(self) -> bool:
        """Whether they are enough to judge a student by its agreement."""
        return self.documents >= FEWEST_DOCUMENTS and self.sentences >= FEWEST_QUERIES


def warning_of_little_text(
    plan: RunPlan, corpora: Sequence[AnyCorpus], tokenizer: PreTrainedTokenizerBase, console: Console
) -> str:
    """Say that the held-out text of a run is too little to judge its student, and what helps; "" where it is enough.

    The figures that a report trusts are an agreement over enough sentences of enough documents, and a retrieval with
    enough passages. One of the two is enough. The recipe may also ask for too few of both.

    Args:
        plan: The plan of the run.
        corpora: The text of each stage.
        tokenizer: The student's tokenizer.
        console: Where progress goes.
    """
    amounts = amounts_of(plan, corpora)
    compares_vectors = plan.recipe.evaluation.enabled and (amounts.pairs > 0 or amounts.retrieval_pairs > 0)
    if not compares_vectors or not corpora:
        return ""
    # Labelled rows have their own scores.
    settings = plan.stages[0].corpus
    if isinstance(settings, LabelledSettings):
        return ""
    texts = held_out_texts(plan, corpora, tokenizer, console)
    # A run without held-out text is warned of elsewhere.
    if not texts:
        return ""

    # Sentences are counted in the first texts, and in all of them only where these are too few.
    count = _count_sentences(texts[:_FIRST_TEXTS])
    if not count.is_enough:
        count = _count_sentences(texts)
    if count.is_enough and amounts.pairs >= FEWEST_QUERIES:
        return ""
    # Passages are counted only where the agreement is not enough.
    if amounts.retrieval_pairs >= FEWEST_QUERIES and _count_passages(texts) >= FEWEST_QUERIES:
        return ""

    # More text does not help where the recipe asks for few pairs.
    if count.is_enough:
        return (
            f"evaluation.pairs is {amounts.pairs:,}, which is too few to judge the student: it takes at least "
            f"{FEWEST_QUERIES}. Start again with --overwrite --set evaluation.pairs={Amounts().pairs}."
        )
    # Here all texts were counted.
    counts = f"{counted(len(texts), 'document')}, with {counted(count.sentences, 'sentence')}"
    advice = _advice(settings, corpora[0].manifest, len(texts), count.sentences)
    return (
        f"The held-out text is too little to judge the student: {counts}. It takes at least {FEWEST_DOCUMENTS} "
        f"documents and {FEWEST_QUERIES} sentences. {advice}"
    )


def _count_sentences(texts: Sequence[_Text]) -> _SentenceCount:
    """Count the distinct sentences of texts."""
    documents = 0
    sentences = 0
    for sentences_of_text in distinct_sentences(list(map(text_of, texts))):
        if sentences_of_text:
            documents += 1
            sentences += len(sentences_of_text)
    return _SentenceCount(documents, sentences)


def measures_of_text(texts: Sequence[_Text] | None, amounts: Amounts) -> list[str]:
    """Return the measures that held-out texts are enough for, in their order: the agreement, the passage retrieval.

    Args:
        texts: The texts; None of a run without text.
        amounts: How much is compared.
    """
    measures: list[str] = []
    if texts is None:
        return measures
    if amounts.pairs > 0 and _are_enough(texts, partial(_choose_sentences, pairs=amounts.pairs)):
        measures.append("agreement")
    if amounts.retrieval_pairs > 0 and _are_enough(texts, partial(build_search_pairs, count=amounts.retrieval_pairs)):
        measures.append("passage retrieval")
    return measures


def _are_enough(texts: Sequence[_Text], choose: Callable[[Sequence[_Text]], object]) -> bool:
    """Whether a measure finds enough in texts; the first ones are looked at before all of them.

    Args:
        texts: The texts.
        choose: Chooses what the measure reads, and raises `CorpusError` for too few texts.
    """
    for some_texts in (texts[:_FIRST_TEXTS], texts):
        with suppress(CorpusError):
            choose(some_texts)
            return True
    return False


def _choose_sentences(texts: Sequence[_Text], pairs: int) -> object:
    """Choose the sentences of the agreement."""
    return choose_sentences(list(map(text_of, texts)), pairs)


def _count_passages(texts: Sequence[str | tuple[str, str]]) -> int:
    """The number of passages for a retrieval, as far as `FEWEST_QUERIES`; 0 for too few for any figure."""
    try:
        return len(build_search_pairs(texts, FEWEST_QUERIES).pairs)
    except CorpusError:
        return 0


def _advice(settings: CorpusSettings, manifest: Mapping[str, Any], held_out: int, sentences: int) -> str:
    """Advise on a share of the documents that is enough, or to give more text.

    Args:
        settings: The settings of the text.
        manifest: The counts of the built text.
        held_out: Number of held-out texts that are compared.
        sentences: Number of their sentences.
    """
    documents = manifest["documents"]
    if sentences == 0:
        return "Give other text, which has whole sentences."
    # As many texts as would have enough sentences, and some to spare, if they were like the held-out ones.
    wanted_sentences = _SPARE_SENTENCES * FEWEST_QUERIES
    wanted_texts = math.ceil(wanted_sentences * held_out / sentences)
    wanted_texts = max(wanted_texts, _SPARE_DOCUMENTS * FEWEST_DOCUMENTS)
    # Of parallel text each language is a document, and one of them is compared.
    wanted = math.ceil(wanted_texts * manifest["held_out_documents"] / held_out)

    keys = None
    if not settings.streaming:
        folder, _ = store_documents(settings, cache_root(None))
        keys = lowest_keys(folder, settings.held_out_documents + 1)
    # Whole percents, so that the number is short.
    for percent in range(1, math.floor(100 * _MOST_ADVISED) + 1):
        share = percent / 100
        number = _count_held_out(settings, share, keys, documents)
        if number >= wanted:
            about = "about " if keys is None else ""
            return (
                f"Start again with --overwrite --set corpus.held_out={share:g}, for {about}{number:,} of "
                f"{documents:,} documents."
            )
    return "Give more text."


def _count_held_out(settings: CorpusSettings, share: float, keys: NDArray[np.uint64] | None, documents: int) -> int:
    """Return how many documents would be held out with a share.

    A document is held out if its key, a hash, is below a threshold. So the number is only about the share of them.

    Args:
        settings: The settings of the text.
        share: The share.
        keys: The lowest keys of the documents; None of a stream, whose number is then an estimate.
        documents: Number of all documents.
    """
    if keys is None:
        return math.floor(share * documents)
    threshold = held_out_threshold(keys, share, settings.held_out_documents)
    return int(np.count_nonzero(keys < np.uint64(threshold)))


def amounts_of(plan: RunPlan, corpora: Sequence[AnyCorpus]) -> Amounts:
    """Return the amounts of the comparison: the recipe's, else the defaults of `Amounts`.

    An amount of 0 leaves its measurement out.
    """
    spec = plan.recipe.evaluation
    default = Amounts()
    pairs = default.pairs if spec.pairs is None else spec.pairs
    retrieval_pairs = default.retrieval_pairs if spec.retrieval_pairs is None else spec.retrieval_pairs
    batch_sizes = default.latency_batch_sizes if spec.batch_sizes is None else tuple(spec.batch_sizes)
    latency_seconds = spec.latency_seconds if spec.speed else 0.0

    # Quality is measured on sentence vectors. A student with the head of a task is trained to give the scores of that
    # task, so its sentence vectors mean nothing.
    has_task_head = plan.head not in (None, "masked_lm")
    if has_task_head or not spec.quality:
        pairs = 0
        retrieval_pairs = 0
    # Retrieval finds documents by their titles, which labelled rows do not have.
    if corpora and isinstance(corpora[0], LabelledCorpus):
        retrieval_pairs = 0

    return Amounts(
        pairs=pairs,
        retrieval_pairs=retrieval_pairs,
        latency_batch_sizes=batch_sizes,
        latency_length=spec.length,
        latency_seconds=latency_seconds,
    )


def held_out_texts(
    plan: RunPlan, corpora: Sequence[AnyCorpus], tokenizer: PreTrainedTokenizerBase, console: Console
) -> list[str | tuple[str, str]] | None:
    """Return the held-out documents of a run: a text each, or its title and the rest; None for a run without text.

    Args:
        plan: The plan of the run.
        corpora: The text of each stage.
        tokenizer: Its tokenizer.
        console: Where progress goes.
    """
    documents = _held_out_documents(plan, corpora, tokenizer, console)
    if documents is None:
        return None
    texts: list[str | tuple[str, str]] = []
    for document in documents:
        # The teacher does not read the languages that it teaches by translations; `_add_languages` measures these.
        is_translation = document.teacher_text not in (None, document.text)
        if is_translation:
            continue
        if document.title:
            texts.append((document.title, document.body))
        else:
            texts.append(document.text)
    return texts


def _held_out_documents(
    plan: RunPlan, corpora: Sequence[AnyCorpus], tokenizer: PreTrainedTokenizerBase, console: Console
) -> Sequence[Document] | None:
    """Return the documents that the first stage holds out; without stages, the held-out ones of the recipe's text."""
    if corpora:
        return corpora[0].held_out_documents()
    # A recipe without stages trains nothing, but may name a text to compare the models on.
    settings = plan.text_alone
    if settings is None:
        return None
    return build_text_alone(settings, tokenizer, console).held_out_documents()
