"""Clusters of phrases by a layer's vectors: k-means on spans, scored by normalised mutual information."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.corpus.small_files import read_plain_lines
from limbeck.errors import CorpusError, ModelError
from limbeck.inspection.subject import Subject, layer_keys
from limbeck.models import taps, tokenizers
from limbeck.models.inference import batches

# Chunked text in the CoNLL-2000 format: sentences of words, and the spans that its tags mark.


OUTSIDE = "O"
_TAG = re.compile(r"O|[BI]-\S+")


class Span(NamedTuple):
    """Neighbouring words of a sentence.

    Args:
        sentence: Number of the sentence in the file, from 0.
        first: Its first word, from 0.
        last: Its last word; a span of one word has both alike.
        label: The chunk type, such as `NP`; `O` for words between chunks.
    """

    sentence: int
    first: int
    last: int
    label: str


@dataclass(frozen=True)
class ChunkedText:
    """A file of chunked sentences.

    Attributes:
        sentences: The words of each.
        spans: All chunks, and all runs of words between them, in the order of the text.
    """

    sentences: tuple[tuple[str, ...], ...]
    spans: tuple[Span, ...]


def read_chunks(path: Path | str) -> ChunkedText:
    """Read a file in the CoNLL-2000 format.

    It has a word a line, its chunk tag in the last column, and a blank line after each sentence. Tags are `B-TYPE`
    where a chunk begins, `I-TYPE` within one and `O` outside; an `I-` that continues nothing begins a chunk.

    Raises:
        CorpusError: naming the line, if there are no columns or the last one holds no chunk tag; if there is no chunk.
    """
    sentences: list[tuple[str, ...]] = []
    spans: list[Span] = []
    lines = enumerate(read_plain_lines(Path(path)), start=1)
    for is_blank, block in groupby(lines, key=lambda line: not line[1].strip()):
        if not is_blank:
            words, tags = zip(*(_read_word(path, *line) for line in block), strict=True)
            spans += _spans(tags, len(sentences))
            sentences.append(words)
    if all(span.label == OUTSIDE for span in spans):
        raise CorpusError(f"'{path}' holds no chunks; give a file in the CoNLL-2000 format.")
    return ChunkedText(tuple(sentences), tuple(spans))


def _read_word(path: Path | str, number: int, line: str) -> tuple[str, str]:
    """Return a word and its tag."""
    columns = line.split()
    if len(columns) < 2 or not _TAG.fullmatch(columns[-1]):
        raise CorpusError(
            f"Line {number} of '{path}' is '{line.strip()[:40]}', without the columns of CoNLL-2000: a word, "
            "its part of speech, and a chunk tag such as B-NP, I-NP or O."
        )
    return columns[0], columns[-1]


def _spans(tags: Sequence[str], sentence: int) -> list[Span]:
    """Cut a sentence into its chunks and the runs of words between them."""
    spans: list[Span] = []
    for place, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        label = kind or OUTSIDE
        if mark != "B" and spans and spans[-1].label == label:
            spans[-1] = spans[-1]._replace(last=place)
        else:
            spans.append(Span(sentence, place, place, label))
    return spans


# Vectors of spans of words: where a span's tokens are, and what every layer holds there.
#
# Axis letters: H width of a model, N its layers.


def span_vectors(first: Tensor, last: Tensor) -> Tensor:
    """Join the vectors of the first and the last token, their element-wise product, and their difference.

    Args:
        first: `[spans, H]`.
        last: `[spans, H]`.

    Returns:
        `[spans, 4 H]`: first, last, first * last, first - last.

    Source:
        Jawahar et al. 2019 (ACL P19-1356) section 3.
    """
    return torch.cat([first, last, first * last, first - last], dim=1)


def place_spans(subject: Subject, text: ChunkedText) -> dict[Span, tuple[int, int]]:
    """Find the first token of each span's first word, and the last token of its last word.

    A sentence is given to the tokenizer as its words with a space between them, so that it is split as any other text
    is; words are found again by their characters. Spans are left out whose sentence is too long for the model, or whose
    first or last word has no token.

    Raises:
        ModelError: if the tokenizer does not know which characters its tokens are of.
    """
    if not subject.tokenizer.is_fast:
        raise ModelError(
            f"The tokenizer of '{subject.name}' does not say which characters its tokens cover; use a fast tokenizer "
            "(one with a tokenizer.json)."
        )
    encoded = tokenizers.encode_texts(subject.tokenizer, [" ".join(words) for words in text.sentences])
    starts = [np.cumsum([0, *(len(word) + 1 for word in words)]) for words in text.sentences]
    longest = subject.longest
    placed: dict[Span, tuple[int, int]] = {}
    for span in text.spans:
        if longest is not None and len(encoded["input_ids"][span.sentence]) > longest:
            continue
        begin, end = int(starts[span.sentence][span.first]), int(starts[span.sentence][span.last + 1]) - 2
        first, last = encoded.char_to_token(span.sentence, begin), encoded.char_to_token(span.sentence, end)
        if first is not None and last is not None:
            placed[span] = (first, last)
    return placed


@torch.no_grad()
def read_ends(
    subject: Subject, text: ChunkedText, placed: Mapping[Span, tuple[int, int]], *, report: Report = no_progress
) -> list[tuple[Tensor, Tensor]]:
    """Read the vectors of the first and of the last token of every span, all layers in one forward.

    Args:
        subject: The model.
        text: The text that the spans are of; only their sentences are read.
        placed: Each span's first and last token, see `place_spans`.
        report: Receives progress.

    Returns:
        For layers 0 to N the two, `[spans, H]` each, float32, on the CPU, in the order of `placed`.
    """
    chosen = sorted({span.sentence for span in placed})
    rows = tokenizers.encode_texts(subject.tokenizer, [" ".join(text.sentences[sentence]) for sentence in chosen])[
        "input_ids"
    ]
    in_sentence: dict[int, list[tuple[int, int, int]]] = {sentence: [] for sentence in chosen}
    for number, (span, (first, last)) in enumerate(placed.items()):
        in_sentence[span.sentence].append((number, first, last))
    keys = layer_keys(subject.model)
    ends: list[list[Tensor]] = [[] for _ in keys]
    order: list[int] = []
    what = f"Reading with {subject.name}"
    with taps.evaluation_mode(subject.model), taps.StreamTap(subject.model, keys) as tap:
        for batch in batches(rows, subject.tokenizer, device=subject.device, report=report, what=what):
            streams = tap(**batch.inputs)
            found = [(place, *span) for place, row in enumerate(batch.rows) for span in in_sentence[chosen[row]]]
            places, numbers, firsts, lasts = (list(column) for column in zip(*found, strict=True))
            order += numbers
            for key, kept in zip(keys, ends, strict=True):
                stream = streams[key]
                kept.append(torch.stack([stream[places, firsts], stream[places, lasts]]).float().cpu())
    back = torch.tensor(order).argsort()
    joined = (torch.cat(kept, dim=1)[:, back] for kept in ends)
    return [(both[0], both[1]) for both in joined]


_STARTS = 10  # what scikit-learn did by default when the figures of Jawahar et al. were made
_READING = 0.4  # of the time, roughly; the rest is clustering


@dataclass(frozen=True)
class SpanSample:
    """Which spans are clustered, and how.

    Args:
        labelled: Chunks to draw.
        unlabelled: Spans between chunks to draw, with the label `O`.
        clusters: k; None for as many as there are labels among the spans that are drawn.
        held_out: Spans that are scored but not clustered; 0 scores those that are clustered.
        seed: Of the draw.
        seeds: Of k-means, one run each.
    """

    labelled: int = 3000
    unlabelled: int = 500
    clusters: int | None = None
    held_out: int = 0
    seed: int = 0
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class LayerScores:
    """One model.

    Attributes:
        name: The model.
        scores: For layers 0 to N the normalised mutual information of each run of k-means, 0 to 1.
    """

    name: str
    scores: tuple[tuple[float, ...], ...]

    @property
    def means(self) -> tuple[float, ...]:
        """The mean over the runs, for layers 0 to N."""
        return tuple(fmean(runs) for runs in self.scores)

    @property
    def deviations(self) -> tuple[float, ...]:
        """The standard deviation over the runs (of them, not of a population they are drawn from)."""
        return tuple(pstdev(runs) for runs in self.scores)


@dataclass(frozen=True)
class PhraseClustering:
    """The scores of models on the same spans.

    Attributes:
        models: The models, in the order they were given in.
        labels: Number of spans of each label, the most frequent first.
        clusters: k.
        scored: Spans that the scores are over.
        left_out: Spans of the file that a model could not place, in sentences too long for it or words without a token.
        sample: The request.
    """

    models: tuple[LayerScores, ...]
    labels: dict[str, int]
    clusters: int
    scored: int
    left_out: int
    sample: SpanSample


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
    _check_sizes(labels, clusters, sample.held_out)
    held_out = np.random.default_rng(sample.seed).permutation(len(drawn))[: sample.held_out]
    models = []
    for number, (subject, placed) in enumerate(zip(subjects, places, strict=True)):
        own = part_of(report, number / len(subjects), (number + 1) / len(subjects))
        ends = read_ends(subject, text, {span: placed[span] for span in drawn}, report=part_of(own, 0, _READING))
        scores = []
        for layer, (first, last) in enumerate(ends):
            what, done = f"Clustering layer {layer} of {subject.name}", Count(layer, "layers")
            part_of(own, _READING, 1)(layer / len(ends), what, done)
            vectors = span_vectors(first, last).numpy()
            scores.append(tuple(score_clusters(vectors, labels, clusters, seed, held_out) for seed in sample.seeds))
        models.append(LayerScores(subject.name, tuple(scores)))
    report(1.0, "Clustered")
    counted = dict(Counter(labels).most_common())
    scored = len(held_out) or len(drawn)
    return PhraseClustering(tuple(models), counted, clusters, scored, len(text.spans) - len(usable), sample)


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
    kept = np.array(labels)
    if len(held_out) == 0:
        return float(normalized_mutual_info_score(kept, k_means.fit_predict(vectors)))
    k_means.fit(np.delete(vectors, held_out, axis=0))
    return float(normalized_mutual_info_score(kept[held_out], k_means.predict(vectors[held_out])))


def draw_spans(spans: Sequence[Span], sample: SpanSample) -> list[Span]:
    """Draw labelled and unlabelled spans without replacement, all where there are fewer; the seed decides which.

    Returns:
        The spans that were drawn, in the order of the text.
    """
    random = np.random.default_rng(sample.seed)
    drawn: list[Span] = []
    for count, is_chunk in ((sample.labelled, True), (sample.unlabelled, False)):
        kind = [span for span in spans if (span.label != OUTSIDE) == is_chunk]
        drawn += [kind[index] for index in random.permutation(len(kind))[:count]]
    return sorted(drawn)


def _check_sizes(labels: Sequence[str], clusters: int, held_out: int) -> None:
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
