"""Clusters of phrases by a layer's vectors: k-means on spans, scored by normalised mutual information."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.errors import CorpusError
from limbeck.inspection.chunked_text import OUTSIDE, ChunkedText, Span
from limbeck.inspection.results import LayerScores, PhraseClustering, SpanSample
from limbeck.inspection.span_vectors import place_spans, read_ends, span_vectors
from limbeck.inspection.subject import Subject

_STARTS = 10
"""Starts of k-means; scikit-learn's default when the figures of Jawahar et al. were made."""
_READING = 0.4
"""The share of the time that reading takes, roughly; the rest is clustering."""


def cluster_phrases(
    subjects: Sequence[Subject], text: ChunkedText, sample: SpanSample | None = None, *, report: Report = no_progress
) -> PhraseClustering:
    """Cluster span vectors of every layer with k-means, and score the clusters against the chunk labels.

    MiniLM (arXiv 2002.10957, section 4.4 and table 10) draws labelled chunks and unlabelled spans from CoNLL-2000,
    takes their vectors as Jawahar et al. do, and reports the normalised mutual information per layer; it says neither
    how many spans nor which k. Jawahar et al. 2019 (ACL P19-1356, section 3) take 3,000 and 500, and k = the number of
    labels; their published code clusters 3,000 of those and scores the other 500, which `held_out=500` does.

    Args:
        subjects: One model, or student and teacher; each reads the text with its own tokenizer.
        text: Chunked sentences.
        sample: Which spans, and how; None for the defaults.
        report: Receives progress.

    Raises:
        CorpusError: if there are too few spans, or of one label only.
        ModelError: if a tokenizer cannot tell which characters its tokens are of.
    """
    sample = sample or SpanSample()
    places = [place_spans(subject, text) for subject in subjects]
    usable = [span for span in text.spans if all(span in placed for placed in places)]
    drawn = draw_spans(usable, sample)
    labels = [span.label for span in drawn]
    clusters = sample.clusters or len(set(labels))
    _check_sizes(labels, clusters, held_out=sample.held_out)
    held_out = np.random.default_rng(sample.seed).permutation(len(drawn))[: sample.held_out]

    models = []
    for number, (subject, placed) in enumerate(zip(subjects, places, strict=True)):
        of_subject = part_of(report, number / len(subjects), (number + 1) / len(subjects))
        reading = part_of(of_subject, 0, _READING)
        clustering = part_of(of_subject, _READING, 1)
        ends = read_ends(subject, text, [placed[span] for span in drawn], report=reading)
        scores = []
        for layer, (first, last) in enumerate(ends):
            title = f"Clustering layer {layer} of {subject.name}"
            clustering(layer / len(ends), title, Count(layer, "layers"))
            vectors = span_vectors(first, last).numpy()
            runs = [score_clusters(vectors, labels, clusters, seed, held_out) for seed in sample.seeds]
            scores.append(tuple(runs))
        models.append(LayerScores(subject.name, tuple(scores)))
    report(1.0, "Clustered")
    return PhraseClustering(
        models=tuple(models),
        labels=dict(Counter(labels).most_common()),
        clusters=clusters,
        scored=len(held_out) or len(drawn),
        left_out=len(text.spans) - len(usable),
        sample=sample,
    )


def score_clusters(
    vectors: NDArray[np.float32], labels: Sequence[str], clusters: int, seed: int, held_out: NDArray[np.int64]
) -> float:
    """Cluster vectors with k-means, and return the normalised mutual information with their labels.

    The information is normalised by the arithmetic mean of the two entropies, which is scikit-learn's default.

    Args:
        vectors: `[spans, features]`.
        labels: One a span.
        clusters: k.
        seed: Of k-means.
        held_out: Spans that are scored and not clustered; with none, all are clustered and scored.
    """
    # Imported here: a run reads one measure of layers, and needs no clustering.
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    k_means = KMeans(clusters, n_init=_STARTS, random_state=seed)
    true_labels = np.array(labels)
    if len(held_out) == 0:
        return float(normalized_mutual_info_score(true_labels, k_means.fit_predict(vectors)))
    k_means.fit(np.delete(vectors, held_out, axis=0))
    return float(normalized_mutual_info_score(true_labels[held_out], k_means.predict(vectors[held_out])))


def draw_spans(spans: Sequence[Span], sample: SpanSample) -> list[Span]:
    """Draw labelled and unlabelled spans without replacement, all where there are fewer; the seed decides which.

    Returns:
        The spans that were drawn, in the order of the text.
    """
    labelled = [span for span in spans if span.label != OUTSIDE]
    unlabelled = [span for span in spans if span.label == OUTSIDE]
    # The order of the two draws decides which random numbers each gets.
    random = np.random.default_rng(sample.seed)
    drawn = [labelled[index] for index in random.permutation(len(labelled))[: sample.labelled]]
    drawn += [unlabelled[index] for index in random.permutation(len(unlabelled))[: sample.unlabelled]]
    return sorted(drawn)


def _check_sizes(labels: Sequence[str], clusters: int, *, held_out: int) -> None:
    """Refuse spans of one label, or fewer spans to cluster than clusters."""
    if len(set(labels)) < 2:
        raise CorpusError(
            f"The spans that were drawn have {len(set(labels))} kinds of label, but at least two are needed; draw "
            "more spans, or give a file with more kinds of chunks."
        )
    left = len(labels) - held_out
    if left < clusters:
        raise CorpusError(
            f"There are too few spans for {clusters} clusters: of {len(labels)} that were drawn, {left} are left "
            "to cluster; draw more, hold fewer out, or ask for fewer clusters."
        )
