"""Clusters of phrases by a layer's vectors: k-means on spans, scored by normalised mutual information.

A *span* is a phrase of a chunked text, with the type of the phrase as its label, or the words between two phrases. The
score is high where the spans of one cluster have one label: then the layer tells types of phrases apart.
"""

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
"""Rough share of a model's time that is spent on reading the text; the rest is clustering. It scales the progress."""


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
        sample: The spans to draw, and the settings of k-means; None for the defaults.
        report: Receives progress.

    Raises:
        CorpusError: if there are too few spans, or if all spans have one label.
        ModelError: if a tokenizer cannot tell which characters its tokens are of.
    """
    if sample is None:
        sample = SpanSample()
    # All models are measured on the same spans: those that each of them can place among its tokens.
    placed_by_subject = [place_spans(subject, text) for subject in subjects]
    usable = [span for span in text.spans if all(span in placed for placed in placed_by_subject)]
    drawn = draw_spans(usable, sample)
    labels = [span.label for span in drawn]
    clusters = sample.clusters or len(set(labels))
    _check_sizes(labels, clusters, held_out=sample.held_out)
    # Indices of the drawn spans that are scored but not clustered.
    held_out = np.random.default_rng(sample.seed).permutation(len(drawn))[: sample.held_out]

    models = []
    for number, (subject, placed) in enumerate(zip(subjects, placed_by_subject, strict=True)):
        # Each model has an equal part of the progress, of which reading is the first share.
        report_subject = part_of(report, number / len(subjects), (number + 1) / len(subjects))
        report_reading = part_of(report_subject, 0, _READING)
        report_clustering = part_of(report_subject, _READING, 1)
        ends_by_layer = read_ends(subject, text, [placed[span] for span in drawn], report=report_reading)
        scores = []
        for layer, (first, last) in enumerate(ends_by_layer):
            title = f"Clustering layer {layer} of {subject.name}"
            report_clustering(layer / len(ends_by_layer), title, Count(layer, "layers"))
            vectors = span_vectors(first, last).numpy()
            runs = [score_clusters(vectors, labels, clusters, seed, held_out) for seed in sample.seeds]
            scores.append(tuple(runs))
        models.append(LayerScores(subject.name, tuple(scores)))
    report(1.0, "Clustered")
    return PhraseClustering(
        models=tuple(models),
        labels=dict(Counter(labels).most_common()),
        clusters=clusters,
        # With no span held out, all are scored.
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
        labels: The label of each span.
        clusters: Number of clusters k.
        seed: Seed of k-means.
        held_out: Indices of the spans that are scored and not clustered; if it is empty, all are clustered and scored.
    """
    # Imported here, since scikit-learn loads slowly and distillation imports this package without clustering anything.
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    k_means = KMeans(clusters, n_init=_STARTS, random_state=seed)
    true_labels = np.array(labels)
    if len(held_out) == 0:
        return float(normalized_mutual_info_score(true_labels, k_means.fit_predict(vectors)))
    # A held-out span goes to the cluster with the nearest centre.
    k_means.fit(np.delete(vectors, held_out, axis=0))
    return float(normalized_mutual_info_score(true_labels[held_out], k_means.predict(vectors[held_out])))


def draw_spans(spans: Sequence[Span], sample: SpanSample) -> list[Span]:
    """Draw as many labelled and unlabelled spans as a sample asks for, without replacement; all where there are fewer.

    Returns:
        The spans that were drawn, in the order of the text.
    """
    labelled = [span for span in spans if span.label != OUTSIDE]
    unlabelled = [span for span in spans if span.label == OUTSIDE]
    # Both draws use one generator: if they changed places, a seed would draw other spans.
    random = np.random.default_rng(sample.seed)
    drawn = [labelled[index] for index in random.permutation(len(labelled))[: sample.labelled]]
    drawn += [unlabelled[index] for index in random.permutation(len(unlabelled))[: sample.unlabelled]]
    return sorted(drawn)


def _check_sizes(labels: Sequence[str], clusters: int, *, held_out: int) -> None:
    """Refuse spans of one label, or fewer spans to cluster than clusters."""
    if len(set(labels)) < 2:
        raise CorpusError(
            f"The spans that were drawn have {len(set(labels))} different labels, but at least two are needed; "
            "draw more spans (--spans), or give a file with more kinds of chunks."
        )
    left = len(labels) - held_out
    if left < clusters:
        raise CorpusError(
            f"There are too few spans for {clusters} clusters: {left} of the {len(labels)} drawn spans are left to "
            "cluster; raise --spans, or lower --held-out or --clusters."
        )
