"""Figures of a student by language: its agreement with the teacher, and whether translations find each other.

Of parallel text the teacher reads its own language in place of each, so the figures of a language say how well the
student puts its sentences where the teacher puts their translations.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from limbeck.core.progress import no_progress
from limbeck.core.records import LanguageFigures
from limbeck.core.records.run_evaluation import FEWEST_QUERIES
from limbeck.corpus import Document
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.evaluation.compare import Side
from limbeck.evaluation.evaluators.document_search import Search
from limbeck.evaluation.similarities import spearman_agreement

MOST_TEXTS = 500
"""Most held-out texts of a language that are compared, of few languages."""
MOST_TEXTS_IN_ALL = 3000
"""Held-out texts of all languages that are compared, so that a hundred languages do not take hours. Of many languages,
`FEWEST_QUERIES` texts of each are compared all the same, since a model card leaves out the figures of fewer."""
FEWEST_TEXTS = 20
"""Fewest texts of a language for figures, since of fewer they would be chance."""


def measure_languages(
    teacher: Side, student: Side, documents_of_language: Mapping[str, Sequence[Document]]
) -> list[LanguageFigures]:
    """Measure a student in each language of held-out documents.

    Args:
        teacher: The teacher.
        student: The student.
        documents_of_language: Held-out documents of each language.

    Returns:
        The figures of each language; those of a language with too few documents have their number alone, and only
        documents with a translation count for whether translations find each other.

    Raises:
        ModelError: for a teacher whose outputs are stored, if it has none of these texts.
    """
    even_part = MOST_TEXTS_IN_ALL // max(len(documents_of_language), 1)
    texts_of_each = max(FEWEST_QUERIES, min(MOST_TEXTS, even_part))
    measured = []
    for language, documents in documents_of_language.items():
        # A text that comes twice would have a similarity of 1 with itself, for both models.
        document_of_text = {document.text: document for document in documents}
        distinct = list(document_of_text.values())
        measured.append(_measure_language(teacher, student, language, distinct[:texts_of_each]))
    return measured


def _measure_language(teacher: Side, student: Side, language: str, distinct: Sequence[Document]) -> LanguageFigures:
    """Measure a student in one language, on documents with different texts; see `measure_languages`."""
    figures = LanguageFigures(language=language, texts=len(distinct))
    if len(distinct) < FEWEST_TEXTS:
        return figures
    texts = [document.text for document in distinct]
    # Of parallel text the teacher reads a translation.
    teacher_texts = [document.teacher_text or document.text for document in distinct]
    student_vectors = _encode(student, texts)
    teacher_vectors = _encode(teacher, teacher_texts)
    figures.agreement = spearman_agreement(_similarities(student_vectors), _similarities(teacher_vectors))

    # Text without a translation, which may stand beside parallel text, would find itself.
    places = [place for place, text in enumerate(texts) if teacher_texts[place] != text]
    if len(places) >= FEWEST_TEXTS:
        sentences = [texts[place] for place in places]
        translations = [teacher_texts[place] for place in places]
        # Both sides are the student's, as they are in a search across languages.
        sentence_vectors = student_vectors[places]
        translation_vectors = _encode(student, translations)
        figures.to_teacher_language = _accuracy(sentences, sentence_vectors, translations, translation_vectors)
        figures.from_teacher_language = _accuracy(translations, translation_vectors, sentences, sentence_vectors)
    return figures


def _encode(side: Side, texts: Sequence[str]) -> Tensor:
    """Return the vectors of texts, `[texts, width]`, of length one."""
    # `encode` takes pairs, and encodes a text that comes twice once.
    vectors, _ = side.encode([(text, text) for text in texts], no_progress)
    return vectors


def _similarities(vectors: Tensor) -> Tensor:
    """Return the cosines of all pairs of different texts, flat."""
    rows, columns = torch.triu_indices(len(vectors), len(vectors), offset=1)
    return (vectors @ vectors.T)[rows, columns]


def _accuracy(queries: Sequence[str], query_vectors: Tensor, documents: Sequence[str], vectors: Tensor) -> float:
    """Return the share of sentences whose nearest sentence of the other language is a translation.

    Args:
        queries: Sentences of one language.
        query_vectors: Their vectors.
        documents: Their translations, in the same order.
        vectors: The vectors of the translations.
    """
    rows = [LabelledRow("", query, document, 1.0) for query, document in zip(queries, documents, strict=True)]
    search = Search.of(rows, "the held-out text")
    # The search has each repeated sentence once, so the vectors are those of its first place.
    query_places = [queries.index(query) for query in search.queries]
    document_places = [documents.index(document) for document in search.documents]
    scores = search.score(query_vectors[query_places], vectors[document_places])
    return scores["accuracy_at_1"]
