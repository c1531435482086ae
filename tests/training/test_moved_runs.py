"""Runs that go on elsewhere: teacher and text are known by what they hold, not by their place or date."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file, save_file

import limbeck
from limbeck import distill
from tests.support.models import make_embedding
from tests.support.mrpc_recipe import mrpc_recipe
from tests.support.streams import make_texts, write_texts
from tests.support.task_files import write_table
from tests.support.training import assert_ends_like, assert_equal, kill_at, record_of, student_of
from tests.training.conftest import make_recipe, refused

MIX = {"mix": {"exponent": 0.3}}
KINDS = {"built": MIX, "streamed": {"streaming": True, "shuffle_buffer": 40, **MIX}}


def recipe_in(place, **corpus):
    """The recipe of a run whose teacher, text and output lie in one folder."""
    recipe = make_recipe(place / "teacher", place / "text", place / "run", max_steps=4)
    recipe["corpus"] |= {"sources": [str(place / "text" / "en"), str(place / "text" / "sw.jsonl")], **corpus}
    recipe["stages"][0]["training"] |= {"per_device_train_batch_size": 8, "save_steps": 1, "eval_steps": 100}
    return recipe


def move(place, other):
    """Copy a folder as a plain copier does, without dates, and remove it."""
    shutil.copytree(place, other, copy_function=shutil.copy)
    shutil.rmtree(place)


@pytest.fixture(scope="module", params=KINDS)
def begun(request, bert_folder, tmp_path_factory):
    """The recipe of a whole run, and the folder of one that was killed at its third step."""
    corpus = KINDS[request.param]
    place = tmp_path_factory.mktemp("begun") / "first"
    for number in range(2):
        write_texts(place / "text" / "en" / f"{number}.jsonl", make_texts(f"en {number}", 60))
    write_texts(place / "text" / "sw.jsonl", make_texts("sw", 20))
    shutil.copytree(bert_folder, place / "teacher")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMBECK_CACHE", str(place / "cache"))
        whole = recipe_in(place, **corpus)
        limbeck.distill(whole)
        kept = place.with_name("whole")
        shutil.move(place / "run", kept)
        kill_at(recipe_in(place, **corpus), 3)
    return {**whole, "output": str(kept)}, place, corpus


@pytest.fixture
def moved(begun, tmp_path, monkeypatch):
    """The same, in another folder and with another cache, and the recipe that names the places there."""
    whole, place, corpus = begun
    shutil.copytree(place, tmp_path / "copy")
    move(tmp_path / "copy", tmp_path / "moved")
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "moved" / "cache"))
    return whole, recipe_in(tmp_path / "moved", **corpus)


@pytest.mark.parametrize("with_cache", [True, False], ids=["with its cache", "without"])
def test_a_moved_run_ends_as_the_one_that_stayed(moved, monkeypatch, tmp_path, with_cache):
    whole, recipe = moved
    if not with_cache:
        shutil.rmtree(tmp_path / "moved" / "cache")
    assert_ends_like(recipe, whole)
    now = record_of(recipe)
    assert now["corpus"]["views"][0]["content"] == record_of(whole)["corpus"]["views"][0]["content"]
    assert now["corpus"]["views"][0]["fingerprint"] != record_of(whole)["corpus"]["views"][0]["fingerprint"]
    kept = yaml.safe_load((tmp_path / "moved/run/recipe.yaml").read_text())
    assert kept["corpus"]["sources"] == recipe["corpus"]["sources"]


def other_text(recipe, place):
    file = place / "text" / "sw.jsonl"
    file.write_text(file.read_text().replace("sw", "so"))
    return f"The text of the source '{file}' has changed"


def other_order(recipe, place):
    recipe["corpus"]["sources"].reverse()
    return f"The text of the source '{place}/text/sw.jsonl' has changed"


def a_source_less(recipe, place):
    recipe["corpus"]["sources"].pop()
    return "corpus.sources = '2 sources', but this recipe has '1 source'"


def other_teacher(recipe, place):
    weights = load_file(place / "teacher" / "model.safetensors")
    first = next(iter(weights))
    save_file({**weights, first: weights[first] + 1e-3}, place / "teacher" / "model.safetensors", {"format": "pt"})
    return "The teacher is not the one with which the run in"


def other_key(recipe, place):
    recipe["seed"] += 1
    return f"has seed = {recipe['seed'] - 1}"


@pytest.mark.parametrize("change", [other_text, other_order, a_source_less, other_teacher, other_key])
def test_what_differs_is_named_and_the_run_left_as_it_is(moved, tmp_path, change):
    _, recipe = moved
    line = change(recipe, tmp_path / "moved")
    before = (tmp_path / "moved/run/recipe.yaml").read_bytes()
    with refused(line):
        limbeck.distill(recipe, resume=True)
    assert (tmp_path / "moved/run/recipe.yaml").read_bytes() == before


def test_a_run_of_an_earlier_version_is_held_to_its_places(moved, tmp_path):
    _, recipe = moved
    path = tmp_path / "moved/run/run.json"
    record = json.loads(path.read_text())
    del record["teacher"]["weights"]
    for view in record["corpus"]["views"]:
        del view["content"]
    path.write_text(json.dumps(record))
    with refused("teacher.model ="):
        limbeck.distill(recipe, resume=True)
    kept = yaml.safe_load((tmp_path / "moved/run/recipe.yaml").read_text()) | {"output": recipe["output"]}
    kept["teacher"]["model"], kept["corpus"]["sources"] = recipe["teacher"]["model"], recipe["corpus"]["sources"]
    (tmp_path / "moved/run/recipe.yaml").write_text(yaml.safe_dump(kept))
    with refused("The text, or its path or date, has changed"):
        limbeck.distill(kept, resume=True)


def test_development_files_are_needed_elsewhere_too(limbeck, tmp_path):
    rows = tmp_path / "dev.jsonl"
    rows.write_text('{"text": "a", "label": "b"}\n')
    corpus = {"sources": ["train.jsonl"], "development": [str(rows)]}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"corpus": corpus}))
    (tmp_path / "run.json").write_text(json.dumps({"teacher": {"weights": "a hash"}}))
    [relocation] = limbeck.json("status", str(tmp_path), "--portable")
    sizes = {need["option"]: need["bytes"] for need in relocation["needs"]}
    assert sizes == {"corpus.sources": None, "corpus.development": rows.stat().st_size}
    assert relocation["command"].endswith("--set corpus.sources=PLACE --set corpus.development=PLACE")


def test_what_a_run_needs_elsewhere_is_said(moved, limbeck, tmp_path):
    place, (whole, recipe) = tmp_path / "moved", moved
    (place / "run" / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    [told] = limbeck.json("status", str(place / "run"), "--portable")
    sizes = {need["option"]: need["bytes"] for need in told["needs"]}
    below = {
        name: sum(path.stat().st_size for path in (place / name).rglob("*") if path.is_file())
        for name in ("teacher", "text")
    }
    assert sizes == {"teacher.model": below["teacher"], "corpus.sources": below["text"]}
    assert told["by_content"] and told["teacher_hash"] == record_of(whole)["teacher"]["weights"]
    assert told["versions"]["torch"] == record_of(whole)["versions"]["torch"]
    text = limbeck.shown("status", str(place / "run"), "--portable")
    assert f"continue: limbeck distill --resume --output {place}/run --set teacher.model=PLACE" in " ".join(
        text.split()
    )


def data_folder(place):
    """A task of limbeck, whose files are in a folder, also for the measurements at the end."""
    recipe = mrpc_recipe(place)
    recipe["evaluation"] |= {"tasks": ["mrpc"], "data": recipe["corpus"]["data"]}
    return recipe


def own_task(place):
    """A task file with its rows beside it, and another development file."""
    recipe = mrpc_recipe(place)
    for name in ("train", "validation", "other"):
        rows = [(f"{name} text {number}", f"it is {number} of {name}", f"c{number % 2}") for number in range(12)]
        write_table(place / "task" / f"{name}.tsv", ("text", "pair", "label"), rows)
    files = {name: f"{name}.tsv" for name in ("train", "validation")}
    task = {"name": "mine", "type": "pair", "labels": ["c0", "c1"], "files": files}
    task["columns"] = {"text": "text", "pair": "pair", "label": "label"}
    (place / "task" / "mine.yaml").write_text(yaml.safe_dump(task))
    configuration = Path(recipe["teacher"]["model"], "config.json")
    labels = {"id2label": {"0": "c0", "1": "c1"}, "label2id": {"c0": 0, "c1": 1}}
    configuration.write_text(json.dumps(json.loads(configuration.read_text()) | labels))
    development = [str(place / "task" / "other.tsv")]
    recipe["corpus"] = {"task": str(place / "task" / "mine.yaml"), "development": development, "length": 32}
    return recipe


def targets(place):
    """A file of targets beside its texts, and a student that starts from a model elsewhere."""
    start = make_embedding(place.with_name("start"))
    texts = [f"The model number {number} is a text of words that we read." for number in range(60)]
    vectors = np.random.default_rng(1).standard_normal((len(texts), 16)).astype(np.float32)
    place.mkdir()
    np.save(place / "vectors.npy", vectors)
    (place / "lines.txt").write_text("\n".join(texts))
    recipe = make_recipe("", place / "lines.txt", place / "run", {"name": "aligned_embedding"}, max_steps=4)
    # The texts of the file are the corpus.
    del recipe["corpus"], recipe["stages"][0]["augment"]
    recipe["teacher"] = {"targets": str(place / "vectors.npy"), "text": str(place / "lines.txt")}
    recipe["student"] = {**recipe["student"], "initialise": {"from": str(start)}}
    return recipe


def sources_with_keys(place):
    """Sources of which one has a key beside its place."""
    place.mkdir()
    teacher = make_embedding(place / "teacher")
    for name in ("a", "b"):
        write_texts(place / f"{name}.jsonl", make_texts(name, 60))
    recipe = make_recipe(teacher, place / "a.jsonl", place / "run", {"name": "aligned_embedding"}, max_steps=4)
    recipe["corpus"]["sources"] = [{"source": str(place / "a.jsonl"), "share": 0.7}, str(place / "b.jsonl")]
    return recipe


@pytest.mark.parametrize("kind", [data_folder, own_task, targets, sources_with_keys])
def test_the_command_for_another_place_continues_a_run(kind, limbeck, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    first, second = tmp_path / "first", tmp_path / "second"
    recipe = kind(first)
    recipe["stages"][0]["training"] |= {"save_steps": 1}
    whole = {**recipe, "output": str(tmp_path / "whole")}
    distill(whole)
    kill_at(recipe, 3)
    [relocation] = limbeck.json("status", recipe["output"], "--portable")
    for need in relocation["needs"]:
        stays = need["where"] == "the same place"
        assert all((first in Path(place).parents) != stays for place in need["places"] if Path(place).exists())
    first.rename(second)

    words = shlex.split(relocation["command"])
    places = {need["option"]: need["places"] for need in relocation["needs"] if need["option"]}
    for number, word in enumerate(words):
        option, equals, _ = word.partition("=")
        if equals:
            words[number] = f"{option}=[{', '.join(places[option])}]"
            if "[" not in word:
                words[number] = f"{option}={places[option][0]}"
    words = [word.replace(str(first), str(second)) for word in words]
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache of the other machine"))
    done = limbeck(*words[1:])
    assert done.returncode == 0, done.stderr
    assert_equal(student_of({"output": str(second / "run")}), student_of(whole))
