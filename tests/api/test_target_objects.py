"""What a teacher said as objects: arrays, dictionaries and tables, in the place of a teacher."""

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from limbeck.api.objects import Objects
from limbeck.corpus.text.text_keys import text_key
from limbeck.errors import LimbeckError, RecipeError
from limbeck.recipe.teacher_targets import TARGET_KEYS, TargetKeys
from limbeck.targets.file_store import store_of_file
from limbeck.targets.store import Store

TEXTS = [f"A text of words that has the number {number}." for number in range(6)]
VECTORS = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
TABLE = pd.DataFrame({"body": TEXTS, "embedding": list(VECTORS)})
COLUMNS = {"text": "body", "vector": "embedding"}


@pytest.fixture
def objects(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    return Objects(tmp_path / "run")


def stored(keys, texts=TEXTS, pairs=None):
    """The targets of some texts in the file that a teacher's keys name."""
    assert set(keys) <= set(TARGET_KEYS)
    file = TargetKeys.model_validate(keys).target_file
    pairs = pairs or [None] * len(texts)
    text_keys = np.array([text_key(text, pair=pair) for text, pair in zip(texts, pairs, strict=True)])
    return Store(store_of_file(file).folder).read(text_keys)[file.stream]


@pytest.mark.parametrize(
    "teacher",
    [
        VECTORS,
        VECTORS.tolist(),
        list(VECTORS),
        torch.tensor(VECTORS),
        torch.tensor(VECTORS, requires_grad=True),
        dict(zip(TEXTS, VECTORS, strict=True)),
        dict(zip(reversed(TEXTS), torch.tensor(VECTORS).flip(0), strict=True)),
        {"targets": VECTORS},
        {"targets": TABLE, **COLUMNS},
        {"targets": pa.Table.from_pandas(TABLE), **COLUMNS},
        {"targets": datasets.Dataset.from_pandas(TABLE), **COLUMNS},
    ],
    ids=lambda teacher: type(teacher).__name__,
)
@pytest.mark.parametrize(
    "corpus", [TEXTS, pd.Series(TEXTS), {"sources": TEXTS}], ids=lambda corpus: type(corpus).__name__
)
def test_vectors_of_every_kind_become_a_file(teacher, corpus, objects):
    keys = objects.teacher(teacher, corpus=corpus)
    assert np.array_equal(stored(keys), VECTORS)
    assert keys["targets"] in objects.notes["teacher.targets"]


def test_half_precision_of_torch_is_exact(objects):
    half = torch.tensor(VECTORS).bfloat16()
    assert np.array_equal(stored(objects.teacher(half, corpus=TEXTS)), half.float().numpy())


def test_scores_and_labels_of_texts_and_numbers_of_pairs(objects):
    classes = ["no", "yes"]
    probabilities = np.stack([np.linspace(0.1, 0.9, 6), 1 - np.linspace(0.1, 0.9, 6)], axis=1)
    scores = stored(objects.teacher({"targets": probabilities, "scores": {"classes": classes}}, corpus=TEXTS))
    assert np.allclose(scores, np.log(probabilities), atol=1e-6)
    labels = {"targets": ["no", "yes"] * 3, "scores": {"classes": classes, "form": "labels"}}
    assert stored(objects.teacher(labels, corpus=TEXTS)).argmax(axis=1).tolist() == [0, 1] * 3
    values = np.arange(6, dtype=np.float32)
    assert stored(objects.teacher(values, corpus=TEXTS))[:, 0].tolist() == values.tolist()
    pairs = {("a query", text): float(number) for number, text in enumerate(TEXTS)}
    assert stored(objects.teacher(pairs), ["a query"] * 6, TEXTS)[:, 0].tolist() == values.tolist()


@pytest.mark.parametrize(
    ("teacher", "corpus", "message"),
    [
        (VECTORS, None, "teacher: an array of targets holds no texts; give corpus as a list of texts"),
        (VECTORS, "texts.txt", "an array of targets holds no texts"),
        (VECTORS, ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt", "f.txt"], "an array of targets holds no texts"),
        (VECTORS[:4], TEXTS, "there are 4 targets, but 6 texts; give one target for each text"),
        ({1: VECTORS[0]}, TEXTS, "the dictionary of targets mixes texts and pairs of texts as keys"),
        ({"a": VECTORS[0], ("a", "b"): VECTORS[1]}, TEXTS, "use only texts, or only pairs of texts"),
        ({"targets": {}}, TEXTS, "has no rows"),
        ([[1.0, 2.0], "two", *VECTORS[2:]], TEXTS, "is neither the name of a model nor"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(teacher, corpus, message, objects):
    with pytest.raises(RecipeError, match=message) as refused:
        objects.teacher(teacher, corpus=corpus)
    assert "\n" not in str(refused.value)


def test_a_table_alone_does_not_say_which_column_is_meant(objects):
    keys = objects.teacher(TABLE, corpus=TEXTS)
    with pytest.raises(ValueError, match="'targets' needs exactly one of the keys 'vector', 'scores' and 'score'"):
        TargetKeys.model_validate(keys)


@pytest.mark.parametrize(
    "teacher", ["name", {"model": "name"}, {"targets": "vectors.parquet"}, {}, {"stored": "store"}]
)
def test_names_stay_as_they_are(teacher, objects):
    expected = {"model": teacher} if isinstance(teacher, str) else teacher
    assert objects.teacher(teacher, corpus=TEXTS) == expected
    assert not objects.notes


def test_an_array_in_a_recipe_has_the_texts_of_its_corpus(objects):
    document = objects.document({"teacher": VECTORS, "corpus": TEXTS})
    assert np.array_equal(stored(document["teacher"]), VECTORS)
    stage = {"teacher": VECTORS[:2], "corpus": {"sources": TEXTS[:2]}}
    document = objects.document({"stages": [stage]})
    assert np.array_equal(stored(document["stages"][0]["teacher"], TEXTS[:2]), VECTORS[:2])
    with pytest.raises(LimbeckError, match=r"stages\.0\.teacher: there are 6 targets, but 2 texts"):
        objects.document({"stages": [stage | {"teacher": VECTORS}]})


def test_a_table_of_arrow_is_a_corpus_too(objects):
    [path] = objects.sources(pa.table({"text": TEXTS}))
    assert pd.read_parquet(path)["text"].tolist() == TEXTS
