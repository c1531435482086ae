"""Students that learn from stored outputs: as from the live teacher, without it, and not from another text's."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import limbeck
from limbeck.core.folder_lock import folder_lock
from limbeck.core.paths import default_cache_dir
from limbeck.errors import CorpusError, LimbeckError, ModelError, OutputError, RecipeError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.targets.store import Store
from limbeck.targets.writer import hold_store_alone
from limbeck.training.store_check import SAMPLE, SAMPLE_NOTE, check_store
from tests.support.models import make_embedding, make_teacher
from tests.support.recipes import recipe_of

POOLED = {"name": "sentence_embedding", "pooling": "mean", "hidden_weight": 0}
STEPS = {"max_steps": 12}


@pytest.fixture
def live(bert_folder, text_folder, tmp_path):
    """A recipe of 12 steps on the pooled vectors of a live teacher, from the teacher's layers."""
    recipe = recipe_of(bert_folder, text_folder, POOLED, output=str(tmp_path / "live"))
    recipe["student"]["initialise"] = {"layers": "random", "embeddings": "auto"}
    recipe["stages"][0]["training"] |= STEPS
    return recipe


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def from_store(live, store, **teacher):
    """The recipe of a student of stored outputs that starts as the one of the live teacher."""
    student = dict(live["student"])
    student["initialise"] = {**student.get("initialise", {}), "from": live["teacher"]["model"]}
    output = str(Path(live["output"]).parent / "stored")
    return {**live, "teacher": {"stored": str(store), **teacher}, "student": student, "output": output}


def weights_of(result):
    return load_file(result.student / "model.safetensors")


def largest_difference(first, second):
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@pytest.mark.parametrize(("number_format", "allowed"), [("float32", 1e-5), ("float16", 3e-3), ("int8", 3e-2)])
def test_a_student_of_stored_outputs_is_that_of_the_live_teacher(live, store, number_format, allowed, monkeypatch):
    taught = limbeck.teach(live, output=store, number_format=number_format)
    assert taught.figures["computed now"] == taught.figures["texts"] == len(Store(store))
    of_live = weights_of(limbeck.distill(live))

    # Only the start is loaded, not the teacher.
    loaded = []
    monkeypatch.setattr(
        "limbeck.training.teaching.models.LiveTeaching", lambda *_, **__: pytest.fail("the teacher was loaded")
    )
    result = limbeck.distill(from_store(live, store))
    assert not loaded
    assert largest_difference(of_live, weights_of(result)) <= allowed
    stage = result.record["stages"][0]
    assert stage["teacher"] == f"the stored outputs of {live['teacher']['model']}"
    # The loss on held-out text needs no teacher either.
    assert 0 < stage["held_out"]["loss"] < 2


def test_without_a_start_the_student_begins_at_random(live, store):
    limbeck.teach(live, output=store)
    recipe = from_store(live, store)
    recipe["student"]["initialise"] = {}
    result = limbeck.distill(recipe)
    initialisation = result.record["student"]["initialisation"]
    assert initialisation["summary"] == "Starts from random layers and random embeddings."
    for start in ({"layers": "last"}, {"embeddings": "projected"}):
        recipe["student"]["initialise"] = start
        with pytest.raises(RecipeError, match=r"have no weights; name a model .* student\.initialise\.from"):
            limbeck.validate(recipe)


def test_teaching_goes_on_where_it_was_stopped(live, store, monkeypatch):
    whole = limbeck.teach(live, output=store).figures["texts"]
    rows = store / "rows-000-00000.safetensors"
    rows.unlink()
    rows.with_suffix(".json").unlink()
    calls = []
    add = limbeck.targets.writer.StoreWriter.add

    def stopped(self, keys, streams):
        if len(calls) == 2 and "compared" not in str(self._folder):
            raise KeyboardInterrupt
        calls.append(len(keys))
        add(self, keys, streams)

    monkeypatch.setattr("limbeck.targets.writer.StoreWriter.add", stopped)
    with pytest.raises(KeyboardInterrupt):
        limbeck.teach(live, output=store, batch_size=8)
    assert len(Store(store)) == 16
    monkeypatch.undo()
    assert limbeck.teach(live, output=store, batch_size=8).figures["computed now"] == whole - 16
    assert len(Store(store)) == whole
    assert limbeck.teach(live, output=store).figures["computed now"] == 0


def test_texts_that_are_not_stored_are_counted(live, store, tmp_path):
    limbeck.teach(live, output=store)
    recipe = from_store(live, store)
    changed = tmp_path / "changed"
    changed.mkdir()
    for path in Path(live["corpus"]["sources"][0]).iterdir():
        (changed / path.name).write_text(path.read_text())
    first = next(changed.iterdir())
    first.write_text(first.read_text() + "\n\nA text that no teacher has ever read.")
    other_text = {**recipe, "corpus": {**recipe["corpus"], "sources": [str(changed)]}}
    with pytest.raises(CorpusError, match=r"1 of [\d,]+ texts is not in the stored outputs of .*, such as"):
        limbeck.distill(other_text)
    assert not (Path(recipe["output"]) / "stages").exists()

    # Long texts are cut elsewhere.
    other_length = {**recipe, "corpus": {**recipe["corpus"], "length": 16}}
    with pytest.raises(CorpusError, match="run `limbeck teach` on this corpus with the same length and prompts"):
        limbeck.distill(other_length, overwrite=True)


def test_missing_texts_are_computed_where_that_is_wanted(live, store):
    short = {**live, "corpus": {**live["corpus"], "max_documents": 20}}
    stored_before = limbeck.teach(short, output=store).figures["texts"]
    of_live = weights_of(limbeck.distill(live))
    recipe = {**live, "output": str(store.parent / "run")}
    recipe["teacher"] = {"stored": str(store), "missing": "compute", "model": live["teacher"]["model"]}
    assert largest_difference(of_live, weights_of(limbeck.distill(recipe))) <= 1e-5
    assert len(Store(store)) > stored_before


def test_another_teacher_cannot_fill_a_store(live, store, tmp_path):
    limbeck.teach(live, output=store)
    other = tmp_path / "other"
    model = limbeck.models.loading.load_model(live["teacher"]["model"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 0.1 * torch.rand_like(parameter))
    model.save_pretrained(other)
    for path in Path(live["teacher"]["model"]).iterdir():
        if not (other / path.name).exists():
            (other / path.name).write_bytes(path.read_bytes())
    recipe = {**live, "teacher": {"model": str(other)}}
    with pytest.raises(OutputError, match="which is not this"):
        limbeck.teach(recipe, output=store)
    recipe["teacher"] |= {"stored": str(store), "missing": "compute"}
    with pytest.raises(OutputError, match="which is not this"):
        limbeck.distill(recipe)
    # The check names how far its outputs are.
    assert check_store(store, live["teacher"]["model"]).drift.difference < 1e-5
    assert check_store(store, str(other)).drift.difference > 1e-3


def test_a_cache_remembers_what_a_live_teacher_said(live, monkeypatch):
    of_live = weights_of(limbeck.distill(live))
    cached = {**live, "teacher": {**live["teacher"], "cache": True}, "output": live["output"] + "-cached"}
    assert largest_difference(of_live, weights_of(limbeck.distill(cached))) <= 1e-5
    (folder,) = (default_cache_dir() / "stores").iterdir()
    rows = len(Store(folder))
    assert rows > 0

    # A second run asks the teacher nothing.
    monkeypatch.setattr("limbeck.training.teaching.live.LiveTeaching.read", lambda *_: pytest.fail("asked"))
    limbeck.distill(cached, overwrite=True)
    assert len(Store(folder)) == rows


def test_two_runs_do_not_add_to_one_store_at_once(live, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    of_live = weights_of(limbeck.distill(live))
    cached = {**live, "teacher": {**live["teacher"], "cache": True}, "output": live["output"] + "-cached"}
    limbeck.distill({**cached, "corpus": {**live["corpus"], "max_documents": 20}, "output": str(tmp_path / "few")})
    (folder,) = (default_cache_dir() / "stores").iterdir()
    rows = len(Store(folder))

    # While another run adds to the store, this one reads it and computes the rest for itself.
    with folder_lock(folder):
        assert largest_difference(of_live, weights_of(limbeck.distill(cached))) <= 1e-5
        assert len(Store(folder)) == rows
    limbeck.distill(cached, overwrite=True)
    assert len(Store(folder)) > rows

    # Before the other run has made the store, every text is computed.
    shutil.rmtree(folder)
    folder.mkdir()
    with folder_lock(folder):
        assert largest_difference(of_live, weights_of(limbeck.distill(cached, overwrite=True))) <= 1e-5
    assert not (folder / "store.json").exists()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (POOLED | {"hidden_weight": 1.0}, "reads hidden@4 .* these would work: pooled_cosine"),
        ({"name": "minilmv2", "relation_heads": 4}, "only outputs of whole texts are stored; choose a method"),
    ],
)
def test_outputs_of_tokens_are_not_stored(live, store, method, message):
    live["stages"][0]["method"] = method
    with pytest.raises(RecipeError, match=message):
        limbeck.teach(live, output=store)
    live["teacher"]["cache"] = True
    with pytest.raises(RecipeError, match=message):
        limbeck.validate(live)


@pytest.mark.parametrize(
    ("part", "keys", "message"),
    [
        ("augment", {"replace_tokens": 0.1}, "replace_tokens changes the text"),
        ("text", {"join": True}, "'join' joins texts"),
    ],
)
def test_text_that_changes_is_refused(live, store, part, keys, message):
    limbeck.teach(live, output=store)
    recipe = from_store(live, store)
    recipe["stages"][0][part] = keys
    with pytest.raises(RecipeError, match=message):
        limbeck.validate(recipe)
    stage = {**live["stages"][0], part: keys}
    with pytest.raises(RecipeError, match=message):
        limbeck.teach({**live, "stages": [stage]}, output=store)


def test_wrong_recipes_of_stores_are_refused_in_one_line(live, store, tmp_path):
    recipe = from_store(live, store)
    with pytest.raises(ModelError, match="is not a store of a teacher's outputs; make a store with `limbeck teach`"):
        limbeck.validate(recipe)
    limbeck.teach(live, output=store)
    for teacher, message in (
        ({"missing": "compute"}, "'missing: compute' runs the teacher"),
        ({"model": live["teacher"]["model"]}, "a teacher with 'stored' outputs is not loaded"),
        ({"cache": True}, "'cache' stores outputs in limbeck's own cache"),
        ({"teaching": {"name": "stored"}}, "'stored' and 'teaching' both take the place"),
    ):
        with pytest.raises(LimbeckError, match=message):
            limbeck.validate(from_store(live, store, **teacher))
    stage = {**recipe["stages"][0], "method": {"name": "aligned_embedding", "pooling": "mean"}}
    with pytest.raises(LimbeckError, match="gives pooled only"):
        limbeck.validate({**recipe, "stages": [stage]})
    with pytest.raises(RecipeError, match="not a model that can be run"):
        limbeck.teach(from_store(live, store), output=tmp_path / "again")
    (store / "rows-000-00000.safetensors").write_bytes(b"half")
    with pytest.raises(ModelError, match="is damaged"):
        limbeck.distill(from_store(live, store))


def test_a_run_goes_on_only_with_the_store_that_it_began_with(live, store, tmp_path):
    limbeck.teach(live, output=store)
    recipe = from_store(live, store)
    result = limbeck.distill(recipe)
    moved = tmp_path / "moved"
    store.rename(moved)
    plan = plan_run(load_recipe(result.folder / "recipe.yaml", [f"teacher.stored={moved}"]))
    assert plan.teacher_info.spec.model == str(moved / "teacher")
    assert json.loads((result.folder / "run.json").read_text())["teacher"]["weights"].endswith(
        plan.teacher_info.facts.identity
    )


def test_scores_of_labelled_texts_are_stored_too(bert_folder, tmp_path, store):
    rows = [{"text": f"word {number} and more", "label": "AB"[number % 2]} for number in range(60)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    teacher = make_teacher(tmp_path, head="classification", id2label={0: "A", 1: "B"}, label2id={"A": 0, "B": 1})
    recipe = recipe_of(teacher, path, {"name": "output_distribution"}, output=str(tmp_path / "live"))
    recipe["corpus"]["task"] = {"kind": "classification"}
    recipe["student"]["initialise"] = {"layers": "random"}
    taught = limbeck.teach(recipe, output=store)
    assert taught.figures["streams"] == "logits (2)"
    of_live = weights_of(limbeck.distill(recipe))
    assert largest_difference(of_live, weights_of(limbeck.distill(from_store(recipe, store)))) <= 1e-5
    assert np.isfinite(Store(store).read(Store(store).keys)["logits"]).all()


def test_the_comparison_with_the_teacher_needs_no_teacher(tmp_path, text_folder, store):
    teacher = make_embedding(tmp_path)
    recipe = recipe_of(teacher, text_folder, {"name": "aligned_embedding"}, output=str(tmp_path / "live"))
    recipe["evaluation"] = {"pairs": 40, "retrieval_pairs": 10, "speed": False, "length": 32}
    taught = limbeck.teach(recipe, output=store)
    assert taught.figures["streams"] == "vector (48)"
    assert taught.figures["texts to compare students on"] > 0
    of_live = limbeck.distill(recipe).run.evaluation
    of_stored = limbeck.distill(from_store(recipe, store)).run.evaluation
    assert of_stored.agreement.spearman == pytest.approx(of_live.agreement.spearman, abs=1e-3)
    assert of_stored.teacher.parameters == of_live.teacher.parameters
    assert of_stored.teacher.megabytes == of_live.teacher.megabytes

    # Other pairs than those that are stored are named as the reason.
    other = from_store(recipe, store) | {"evaluation": recipe["evaluation"] | {"length": 16}}
    unavailable = limbeck.distill(other, overwrite=True).run.evaluation.unavailable
    assert "cut to 32 tokens, but this run needs texts cut to 16 tokens" in unavailable["agreement"]


def test_prompts_are_part_of_what_is_stored(tmp_path, text_folder, store):
    teacher = make_embedding(tmp_path)
    recipe = recipe_of(teacher, text_folder, {"name": "aligned_embedding"}, output=str(tmp_path / "live"))
    limbeck.teach(recipe, output=store)
    (teacher / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "ask: "}, "default_prompt_name": "query"})
    )
    with_prompt = limbeck.teach(recipe, output=tmp_path / "with-prompt")
    assert not set(Store(store).keys) & set(Store(tmp_path / "with-prompt").keys)
    result = limbeck.distill(from_store(recipe, tmp_path / "with-prompt"))
    assert with_prompt.figures["texts"] == len(Store(tmp_path / "with-prompt"))
    prompts = json.loads((result.student / "config_sentence_transformers.json").read_text())["prompts"]
    assert prompts["query"] == "ask: "


def test_calls_that_cannot_be_meant_are_refused_in_one_line(live, store, tmp_path):
    model = live["teacher"]["model"]
    text = live["corpus"]["sources"][0]
    (tmp_path / "file").write_text("")
    for options, message in (
        ({"corpus": text, "output": store}, "Without a recipe, teacher must be given"),
        ({"teacher": model, "corpus": text}, "output is missing"),
        ({"teacher": model, "corpus": text, "output": store, "number_format": "int9"}, "Did you mean 'int8'"),
        ({"teacher": model, "corpus": text, "output": tmp_path / "file"}, "cannot be written"),
        ({"check": True}, "check needs the folder of a store|check=True needs the folder of a store"),
        ({"recipe": store, "check": True}, "is not a store of a teacher's outputs"),
    ):
        with pytest.raises(LimbeckError, match=message):
            limbeck.teach(**options)
    assert not store.exists() or not any(store.iterdir())
    limbeck.teach(live, output=store)
    with pytest.raises(RecipeError, match="this teacher names no model; give a method too"):
        limbeck.validate(teacher={"stored": str(store)}, student="2x128", corpus=text)
    assert limbeck.teach(store, check=True).figures["least cosine"] == pytest.approx(1)


def test_a_store_that_another_process_writes_to_is_left_alone(live, store):
    with hold_store_alone(store), pytest.raises(OutputError, match="Another process is writing to the store"):
        limbeck.teach(live, output=store)
    limbeck.teach(live, output=store)
    with hold_store_alone(store), pytest.raises(OutputError, match="Another process is writing to the store"):
        limbeck.teach(store, check=True)


def test_a_store_is_continued_in_the_numbers_that_its_teacher_computed_in(live, store):
    live["teacher"]["dtype"] = "bfloat16"
    assert limbeck.teach(live, output=store).figures["computed in"] == "bfloat16"
    float32 = live | {"teacher": live["teacher"] | {"dtype": "float32"}}
    message = "computed in bfloat16, not float32; set teacher.dtype to bfloat16 to go on with it, or give another"
    with pytest.raises(OutputError, match=f"{message} folder as (--)?output"):
        limbeck.teach(float32, output=store)
    with pytest.raises(OutputError, match=f"{message} folder as teacher.stored"):
        limbeck.distill(from_store(float32, store, model=live["teacher"]["model"], dtype="float32", missing="compute"))
    # The check compares with a teacher that computes in the same numbers.
    checked = limbeck.teach(store, check=True)
    assert checked.figures["largest difference"] < 0.02
    assert "up to the rounding of bfloat16 and float32" in checked.notes[0]


def test_a_check_says_which_parts_of_a_store_it_could_not_compare(live, store):
    limbeck.teach(live, output=store)
    sample = store / SAMPLE
    content = sample.read_bytes()

    sample.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ModelError, match=r"The sample .* is damaged \(.* has changed since it was written\)"):
        limbeck.teach(store, check=True)
    # A sample of an earlier version has no note.
    (store / SAMPLE_NOTE).unlink()
    sample.write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match="The sample .* is damaged"):
        limbeck.teach(store, check=True)
    # A further call writes a new one.
    limbeck.teach(live, output=store)
    assert sample.read_bytes() == content

    sample.unlink()
    assert "the store has no sample" in limbeck.teach(store, check=True).notes[0]
    sample.write_bytes(content)
    [note] = store.glob("rows-*.json")
    note.unlink()
    unfinished, nothing = limbeck.teach(store, check=True).notes
    assert "has no note, so its rows do not count" in unfinished
    assert "no row of its sample is stored yet" in nothing


def test_a_check_compares_the_vectors_of_compared_texts_with_their_hashes(tmp_path, text_folder, store):
    teacher = make_embedding(tmp_path)
    recipe = recipe_of(teacher, text_folder, {"name": "aligned_embedding"}, output=str(tmp_path / "live"))
    recipe["evaluation"] = {"pairs": 40, "retrieval_pairs": 10, "speed": False, "length": 32}
    limbeck.teach(recipe, output=store)
    rows, *_ = sorted((store / "compared").glob("rows-*.safetensors"))
    content = rows.read_bytes()
    rows.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ModelError, match="compared' is damaged: 'rows-.* has changed since it was written"):
        limbeck.teach(store, check=True)


def test_a_folder_with_other_files_becomes_no_store(live, tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("A text of the user.")
    with pytest.raises(OutputError, match="holds no store; choose an empty or new folder"):
        limbeck.teach(live, output=texts)
    assert [path.name for path in texts.iterdir()] == ["a.txt"]
