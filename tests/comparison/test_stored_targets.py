"""Comparisons that learn from stored outputs, without the teacher."""

import io
import shutil

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import limbeck
from limbeck.errors import OutputError, RecipeError
from tests.support.comparisons import STUDENT
from tests.support.models import make_embedding


@pytest.fixture(scope="module")
def store(text, tmp_path_factory):
    """The finished vectors of a teacher that is gone."""
    folder = tmp_path_factory.mktemp("compared-store")
    teacher = make_embedding(folder)
    recipe = {
        "teacher": {"model": str(teacher)},
        "student": {"shape": STUDENT},
        "corpus": {"sources": [str(text)], "length": 24, "held_out": 0.2},
        "stages": [{"method": {"name": "aligned_embedding"}, "training": {"max_steps": 2}}],
    }
    limbeck.teach(recipe, output=folder / "store")
    shutil.rmtree(teacher)
    return folder / "store"


@pytest.fixture
def plan(plan, store):
    speed = {"batch_sizes": [2], "lengths": [16], "seconds": 0.01}
    methods = [{"name": "aligned_embedding", "title": "distance"}]
    methods += [{"name": "aligned_embedding", "options": {"distance": "cosine"}, "title": "cosine"}]
    evaluation = plan["evaluation"] | {"speed": speed}
    return plan | {"teacher": {"stored": str(store)}, "methods": methods, "evaluation": evaluation}


def test_students_of_stored_vectors_are_compared_without_their_teacher(plan, tmp_path):
    result = limbeck.compare(plan, output=tmp_path / "out")
    assert result.failed == 0
    record = result.record
    for cell in record["cells"]:
        assert cell["status"] == "finished"
        assert -1 <= cell["held_out"]["agreement"] <= 1 and cell["held_out"]["explained"] is None
    assert not record["teacher"]["held_out"]
    assert record["teacher"]["title"].startswith("the stored outputs of ")
    summary = record["summary"]
    assert summary["main"]["key"] == "agreement"
    assert any("have no layers, so hidden states cannot be compared" in note for note in summary["notes"])
    # The students' sizes are known, but nothing is faster than a teacher that cannot be timed.
    assert summary["blocks"][0]["cost"]["parameters"] > 0 and not summary["blocks"][0]["cost"]["speedups"]
    again = limbeck.compare(plan, output=tmp_path / "out")
    assert again.record["summary"] == summary


def test_a_comparison_goes_on_with_its_own_store_wherever_that_is(plan, store, text, tmp_path):
    limbeck.compare(plan | {"methods": plan["methods"][:1]}, output=tmp_path / "out")
    shutil.copytree(store, tmp_path / "moved")
    moved = plan | {"teacher": {"stored": str(tmp_path / "moved")}}
    assert limbeck.compare(moved, output=tmp_path / "out").failed == 0

    other = make_embedding(tmp_path / "other", "bert")
    recipe = {**moved, "teacher": {"model": str(other)}, "student": {"shape": STUDENT}}
    recipe = {key: recipe[key] for key in ("teacher", "student", "corpus")}
    recipe["stages"] = [{"method": {"name": "aligned_embedding", "distance": "cosine"}, "training": {"max_steps": 2}}]
    limbeck.teach(recipe, output=tmp_path / "int8", number_format="int8")
    with pytest.raises(OutputError, match="teacher's weights of the comparison"):
        limbeck.compare(plan | {"teacher": {"stored": str(tmp_path / "int8")}}, output=tmp_path / "out")


def test_combinations_that_read_layers_are_left_out(plan, tmp_path):
    methods = [*plan["methods"][:1], {"name": "hidden_states", "mappings": ["last"]}, "mlm"]
    result = limbeck.compare(plan | {"methods": methods, "skip_impossible": True}, output=tmp_path / "out")
    [left_out] = result.record["impossible"]
    assert (
        left_out["method"] == "hidden_states" and "has none; choose a method on sentence vectors" in left_out["reason"]
    )
    assert result.failed == 0


def test_students_of_a_file_of_vectors_are_compared_without_any_model(plan, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    texts = [f"The model number {number} is a text of words that we read." for number in range(60)]
    vectors = np.random.default_rng(1).standard_normal((60, 16))
    path = tmp_path / "vectors.parquet"
    pd.DataFrame({"text": texts, "embedding": list(vectors)}).to_parquet(path)
    start = make_embedding(tmp_path)
    of_file = plan | {
        "teacher": {"targets": str(path), "vector": "embedding"},
        "corpus": {"sources": [str(path)], "length": 24, "held_out": 0.4},
        "students": [{"shape": STUDENT, "initialise": {"from": str(start)}}],
    }
    lines = io.StringIO()
    result = limbeck.compare(of_file, output=tmp_path / "out", console=Console(file=lines, width=120))
    assert result.failed == 0
    # A large file takes long to read, so that it is told; this one is new to the cache.
    assert lines.getvalue().count("reading and checking the targets …") == 1
    assert result.record["teacher"]["shape"] == "vector of 16 numbers"
    assert all(cell["held_out"]["agreement"] is not None for cell in result.record["cells"])

    other = {"shape": STUDENT, "name": "other", "initialise": {"from": str(make_embedding(tmp_path, "roberta"))}}
    with pytest.raises(RecipeError, match="these models have different tokenizers"):
        limbeck.compare(of_file | {"students": [*of_file["students"], other]}, output=tmp_path / "other")


def test_students_with_tokens_of_their_own_are_refused(plan, tmp_path):
    student = {"shape": STUDENT, "vocabulary": {"train": 60}}
    with pytest.raises(RecipeError, match=r"these models have different tokenizers; let the students start"):
        limbeck.compare(plan | {"students": [student]}, output=tmp_path / "out")
