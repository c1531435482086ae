"""Files of targets: whoever wrote them, each text gets its own target, and a row that cannot be learnt is refused."""

import json
import re

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from limbeck.core.cache import build_once
from limbeck.corpus.text.documents import clean_text
from limbeck.corpus.text.text_keys import text_key
from limbeck.errors import CorpusError
from limbeck.targets.file_store import store_of_file
from limbeck.targets.store import Store
from limbeck.targets.target_file import TargetFile
from limbeck.targets.target_values import LEAST_PROBABILITY

TEXTS = ["A first text.", "  A second,\r\nwith spaces around ", "Ein dritter: größer\u00a0", "word " * 40]
VECTORS = np.random.default_rng(1).standard_normal((len(TEXTS), 6)).astype(np.float32)
CLASSES = ("negative", "neutral", "positive")
PROBABILITIES = softmax(np.random.default_rng(2).standard_normal((len(TEXTS), 3)), axis=1)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))


def vectors_in(place, text="text", column="embedding"):
    return TargetFile(str(place), str(text), column, "vector")


def scores_in(place, form="probabilities", column="scores", **changes):
    return TargetFile(str(place), "text", column, form, classes=CLASSES, **changes)


def read(file, texts, pairs=None):
    """The targets of some texts, and the store that the file became."""
    made = store_of_file(file)
    pairs = [None] * len(texts) if pairs is None else [clean_text(pair) for pair in pairs]
    keys = [text_key(clean_text(text), pair=pair) for text, pair in zip(texts, pairs, strict=True)]
    return Store(made.folder).read(np.array(keys))[file.stream], made


def write_jsonl(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def write_with_pandas(folder):
    path = folder / "vectors.parquet"
    pd.DataFrame({"text": TEXTS, "embedding": list(VECTORS)}).to_parquet(path)
    return vectors_in(path)


def write_with_pyarrow(folder):
    path = folder / "fixed.parquet"
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.reshape(-1)), VECTORS.shape[1])
    pq.write_table(pa.table({"body": TEXTS, "v": vectors}), path, compression="zstd")
    return vectors_in(path, "body", "v")


def write_with_datasets(folder):
    rows = datasets.Dataset.from_dict({"text": TEXTS, "embedding": VECTORS.tolist()})
    rows.save_to_disk(folder / "saved")
    return vectors_in(folder / "saved")


def write_lines(folder):
    rows = [{"text": text, "embedding": vector.tolist()} for text, vector in zip(TEXTS, VECTORS, strict=True)]
    return vectors_in(write_jsonl(folder / "vectors.jsonl", rows))


def write_csv(folder):
    path = folder / "vectors.csv"
    pd.DataFrame({"text": TEXTS, "embedding": [json.dumps(v.tolist()) for v in VECTORS]}).to_csv(path, index=False)
    return vectors_in(path)


def write_array(folder):
    np.save(folder / "vectors.npy", VECTORS.astype(np.float64))
    lines = [" ".join(text.split()) if "\r" in text else text for text in TEXTS]
    (folder / "vectors.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return vectors_in(folder / "vectors.npy", folder / "vectors.txt", None)


def write_hub(folder):
    write_with_pandas(folder)
    hub = folder / "owner" / "vectors"
    hub.mkdir(parents=True)
    (folder / "vectors.parquet").rename(hub / "train.parquet")
    return vectors_in("hub:owner/vectors")


WRITERS = (write_with_pandas, write_with_pyarrow, write_with_datasets, write_lines, write_csv, write_array, write_hub)


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_vectors_are_read_as_others_wrote_them(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path)
    # A line of a text file cannot hold a line break.
    texts = [" ".join(text.split()) if write is write_array and "\r" in text else text for text in TEXTS]
    vectors, made = read(file, texts)
    assert np.array_equal(vectors, VECTORS)
    lengths = np.linalg.norm(VECTORS, axis=1)
    assert made.summary == (
        f"vector (6 numbers) of 4 texts; vectors of length {lengths.min():.3g} to {lengths.max():.3g}"
    )


def test_the_content_identifies_the_teacher_and_not_the_file(tmp_path, monkeypatch):
    identities = set()
    for write in (write_with_pandas, write_lines, write_csv):
        made = store_of_file(write(tmp_path))
        identities.add(Store(made.folder).facts.identity)
    assert len(identities) == 1
    # The same file is not read again, and changed content is another teacher.
    with monkeypatch.context() as patch:
        patch.setattr("limbeck.targets.file_store._StoreMaker.make", lambda _: pytest.fail("read again"))
        assert store_of_file(vectors_in(tmp_path / "vectors.jsonl")).summary.startswith("vector (6 numbers) of 4")
    rows = [{"text": text, "embedding": vector.tolist()} for text, vector in zip(TEXTS, 2 * VECTORS, strict=True)]
    changed = store_of_file(vectors_in(write_jsonl(tmp_path / "vectors.jsonl", rows)))
    assert Store(changed.folder).facts.identity not in identities


def test_probabilities_logits_and_labels_become_logits(tmp_path):
    logits = np.random.default_rng(3).standard_normal((len(TEXTS), 3))
    named = [dict(zip(reversed(CLASSES), map(float, reversed(row)), strict=True)) for row in PROBABILITIES]
    table = pd.DataFrame({"text": TEXTS, "scores": list(PROBABILITIES), "raw": list(logits), "named": named})
    table.to_parquet(tmp_path / "scores.parquet")
    for column in ("scores", "named"):
        values, made = read(scores_in(tmp_path / "scores.parquet", column=column), TEXTS)
        assert np.allclose(softmax(values, axis=1), PROBABILITIES, atol=1e-6)
        assert np.allclose(values, log_softmax(np.log(PROBABILITIES), axis=1), atol=1e-5)
        assert Store(made.folder).facts.labels == CLASSES
    values, _ = read(scores_in(tmp_path / "scores.parquet", "logits", "raw"), TEXTS)
    assert np.allclose(values, logits)


@pytest.mark.parametrize(
    "labels", [["neutral", "positive", "negative", "neutral"], [1, 2, 0, 1], ["1", "2", "0", "1"]], ids=str
)
def test_a_label_is_a_probability_of_one(labels, tmp_path):
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, labels, strict=True)]
    file = scores_in(write_jsonl(tmp_path / "labels.jsonl", rows), "labels", "label")
    if labels[0] == "1":
        # A text that spells a number is the name of a class, and no class has that name.
        with pytest.raises(CorpusError, match=r"has the class '1' .*negative, neutral, positive\)"):
            read(file, TEXTS)
        return
    values, _ = read(file, TEXTS)
    assert values.argmax(axis=1).tolist() == [1, 2, 0, 1]
    assert np.allclose(softmax(values, axis=1).max(axis=1), 1, atol=3 * LEAST_PROBABILITY)


def test_numbers_of_classes_that_a_data_set_names(tmp_path):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=CLASSES[::-1])})
    rows = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, 2, 0]}, features=features)
    rows.save_to_disk(tmp_path / "saved")
    values, _ = read(scores_in(tmp_path / "saved", "labels", "label"), TEXTS)
    # The number 0 of the data set is "positive", the last class of the recipe.
    assert values.argmax(axis=1).tolist() == [2, 1, 0, 2]


def test_classes_that_are_numbers_are_never_counted_from_zero(tmp_path):
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, [1, 2, 3, 1], strict=True)]
    path = write_jsonl(tmp_path / "stars.jsonl", rows)
    values, _ = read(TargetFile(str(path), "text", "label", "labels", classes=("1", "2", "3")), TEXTS)
    assert values.argmax(axis=1).tolist() == [0, 1, 2, 0]
    write_jsonl(path, [{"text": "A text.", "label": 0}])
    with pytest.raises(CorpusError, match="has the class 0"):
        read(TargetFile(str(path), "text", "label", "labels", classes=("1", "2", "3")), TEXTS)


def test_scores_of_pairs_belong_to_both_texts(tmp_path):
    queries = ["who is it", "who is it", " what ", "what"]
    documents = ["It is me.", "It is you.", "That. ", "This."]
    table = pd.DataFrame({"query": queries, "document": documents, "score": [3.5, -1, 0.25, 7]})
    table.to_csv(tmp_path / "scores.csv", index=False)
    file = TargetFile(str(tmp_path / "scores.csv"), "query", "score", "score", "document")
    values, made = read(file, queries, documents)
    assert values[:, 0].tolist() == [3.5, -1, 0.25, 7]
    assert made.summary == "logits (1 number) of 4 pairs"


def test_repeated_texts_are_joined_where_they_agree(tmp_path):
    rows = [{"text": text, "embedding": vector.tolist()} for text, vector in zip(TEXTS, VECTORS, strict=True)]
    # Spaces around a text are none of it, and the last digits of a service differ.
    again = {"text": f" {TEXTS[0]}\n", "embedding": (VECTORS[0] * (1 + 1e-5)).tolist()}
    path = write_jsonl(tmp_path / "vectors.jsonl", [*rows, again, {"text": " ", "embedding": [1, 2]}])
    vectors, made = read(vectors_in(path), TEXTS)
    assert np.array_equal(vectors, VECTORS)
    assert "of 4 texts" in made.summary
    assert "1 row with a text and target of an earlier row" in made.summary
    assert f"1 x row without a text, left out (such as {path}:6)" in made.summary

    write_jsonl(path, [*rows, again | {"embedding": VECTORS[1].tolist()}])
    with pytest.raises(CorpusError, match=re.escape(f"{path}:1 and {path}:5 have the same text, but different")):
        read(vectors_in(path), TEXTS)


def row(embedding, text="A text."):
    return {"text": text, "embedding": embedding}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [row([1, 2, 3]), row([1, 2], "Another.")],
            r":2 has a vector of 2 numbers, but the vector of the first row has 3",
        ),
        ([row([1, float("nan")])], r":1 has a number in 'embedding' that is not finite"),
        ([row([1, 1e39])], "that is not finite"),
        ([row([0, 0])], "has a vector of only zeros"),
        ([row([1e30, 0])], r"a vector of length 1e\+30 in 'embedding', but .* for lengths from 1e-06 to 1e\+06"),
        ([row([0, 1e-15])], "a vector of length 1e-15 in 'embedding', but .* for lengths from 1e-06"),
        ([row(None)], r":1 has a text, but nothing in 'embedding'"),
        ([row("far")], "has 'far' in 'embedding', which is no list of numbers"),
        ([row([[1, 2]])], "which is no list of numbers"),
        ([row([])], "which is no list of numbers"),
        ([{"text": "A text.", "vector": [1]}], r":1 has no column 'embedding', only text, vector"),
        ([{"embedding": [1]}], r"has no column 'text', only embedding"),
        ([row([1], text=7)], "has 7 in its column of texts"),
        ([row([1], text="")], "holds no text with a target: 1 x row without a text, left out"),
    ],
)
def test_rows_that_no_student_could_learn_are_refused_with_their_place(rows, message, tmp_path):
    path = write_jsonl(tmp_path / "vectors.jsonl", rows)
    with pytest.raises(CorpusError, match=message) as refused:
        store_of_file(vectors_in(path))
    assert "\n" not in str(refused.value)
    # Nothing half made is taken for a store the next time.
    with pytest.raises(CorpusError, match=message):
        store_of_file(vectors_in(path))


def test_a_damaged_file_is_named_as_such(tmp_path):
    (tmp_path / "vectors.parquet").write_bytes(b"no parquet")
    with pytest.raises(CorpusError, match=r"holds no text with a target: 1 x damaged file"):
        store_of_file(vectors_in(tmp_path / "vectors.parquet"))


@pytest.mark.parametrize(
    ("value", "form", "message"),
    [
        ([0.2, 0.3], "probabilities", r"has 2 numbers in 'scores', but teacher.scores.classes names 3 classes"),
        (
            [2, -1, 0.5],
            "probabilities",
            "not probabilities, because these sum to 1; if they are logits, set teacher.scores.form to logits",
        ),
        ([0.2, 0.3, 0.1], "probabilities", "not probabilities"),
        ({"negative": 0.4, "other": 0.6}, "probabilities", "has the classes negative, other in 'scores'"),
        ("good", "labels", "has the class 'good' in 'scores', which is not one of teacher.scores.classes .negative"),
        (3, "labels", "has the class 3"),
        ("neutral", "logits", "no list of numbers; set teacher.scores.form to labels"),
        ([[1], [2]], "logits", r"which is no list of numbers\."),
        ([1, 2], "score", "has 2 numbers in 'scores', but 'score' means a single number"),
    ],
)
def test_scores_of_another_form_are_refused(value, form, message, tmp_path):
    path = write_jsonl(tmp_path / "scores.jsonl", [{"text": "A text.", "scores": value}])
    with pytest.raises(CorpusError, match=message):
        store_of_file(scores_in(path, form))


@pytest.mark.parametrize("lines", [3, 5])
def test_an_array_needs_a_line_for_each_row(lines, tmp_path):
    np.save(tmp_path / "vectors.npy", VECTORS)
    (tmp_path / "texts.txt").write_text("".join(f"Line {number}.\n" for number in range(lines)))
    with pytest.raises(CorpusError, match=rf"vectors.npy' has 4 rows, but .*texts.txt' has {lines} lines"):
        store_of_file(vectors_in(tmp_path / "vectors.npy", tmp_path / "texts.txt", None))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array(["a"]), "is an array of <U1"),
        (np.ones((1, 2, 3)), r"of the shape \[1, 2, 3\]"),
        (np.array([{}], dtype=object), "is no array of NumPy"),
    ],
)
def test_arrays_that_are_none_of_numbers_are_refused(values, message, tmp_path):
    np.save(tmp_path / "vectors.npy", values, allow_pickle=True)
    (tmp_path / "texts.txt").write_text("A line.\n")
    with pytest.raises(CorpusError, match=message):
        store_of_file(vectors_in(tmp_path / "vectors.npy", tmp_path / "texts.txt", None))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=30, unique_by=clean_text).filter(
        lambda texts: any(map(clean_text, texts))
    ),
    order=st.randoms(use_true_random=False),
    number=st.integers(0, 2**31),
)
def test_each_text_gets_its_own_vector_in_any_order(texts, order, number, tmp_path_factory):
    folder = tmp_path_factory.mktemp("join")
    vectors = np.random.default_rng(number).standard_normal((len(texts), 3)).astype(np.float32)
    vector_of = dict(zip(texts, vectors, strict=True))
    rows = [{"text": text, "embedding": vector_of[text].tolist()} for text in texts]
    # Every text comes twice, at any two places.
    twice = [*rows, *rows]
    order.shuffle(twice)
    path = write_jsonl(folder / "vectors.jsonl", twice)
    whole = [text for text in texts if clean_text(text)]
    values, _ = read(vectors_in(path), whole)
    assert np.array_equal(values, np.stack([vector_of[text] for text in whole]))


def test_the_progress_of_a_long_file_is_told(tmp_path):
    rows = [{"text": f"Text {number}.", "embedding": [number, 1.0]} for number in range(2500)]
    file = vectors_in(write_jsonl(tmp_path / "long.jsonl", rows))
    reports = []
    store_of_file(file, lambda *report: reports.append(report))
    step = "reading and checking the targets"
    assert reports == [(step, 0, None, "rows"), (step, 1000, None, "rows"), (step, 2000, None, "rows")]
    # What is in the cache is not read again.
    store_of_file(file, lambda *report: reports.append(report))
    assert len(reports) == 3


def test_another_process_that_reads_the_file_is_waited_for(tmp_path, monkeypatch):
    file = vectors_in(write_jsonl(tmp_path / "vectors.jsonl", [{"text": "A text.", "embedding": [1.0]}]))
    steps = []

    def build_later(folder, build, *, waiting):
        waiting()
        return build_once(folder, build)

    monkeypatch.setattr("limbeck.targets.file_store.build_once", build_later)
    store_of_file(file, lambda *report: steps.append(report[0]))
    assert steps == ["waiting for another process that reads the targets", "reading and checking the targets"]
