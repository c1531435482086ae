"""Phrase clustering: chunks from a file, their tokens, their vectors, and scores that mean what they say."""

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from limbeck.errors import CorpusError, ModelError
from limbeck.inspection import SpanSample, Subject, cluster_phrases, read_chunks
from limbeck.inspection.phrases import draw_spans, score_clusters
from limbeck.inspection.span_vectors import place_spans, read_ends, span_vectors
from tests.support.inspection import own_hidden, tiny_subject


@pytest.fixture
def text():
    return read_chunks(Path(__file__).with_name("chunks.txt"))


@pytest.fixture
def written(tmp_path):
    def write(content):
        (tmp_path / "chunks.txt").write_text(content)
        return tmp_path / "chunks.txt"

    return write


@pytest.fixture
def many(written):
    """Some hundred spans; the tiny models know their words."""
    words = {"NP": ("the model", "it", "a student of text"), "VP": ("is", "are"), "PP": ("on", "for", "in", "with")}
    lines = []
    for number in range(40):
        for kind, choices in words.items():
            chosen = choices[number % len(choices)].split()
            lines += [f"{word} X {'B' if place == 0 else 'I'}-{kind}" for place, word in enumerate(chosen)]
        lines += [". . O", ""]
    return read_chunks(written("\n".join(lines)))


def test_chunks_and_the_words_between_them(text):
    assert text.sentences[1] == ("We", "'re", "on", "it")
    assert text.spans[:5] == ((0, 0, 1, "NP"), (0, 2, 2, "VP"), (0, 3, 4, "NP"), (0, 5, 6, "O"), (0, 7, 7, "NP"))
    assert Counter(span.label for span in text.spans) == {"NP": 5, "VP": 3, "PP": 1, "O": 2}


def test_an_inside_tag_that_continues_nothing_begins_a_chunk(written):
    path = written("a I-NP\nb I-NP\nc I-VP\nd B-VP\ne O\nf I-VP\n\n\n\ng B-NP\n")
    assert [(span.first, span.last, span.label) for span in read_chunks(path).spans] == [
        (0, 1, "NP"), (2, 2, "VP"), (3, 3, "VP"), (4, 4, "O"), (5, 5, "VP"), (0, 0, "NP"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("A plain sentence .\n", "Line 1 of .* is 'A plain sentence .', but CoNLL-2000 has three columns"),
        ("the DT B-NP\nword\n", "Line 2 of .* is 'word', but CoNLL-2000 has three columns"),
        ("the DT O\n", "holds no chunk"),
        ("", "holds no chunk"),
    ],
)
def test_a_file_without_chunks_is_refused(written, content, words):
    with pytest.raises(CorpusError, match=words):
        read_chunks(written(content))


@pytest.mark.parametrize("family", ["bert", "roberta", "llama"])
def test_spans_are_placed_at_their_first_and_last_piece(text, family):
    subject = tiny_subject(family)
    placed = place_spans(subject, text)
    assert set(placed) == set(text.spans)
    for span, place in placed.items():
        words = text.sentences[span.sentence]
        ids = subject.tokenizer(" ".join(words))["input_ids"][place.first : place.last + 1]
        spelt = "".join(subject.tokenizer.convert_ids_to_tokens(ids)).replace("##", "")
        assert spelt == "".join(words[span.first : span.last + 1]).lower()


def test_spans_that_a_model_cannot_place_are_left_out(written):
    long = "\n".join(["text NN B-NP"] * 200)
    text = read_chunks(written(f"{long}\n\nit PRP B-NP\n\u200b X B-VP\nis VBZ B-VP\n"))
    assert [span[:3] for span in place_spans(tiny_subject(), text)] == [(1, 0, 0), (1, 2, 2)]


def test_a_span_vector_is_ends_product_and_difference():
    first, last = torch.tensor([[1.0, 2.0], [0.0, -1.0]]), torch.tensor([[3.0, 5.0], [4.0, 2.0]])
    assert span_vectors(first, last).tolist() == [[1, 2, 3, 5, 3, 10, -2, -3], [0, -1, 4, 2, 0, -2, -4, -3]]


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_ends_are_the_models_own_vectors_in_the_order_of_the_spans(text, family):
    subject = tiny_subject(family)
    placed = place_spans(subject, text)
    backwards = list(reversed(placed.values()))
    ends = read_ends(subject, text, backwards)
    own = [own_hidden(subject, " ".join(words)) for words in text.sentences]
    assert len(ends) == 5
    for layer, (firsts, lasts) in enumerate(ends):
        for number, placed_span in enumerate(backwards):
            expected = own[placed_span.span.sentence][layer]
            torch.testing.assert_close(firsts[number], expected[placed_span.first], atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(lasts[number], expected[placed_span.last], atol=1e-5, rtol=1e-4)


def test_the_draw_depends_on_the_seed_alone(many):
    sample = SpanSample(labelled=20, unlabelled=6, seed=4)
    drawn = draw_spans(many.spans, sample)
    assert drawn == draw_spans(list(many.spans), sample) == sorted(set(drawn))
    assert Counter(span.label == "O" for span in drawn) == {False: 20, True: 6}
    assert drawn != draw_spans(many.spans, SpanSample(labelled=20, unlabelled=6, seed=5))
    assert draw_spans(many.spans, SpanSample(10**6, 10**6)) == list(many.spans)


def naive_information(labels, clusters):
    """Normalised mutual information by counting: I(labels; clusters) / mean of the two entropies."""
    count = len(labels)
    entropies = [-sum(n / count * math.log(n / count) for n in Counter(side).values()) for side in (labels, clusters)]
    joint, left, right = Counter(zip(labels, clusters, strict=True)), Counter(labels), Counter(clusters)
    shared = sum(n / count * math.log(n * count / (left[a] * right[b])) for (a, b), n in joint.items())
    return shared / (sum(entropies) / 2)


def test_scores_of_clusters_that_are_known():
    centres = {"a": (0.0, 0.0), "b": (50.0, 0.0), "c": (0.0, 50.0)}
    labels = list("aabbbcccca") * 3
    random = np.random.default_rng(0)
    vectors = np.array([centres[label] for label in labels], np.float32) + random.normal(size=(30, 2)).astype("f4")
    none = np.array([], np.int64)
    assert score_clusters(vectors, labels, 3, 0, none) == pytest.approx(1)
    # Two clusters are forced to join two of three labels: which two, k-means decides by their distance.
    vectors[[label == "c" for label in labels]] -= (0, 40)
    joined = ["one" if label in "ac" else "two" for label in labels]
    wanted = naive_information(labels, joined)
    assert 0.3 < wanted < 0.9
    assert score_clusters(vectors, labels, 2, 0, none) == pytest.approx(wanted)
    held = np.arange(20, 30)
    assert score_clusters(vectors, labels, 2, 0, held) == pytest.approx(naive_information(labels[20:], joined[20:]))


def test_runs_differ_by_their_seed_alone():
    random = np.random.default_rng(0)
    vectors, labels = random.normal(size=(60, 8)).astype("f4"), list("abcd") * 15
    scores = [score_clusters(vectors, labels, 4, seed, np.array([], np.int64)) for seed in (0, 1, 2, 0, 1, 2)]
    assert scores[:3] == scores[3:]
    assert len(set(scores)) > 1


def test_models_are_scored_on_the_same_spans(many):
    student, teacher = tiny_subject(name="small", layers=2), tiny_subject("roberta", name="big", seed=5)
    sample = SpanSample(labelled=90, unlabelled=30, seeds=(0, 1))
    found = cluster_phrases([student, teacher], many, sample)
    assert [(model.name, len(model.scores)) for model in found.models] == [("small", 3), ("big", 5)]
    assert found.clusters == 4 == len(found.labels) and found.labels["O"] == 30
    assert found.scored == 120 == sum(found.labels.values()) and found.left_out == 0
    for model in found.models:
        assert all(0 <= score <= 1 for runs in model.scores for score in runs)
        assert model.means[0] == pytest.approx(sum(model.scores[0]) / 2)
        assert model.deviations[0] == pytest.approx(abs(model.scores[0][0] - model.scores[0][1]) / 2)
    # The words tell the kinds apart, so the embeddings must say a good deal; alone, a model scores the same.
    assert min(model.means[0] for model in found.models) > 0.3
    assert cluster_phrases([student], many, sample).models[0] == found.models[0]


def test_held_out_spans_are_the_ones_scored(many):
    found = cluster_phrases([tiny_subject(layers=1)], many, SpanSample(90, 0, clusters=5, held_out=25, seeds=(0,)))
    assert (found.scored, found.clusters) == (25, 5)
    assert "O" not in found.labels


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (
            SpanSample(labelled=3, clusters=10, unlabelled=0),
            "too few spans for 10 clusters: 3 of the 3 drawn spans are left",
        ),
        (
            SpanSample(labelled=20, unlabelled=0, held_out=19),
            "too few spans for 3 clusters: 1 of the 20 drawn spans are left",
        ),
        (SpanSample(labelled=1, unlabelled=0), "1 different labels"),
    ],
)
def test_too_few_spans_are_refused(many, sample, words):
    with pytest.raises(CorpusError, match=words):
        cluster_phrases([tiny_subject(layers=1)], many, sample)


def test_a_tokenizer_without_offsets_is_refused(many):
    with pytest.raises(ModelError, match="use a fast tokenizer"):
        cluster_phrases([Subject("slow", tiny_subject().model, SimpleNamespace(is_fast=False))], many)
