"""Searches that learn from stored outputs: workers need no teacher, and shapes are compared by its vectors."""

import shutil

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import spearmanr
from sklearn.linear_model import LinearRegression

import limbeck
from limbeck.comparison.taught_vectors import TaughtVectors
from limbeck.core.paths import default_cache_dir
from limbeck.errors import CorpusError, LimbeckError, ModelError, OutputError, RecipeError
from limbeck.models.streams import StreamKey
from limbeck.models.students import build_student
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search.architecture import ArchitectureSearch
from limbeck.targets.facts import StoreFacts
from limbeck.targets.store import Store
from limbeck.targets.stored_teaching import StoredTeaching
from limbeck.targets.writer import open_store
from limbeck.training.corpora import build_corpora
from limbeck.training.run_tokenizers import load_tokenizers
from tests.support import shape_search
from tests.support.corpora import documents, write_text
from tests.support.models import make_embedding
from tests.support.shape_search import make_request

SIZES = {"layers": "1,2", "hidden": "8,16", "heads": "2", "ffn": "2"}
SEARCH = {**SIZES, "trials": 3, "batch": 2, "measure_seconds": 0.05, "measure_length": 16, "device": "cpu"}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A recipe of a student of stored vectors, whose teacher is gone."""
    folder = tmp_path_factory.mktemp("stored")
    teacher = make_embedding(folder)
    text = write_text(folder / "text", 60)
    recipe = shape_search.recipe_data(teacher, text)
    recipe["stages"][0]["method"] = {"name": "aligned_embedding"}
    limbeck.teach(recipe, output=folder / "store")
    shutil.rmtree(teacher)
    return recipe | {"teacher": {"stored": str(folder / "store")}}


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_shapes_are_compared_by_the_stored_vectors(stored, tmp_path, workers):
    result = limbeck.search("architecture", stored, output=tmp_path / "out", workers=workers, **SEARCH)
    record = result.record
    assert record["loss"]["kind"] == "vectors" and record["loss"]["untrained"] > 0
    trained = [shape for shape in record["shapes"] if shape["state"] == "trained"]
    assert len(trained) == 3
    assert all(0 < shape["loss"] < 2 and shape["latency_share"] > 0 for shape in trained)
    assert record["teacher"]["name"].startswith("the stored outputs of ")
    assert result.recipe["teacher"]["stored"] == stored["teacher"]["stored"]
    assert "variance of the teacher's sentence vectors" in str(result)


def test_workers_of_a_cached_teacher_share_what_it_said(stored, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    teacher = make_embedding(tmp_path)
    cached = stored | {"teacher": {"model": str(teacher), "cache": True}}
    result = limbeck.search("architecture", cached, output=tmp_path / "out", **SEARCH)
    assert result.record["loss"]["kind"] == "hidden"
    (folder,) = (default_cache_dir() / "stores").iterdir()
    assert len(Store(folder)) > 0


def test_texts_as_objects_are_kept_in_the_folder_of_the_search(stored, tmp_path):
    recipe = stored | {"teacher": {"model": str(make_embedding(tmp_path))}}
    recipe["corpus"] = stored["corpus"] | {"sources": documents(60)}
    limbeck.teach(recipe, output=tmp_path / "store")
    recipe["teacher"] = {"stored": str(tmp_path / "store")}

    options = SEARCH | {"output": tmp_path / "out"}
    first = limbeck.search("architecture", recipe, **options | {"trials": 1})
    (kept,) = (tmp_path / "out/inputs").iterdir()
    assert first.recipe["corpus"]["sources"] == [str(kept)]
    result = limbeck.search("architecture", recipe, **options | {"trials": 2})
    assert [shape["state"] for shape in result.record["shapes"]] == ["trained"] * 2


def test_nothing_is_kept_in_a_folder_of_something_else(stored, tmp_path):
    (tmp_path / "mine.txt").write_text("not a search")
    with pytest.raises(OutputError, match="holds no search; choose an empty or new folder"):
        limbeck.search("architecture", stored, corpus=["one text", "another text"], output=tmp_path, **SEARCH)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_shapes_are_cut_by_the_stored_vectors(stored, tmp_path):
    search = ArchitectureSearch(make_request(load_recipe(stored), tmp_path, prune=True))
    assert search.cuts == [10, 20] and search.loss == "vectors"


def test_another_store_is_another_study(stored, tmp_path):
    options = SEARCH | {"trials": 1}
    limbeck.search("architecture", stored, output=tmp_path / "out", **options)
    facts = Store(stored["teacher"]["stored"]).facts
    folder = tmp_path / "store"
    shutil.copytree(stored["teacher"]["stored"], folder)
    for path in folder.glob("store.json"):
        path.unlink()
    open_store(folder, StoreFacts(facts.teacher, "other weights", facts.streams))
    changed = stored | {"teacher": {"stored": str(folder)}}
    with pytest.raises(LimbeckError, match="teacher"):
        limbeck.search("architecture", changed, output=tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "mapping",
            {},
            "A search for a layer mapping reads the layers of the teacher, but the recipe's teacher is a store",
        ),
        ("teacher-layer", {}, "A search for a teacher layer reads the layers of the teacher"),
        ("architecture", SEARCH | {"loss": "hidden_states"}, "loss hidden_states reads the layers of the teacher"),
    ],
)
def test_layers_of_a_stored_teacher_are_refused(stored, tmp_path, kind, options, message):
    with pytest.raises(RecipeError, match=message):
        limbeck.search(kind, stored, output=tmp_path / "out", **options)


@pytest.mark.parametrize("form", ["store", "file"])
def test_shapes_need_a_teacher_whose_model_is_known(stored, tmp_path, form):
    teacher = {"stored": str(tmp_path / "store")}
    if form == "store":
        open_store(tmp_path / "store", StoreFacts("a model behind an endpoint", "1", streams={"vector": 3}))
    else:
        (tmp_path / "vectors.jsonl").write_text('{"text": "A text.", "vector": [1, 2, 3]}')
        teacher = {"targets": str(tmp_path / "vectors.jsonl"), "vector": "vector"}
    start = {"shape": "1x8h2", "initialise": {"from": str(make_embedding(tmp_path))}}
    message = "compares the latency of each shape with that of the teacher, but '.*' has only a teacher's outputs; give"
    for student in ("1x8h2", start):
        with pytest.raises(RecipeError, match=message):
            recipe = stored | {"teacher": teacher, "student": student}
            limbeck.search("architecture", recipe, output=tmp_path / "out", **SEARCH)
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def compared(stored):
    """The plan, its corpus and its tokenizer."""
    plan = plan_run(load_recipe(stored))
    tokenizers = load_tokenizers(plan)
    return plan, build_corpora(plan, tokenizers.of_stage, Console(quiet=True))[0], tokenizers.student


def test_the_loss_is_the_share_that_a_linear_map_leaves(compared):
    plan, corpus, tokenizer = compared
    teaching = plan.teacher_info.teaching
    vectors = TaughtVectors(teaching, corpus, tokenizer, device=torch.device("cpu"))
    student = build_student(plan.student_config, seed=1).eval()
    loss = vectors.unexplained(student, "mean")

    # Ordinary least squares by sklearn, fitted on the first two thirds of the batches and measured on the last.
    student_vectors = [batch.numpy() for batch in vectors._read(student, "mean", "pooled")]
    key = StreamKey("vector", 0)
    teacher_vectors = [teaching.read(batch)[key].numpy() for batch in vectors._batches]
    thirds = [3 * index // len(student_vectors) for index in range(len(student_vectors))]
    fitted = [index for index, third in enumerate(thirds) if third < 2]
    measured = [index for index, third in enumerate(thirds) if third == 2]

    def rows(batches, indices):
        return np.concatenate([batches[index] for index in indices]).astype(np.float64)

    regression = LinearRegression().fit(rows(student_vectors, fitted), rows(teacher_vectors, fitted))
    targets = rows(teacher_vectors, measured)
    errors = ((regression.predict(rows(student_vectors, measured)) - targets) ** 2).sum()
    least_squares = errors / ((targets - targets.mean(0)) ** 2).sum()
    # The penalty is chosen on other rows, so that it is about as good or better.
    assert 0 < loss < 1.1 * least_squares


def test_the_agreement_is_that_of_scipy(compared):
    plan, corpus, tokenizer = compared
    vectors = TaughtVectors(plan.teacher_info.teaching, corpus, tokenizer, device=torch.device("cpu"))
    student = build_student(plan.student_config, seed=1).eval()
    agreement = vectors.agreement(student, "mean", 200)

    generator = np.random.default_rng(0)
    of_student = torch.cat(list(vectors._read(student, "mean", "pooled"))).double().numpy()
    of_teacher = torch.cat(vectors._vectors).double().numpy()
    first = generator.integers(len(of_teacher), size=200)
    second = generator.integers(len(of_teacher) - 1, size=200)
    second = np.where(second >= first, second + 1, second)
    assert (first != second).all()

    def cosines(values):
        unit = values / np.linalg.norm(values, axis=1, keepdims=True)
        return (unit[first] * unit[second]).sum(1)

    assert agreement == pytest.approx(spearmanr(cosines(of_student), cosines(of_teacher)).statistic, abs=1e-3)


def test_what_cannot_be_compared_is_refused(compared, tmp_path):
    plan, corpus, tokenizer = compared
    teaching = plan.teacher_info.teaching
    with pytest.raises(CorpusError, match=r"6 texts held out, but comparing students needs at least 12"):
        TaughtVectors(teaching, corpus, tokenizer, device=torch.device("cpu"), texts=6)
    open_store(tmp_path / "scores", StoreFacts("a classifier", "1", streams={"logits": 3}))
    with pytest.raises(ModelError, match="the stored outputs of a classifier have no sentence vectors"):
        TaughtVectors(StoredTeaching(str(tmp_path / "scores")), corpus, tokenizer, device=torch.device("cpu"))
