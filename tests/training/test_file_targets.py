"""Students of a file of targets: as of the same outputs in a store, without a model, and refused where texts lack."""

import io
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from safetensors.torch import load_file
from scipy.special import softmax

import limbeck
from limbeck.corpus.text.text_keys import text_key
from limbeck.errors import CorpusError, LimbeckError, OutputError, RecipeError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.targets.store import Store
from tests.support.models import make_embedding, make_teacher
from tests.support.recipes import recipe_of

TEXTS = [f"The model number {number} is a text of words that we read." for number in range(60)]
VECTORS = np.random.default_rng(1).standard_normal((len(TEXTS), 16)).astype(np.float32)
TRAINING = {"max_steps": 4, "per_device_train_batch_size": 8, "bf16": False}
QUIET = {"enabled": False}


@pytest.fixture
def start(tmp_path):
    """A model with a tokenizer to start from."""
    return make_embedding(tmp_path)


@pytest.fixture
def lines(tmp_path):
    """The texts, a row each."""
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    return path


@pytest.fixture
def vectors(tmp_path):
    """A file of the texts with vectors of another width than any model's."""
    path = tmp_path / "vectors.parquet"
    pd.DataFrame({"text": TEXTS, "embedding": list(VECTORS)}).to_parquet(path)
    return path


def weights_of(result):
    return load_file(result.student / "model.safetensors")


def assert_same_weights(first, second, allowed=1e-6):
    assert first.keys() == second.keys()
    assert max(float((first[name] - second[name]).abs().max()) for name in first) <= allowed


def of_file(start, vectors, output, **changes):
    """A recipe on the vectors of a file; no corpus is given."""
    recipe = recipe_of("", "", {"name": "aligned_embedding"}, output=str(output))
    recipe["teacher"] = {"targets": str(vectors), "vector": "embedding"}
    recipe["student"] = {**recipe["student"], "initialise": {"from": str(start)}}
    del recipe["corpus"]
    return recipe | changes


def test_a_file_teaches_as_a_store_of_the_same_outputs(start, lines, tmp_path):
    # Vectors in a file are compared by their directions, as those of a model whose files scale them to length one.
    modules = json.loads((start / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})
    (start / "modules.json").write_text(json.dumps(modules))
    live = recipe_of(start, lines, {"name": "aligned_embedding"}, output=str(tmp_path / "stored"))
    live["student"]["initialise"] = {"from": str(start)}
    store = tmp_path / "store"
    limbeck.teach(live, output=store)
    of_store = limbeck.distill({**live, "teacher": {"stored": str(store)}})

    # The same numbers, written by pandas.
    outputs = Store(store).read(np.array([text_key(text) for text in TEXTS]))["vector"]
    path = tmp_path / "outputs.parquet"
    pd.DataFrame({"sentence": TEXTS, "v": list(outputs)}).to_parquet(path)
    teacher = {"targets": str(path), "text": "sentence", "vector": "v"}
    of_file = limbeck.distill({**live, "teacher": teacher, "output": str(tmp_path / "file")})
    assert_same_weights(weights_of(of_store), weights_of(of_file))
    assert of_file.record["stages"][0]["teacher"] == f"the targets of {path}"


def test_objects_teach_as_their_file(start, vectors, tmp_path):
    expected = weights_of(limbeck.distill(of_file(start, vectors, tmp_path / "run")))
    table = pd.read_parquet(vectors)
    teachers = {
        "array": VECTORS,
        "dictionary": dict(zip(TEXTS, VECTORS, strict=True)),
        "table": {"targets": table, "vector": "embedding"},
    }
    for name, teacher in teachers.items():
        result = limbeck.distill(of_file(start, "", tmp_path / name, teacher=teacher, corpus=corpus_of(name)))
        assert_same_weights(expected, weights_of(result))


def corpus_of(teacher):
    """The corpus of an array is given beside it; the other objects have their texts."""
    return {"sources": TEXTS, "length": 128} if teacher == "array" else None


def test_a_call_needs_an_array_its_texts_and_a_start(start, tmp_path):
    student = {"shape": "2x24", "initialise": {"from": str(start)}}
    output = tmp_path / "run"
    result = limbeck.distill(
        corpus=TEXTS, teacher=VECTORS, student=student, training=TRAINING, evaluation=QUIET, output=output
    )
    assert result.record["stages"][0]["method"] == "aligned_embedding"
    assert result.record["teacher"]["shape"] == "vector of 16 numbers"
    # The student gives vectors of the file's width.
    from sentence_transformers import SentenceTransformer

    assert SentenceTransformer(str(result.student)).encode(TEXTS[:2]).shape == (2, 16)

    with pytest.raises(RecipeError, match=r"name a model that it starts from as student\.initialise\.from"):
        limbeck.validate(corpus=TEXTS, teacher=VECTORS, student="2x24", training=TRAINING)
    with pytest.raises(RecipeError, match="an array of targets holds no texts; give corpus as a list of texts"):
        limbeck.validate(teacher=VECTORS, student=student)
    with pytest.raises(RecipeError, match="Without a recipe, these options are needed too: --corpus|corpus"):
        limbeck.validate(teacher=str(start), student=student)


def test_a_student_of_a_file_needs_no_other_model(vectors, tmp_path):
    recipe = of_file("", vectors, tmp_path / "run")
    recipe["student"] = {"shape": recipe["student"]["shape"], "vocabulary": {"train": 120}}
    result = limbeck.distill(recipe)
    assert result.record["stages"][0]["steps"] == 4


def test_texts_that_the_file_lacks_are_counted(start, vectors, lines, tmp_path):
    table = pd.read_parquet(vectors)
    table.iloc[:-7].to_parquet(vectors)
    recipe = of_file(start, vectors, tmp_path / "run", corpus={"sources": [str(lines)]})
    with pytest.raises(CorpusError, match=rf"7 of 60 texts are not in the targets of {vectors}, such as .*; add them"):
        limbeck.distill(recipe)
    recipe["corpus"]["unit"] = "sentence"
    table.to_parquet(vectors)
    limbeck.distill(recipe, overwrite=True)


def test_a_text_longer_than_the_student_reads_keeps_its_vector(start, tmp_path):
    long_texts = [f"{text} " * 20 for text in TEXTS]
    teacher = dict(zip(long_texts, VECTORS, strict=True))
    recipe = of_file(start, "", tmp_path / "run", teacher=teacher)
    recipe["corpus"] = {"sources": long_texts, "length": 16}
    result = limbeck.distill(recipe)
    assert result.record["corpus"]["documents"] == 60


@pytest.mark.parametrize("form", ["probabilities", "logits", "labels"])
def test_scores_of_a_model_never_seen_teach_a_classifier(form, start, tmp_path):
    logits = np.random.default_rng(2).standard_normal((len(TEXTS), 3))
    values = {
        "probabilities": list(softmax(logits, axis=1)),
        "logits": list(logits),
        "labels": [["bad", "fair", "good"][index] for index in logits.argmax(axis=1)],
    }
    path = tmp_path / "scores.parquet"
    pd.DataFrame({"text": TEXTS, "said": values[form]}).to_parquet(path)
    recipe = of_file(start, path, tmp_path / "run")
    scores = {"column": "said", "classes": ["bad", "fair", "good"], "form": form}
    recipe["teacher"] = {"targets": str(path), "scores": scores}
    recipe["stages"][0]["method"] = {"name": "output_distribution"}
    result = limbeck.distill(recipe)
    config = json.loads((result.student / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "fair", "2": "good"}
    assert "ForSequenceClassification" in config["architectures"][0]


def test_probabilities_teach_as_the_classifier_that_gave_them(tmp_path, lines):
    classes = {0: "A", 1: "B", 2: "C"}
    label2id = {name: number for number, name in classes.items()}
    teacher = make_teacher(tmp_path, head="classification", id2label=classes, label2id=label2id)
    live = recipe_of(teacher, lines, {"name": "output_distribution"}, output=str(tmp_path / "live"))
    live["corpus"]["task"] = {"kind": "classification", "labelled": False}
    live["student"]["initialise"] = {"from": str(teacher)}
    of_live = weights_of(limbeck.distill(live))
    store = tmp_path / "store"
    limbeck.teach(live, output=store)
    logits = Store(store).read(np.array([text_key(text) for text in TEXTS]))["logits"]
    path = tmp_path / "probabilities.jsonl"
    named = [dict(zip("ABC", row.tolist(), strict=True)) for row in softmax(logits.astype(np.float64), axis=1)]
    path.write_text("\n".join(json.dumps({"text": t, "p": p}) for t, p in zip(TEXTS, named, strict=True)))
    scores = {"column": "p", "classes": ["A", "B", "C"]}
    file = {**live, "teacher": {"targets": str(path), "scores": scores}, "output": str(tmp_path / "file")}
    assert_same_weights(of_live, weights_of(limbeck.distill(file)), 1e-5)


def test_scores_of_pairs_teach_a_reranker(start, tmp_path):
    rows = [
        {"query": f"what is number {query}", "document": text, "score": float(number % 7)}
        for query in range(12)
        for number, text in enumerate(TEXTS[query : query + 5])
    ]
    path = tmp_path / "scores.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    recipe = of_file(start, path, tmp_path / "run")
    recipe["teacher"] = {"targets": str(path), "text": "query", "pair": "document", "score": "score"}
    recipe["stages"][0]["method"] = {"name": "reranker", "loss": "margin_mse"}
    result = limbeck.distill(recipe)
    assert json.loads((result.student / "config.json").read_text())["id2label"].keys() == {"0"}
    # The same pairs as values of a regression.
    recipe["stages"][0]["method"] = {"name": "output_distribution"}
    assert limbeck.distill(recipe, overwrite=True).record["stages"][0]["steps"] == 4


def test_the_comparison_reads_the_vectors_of_held_out_texts(start, vectors, tmp_path):
    # The file has no vectors of single sentences, so that whole texts are compared.
    texts = [f"{text} It is followed by a sentence that has the number {number}." for number, text in enumerate(TEXTS)]
    pd.DataFrame({"text": texts, "embedding": list(VECTORS)}).to_parquet(vectors)
    recipe = of_file(start, vectors, tmp_path / "run")
    recipe["corpus"] = {"sources": [str(vectors)], "held_out": 0.5}
    recipe["evaluation"] = {"pairs": 40, "retrieval_pairs": 10, "speed": True, "length": 32}
    evaluation = limbeck.distill(recipe).run.evaluation
    assert evaluation.agreement.spearman is not None
    assert evaluation.agreement.sentences > 20
    assert evaluation.teacher.megabytes is None
    assert "was not loaded and cannot be timed" in evaluation.unavailable["latency"]


def test_a_run_goes_on_with_the_same_content_wherever_it_lies(start, vectors, tmp_path):
    recipe = of_file(start, vectors, tmp_path / "run", corpus={"sources": TEXTS})
    result = limbeck.distill(recipe)
    moved = tmp_path / "elsewhere.parquet"
    shutil.move(vectors, moved)
    for name in ("heartbeat.json", "run.json"):
        assert (result.folder / name).is_file()
    plan = plan_run(load_recipe(result.folder / "recipe.yaml", [f"teacher.targets={moved}"]))
    assert (
        json.loads((result.folder / "run.json").read_text())["teacher"]["weights"] == plan.teacher_info.facts.identity
    )

    changed = tmp_path / "changed.parquet"
    pd.DataFrame({"text": TEXTS, "embedding": list(-VECTORS)}).to_parquet(changed)
    # A finished run is shown as it is. Without its student it has to go on, and compares the content.
    shutil.rmtree(result.folder / "student")
    with pytest.raises(OutputError, match="The teacher is not the one with which the run in"):
        limbeck.distill(result.folder / "recipe.yaml", [f"teacher.targets={changed}"], resume=True)


def test_a_file_in_the_place_of_a_model_and_a_wrong_column_are_named(start, vectors, tmp_path):
    with pytest.raises(RecipeError, match=r"is a file, not a model; .* name it as teacher\.targets in a recipe"):
        limbeck.validate(teacher=str(vectors), student=1, corpus=TEXTS)
    recipe = of_file(start, vectors, tmp_path / "run")
    for keys, message in (
        ({"vector": "vectors"}, r"has no column 'vectors', only embedding, text"),
        ({"text": "sentence"}, r"has no column 'sentence'"),
        ({"targets": str(tmp_path / "nothing.parquet")}, r"teacher\.targets: .* does not exist"),
    ):
        wrong = {**recipe, "teacher": {**recipe["teacher"], **keys}}
        with pytest.raises(LimbeckError, match=message):
            limbeck.validate(wrong)
    recipe["stages"][0]["method"] = {"name": "minilmv2", "relation_heads": 4}
    with pytest.raises(RecipeError, match="choose a method on sentence vectors or scores"):
        limbeck.validate(recipe)
    recipe["stages"][0] |= {"method": {"name": "aligned_embedding"}, "augment": {"replace_tokens": 0.1}}
    with pytest.raises(RecipeError, match="replace_tokens changes the text"):
        limbeck.validate(recipe)


def test_what_a_file_holds_is_told(start, vectors, tmp_path, request):
    command = request.getfixturevalue("limbeck")
    table = pd.read_parquet(vectors)
    pd.concat([table, table.iloc[:3]]).to_parquet(vectors)
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(of_file(start, vectors, tmp_path / "run")))
    lengths = np.linalg.norm(VECTORS, axis=1)
    told = (
        f"vector (16 numbers) of 60 texts; vectors of length {lengths.min():.3g} to {lengths.max():.3g}; 3 rows with a "
        "text and target of an earlier row"
    )
    assert f"targets: {told}" in command("validate", recipe).stdout
    assert f"Teacher: the targets of {vectors}, {told}" in command("distill", recipe).stderr


def test_a_run_shows_how_the_file_is_read(start, vectors, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    lines = io.StringIO()
    recipe = of_file(start, vectors, tmp_path / "run")
    limbeck.distill(recipe, console=Console(file=lines, width=120))
    printed = lines.getvalue()
    assert printed.count("reading and checking the targets …") == 1
    # It comes before anything else is read.
    assert printed.index("reading and checking the targets") < printed.index("Corpus:")
