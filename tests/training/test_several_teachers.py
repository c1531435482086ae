"""Students of several teachers: combined vectors and scores, layers of one of them, and what cannot be combined."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file
from scipy.linalg import orthogonal_procrustes
from scipy.special import softmax
from transformers import TrainerCallback

import limbeck
from limbeck.corpus.batches.batch import read_batch
from limbeck.errors import LimbeckError, RecipeError
from limbeck.models.streams import StreamKey
from limbeck.recipe.load import load_recipe
from limbeck.training.teaching.combined import COMBINATION
from limbeck.training.teaching.taught_texts import sample_text
from tests.support.models import make_embedding, make_teacher
from tests.support.recipes import recipe_of

ALIGNED = {"name": "aligned_embedding"}


class StopAfter(TrainerCallback):
    """Ends a run in the step after some."""

    def __init__(self, steps):
        self.steps = steps

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.steps:
            raise RuntimeError("killed")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two sentence encoders of one vocabulary and other weights."""
    first = make_embedding(tmp_path_factory.mktemp("first"))
    second = make_embedding(tmp_path_factory.mktemp("second"))
    model = limbeck.models.loading.load_model(str(second))
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * parameter.std() * torch.randn_like(parameter))
    model.save_pretrained(second)
    return str(first), str(second)


@pytest.fixture
def recipe(models, text_folder, tmp_path):
    """A recipe of two teachers; the second has a third of the weight."""
    recipe = recipe_of(models[0], text_folder, ALIGNED, output=str(tmp_path / "run"))
    del recipe["teacher"]
    recipe["teachers"] = {"a": {"model": models[0], "weight": 2}, "b": {"model": models[1]}}
    recipe["combine"] = {"width": 20}
    recipe["student"]["initialise"] = {"layers": "random"}
    recipe["evaluation"] = {"pairs": 40, "retrieval_pairs": 10, "speed": False, "length": 32}
    return recipe


def unit(values):
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def taught_by(stage, batch):
    """The vectors of a stage's teachers, each alone and together, in float64."""
    streams = stage.module.teaching.read(batch)
    members = []
    for member in stage.module.teaching.members:
        answer = member.teaching.read(batch)
        members.append(member.stream(answer, "vector").double().numpy())
    return members, streams[StreamKey("vector", 0)].double().numpy()


@pytest.mark.parametrize("vectors", ["concatenated", "averaged"])
def test_teachers_give_the_vectors_of_numpy_and_scipy(recipe, vectors):
    recipe["combine"] = {"vectors": vectors} | ({"width": 20} if vectors == "concatenated" else {})
    stage = limbeck.plan(recipe).stage(0)
    columns = list(sample_text(stage.corpus, stage.tokenizers))
    sample = [taught_by(stage, read_batch(batch)) for batch in columns]
    first, second = (np.concatenate([members[index] for members, _ in sample]) for index in (0, 1))
    result = np.concatenate([combined for _, combined in sample])
    if vectors == "concatenated":
        joined = np.concatenate([np.sqrt(2 / 3) * unit(first), np.sqrt(1 / 3) * unit(second)], axis=1)
        _, _, directions = np.linalg.svd(joined, full_matrices=False)
        expected = unit(joined @ directions[:20].T)
    else:
        rotation, _ = orthogonal_procrustes(unit(second), unit(first))
        expected = unit(2 / 3 * unit(first) + 1 / 3 * unit(second) @ rotation)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result @ result.T, expected @ expected.T, atol=1e-4)
    stage.close()


def test_a_run_of_two_teachers_says_who_taught_what(recipe):
    result = limbeck.distill(recipe)
    run = json.loads((result.folder / "run.json").read_text())
    assert [(teacher["name"], teacher["taught"]) for teacher in run["teachers"]] == [
        ("a", {"aligned_embedding": ["vector"]}),
        ("b", {"aligned_embedding": ["vector"]}),
    ]
    assert [round(teacher["weight"], 3) for teacher in run["teachers"]] == [0.667, 0.333]
    assert len({teacher["weights"] for teacher in run["teachers"]}) == 2
    maps = load_file(result.folder / COMBINATION)
    assert [tuple(maps[name].shape) for name in sorted(maps)] == [(48, 20), (48, 20)]
    # The student's vectors are compared with the combined ones.
    assert -1 <= result.run.evaluation.agreement.spearman <= 1
    assert result.run.evaluation.teacher.parameters.total > 0
    card = (result.student / "README.md").read_text()
    assert "The teacher a, " in card and "with a share of 67 %, taught vector of aligned\\_embedding" in card
    limbeck.report(result.folder, output=result.folder / "page.html")
    page = (result.folder / "page.html").read_text()
    assert "a: teacher-bert, 67% (vector of aligned_embedding); b: teacher-bert, 33%" in page
    # The recipe of the run is the one that was given: the first teacher does not stand there twice.
    saved = yaml.safe_load((result.folder / "recipe.yaml").read_text())
    assert "teacher" not in saved and saved["teachers"]["a"]["weight"] == 2
    assert load_recipe(result.folder / "recipe.yaml").teacher.model == recipe["teachers"]["a"]["model"]


def test_a_run_goes_on_with_the_combination_that_it_began_with(recipe, tmp_path):
    recipe["stages"][0]["training"] |= {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    whole = limbeck.distill(recipe)
    part = {**recipe, "output": str(tmp_path / "part")}
    part["stages"] = [{**recipe["stages"][0], "training": {**recipe["stages"][0]["training"]}}]
    with pytest.raises(RuntimeError, match="killed"):
        limbeck.distill(part, callbacks=[StopAfter(2)])
    begun = (tmp_path / "part" / COMBINATION).read_bytes()
    resumed = limbeck.distill(part, resume=True)
    assert (resumed.folder / COMBINATION).read_bytes() == begun
    first = load_file(whole.student / "model.safetensors")
    second = load_file(resumed.student / "model.safetensors")
    assert all(torch.equal(first[name], second[name]) for name in first)

    other = {**part, "teachers": {"a": part["teachers"]["b"], "b": part["teachers"]["a"]}}
    with pytest.raises(LimbeckError, match="teacher"):
        limbeck.distill(other, resume=True)


@pytest.mark.parametrize("stored", ["b", "ab"])
def test_stored_teachers_teach_with_live_ones(recipe, tmp_path, stored):
    of_live = limbeck.distill(recipe)
    teachers = dict(recipe["teachers"])
    for name in stored:
        single = {key: value for key, value in recipe.items() if key not in ("teachers", "combine")}
        single["teacher"] = {"model": teachers[name]["model"]}
        limbeck.teach(single, output=tmp_path / name)
        teachers[name] = {"stored": str(tmp_path / name), "weight": teachers[name].get("weight", 1.0)}
    student = {**recipe["student"], "initialise": {"layers": "random", "from": recipe["teachers"]["a"]["model"]}}
    recipe = {**recipe, "teachers": teachers, "student": student, "output": str(tmp_path / "stored")}
    of_stored = limbeck.distill(recipe)
    first = load_file(of_live.student / "model.safetensors")
    second = load_file(of_stored.student / "model.safetensors")
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-4
    assert of_stored.run.teachers[1].title.startswith("the stored outputs of ")
    assert of_stored.run.evaluation.agreement.spearman == pytest.approx(
        of_live.run.evaluation.agreement.spearman, abs=1e-3
    )


def test_a_stored_teacher_may_have_another_tokenizer(recipe, tmp_path):
    other = make_embedding(tmp_path / "other", "roberta")
    # No text is longer than a row, so that each has the same key whoever reads it.
    recipe["corpus"] = {**recipe["corpus"], "length": 128}
    recipe["evaluation"] = {"enabled": False}
    single = {key: value for key, value in recipe.items() if key not in ("teachers", "combine")}
    limbeck.teach({**single, "teacher": {"model": str(other)}}, output=tmp_path / "store")
    recipe["teachers"] = {**recipe["teachers"], "b": {"stored": str(tmp_path / "store")}}
    result = limbeck.distill(recipe)
    maps = load_file(result.folder / COMBINATION)
    assert [tuple(maps[name].shape) for name in sorted(maps)] == [(48, 20), (48, 20)]
    assert result.run.teachers[1].taught == {"aligned_embedding": ["vector"]}


def test_a_file_may_be_the_first_of_several_teachers(recipe, models, tmp_path):
    texts = [f"The model number {number} is a text of words that we read." for number in range(60)]
    vectors = np.random.default_rng(0).standard_normal((len(texts), 12))
    path = tmp_path / "vectors.parquet"
    pd.DataFrame({"text": texts, "embedding": list(vectors)}).to_parquet(path)
    recipe["corpus"] = {**recipe["corpus"], "sources": [str(path)], "length": 128}
    recipe["teachers"] = {"a": {"targets": str(path), "vector": "embedding"}, "b": {"model": models[1]}}
    # The student starts from the first teacher that is a model, and reads its tokens.
    recipe["student"]["initialise"] = {"layers": "first", "embeddings": "projected"}
    result = limbeck.distill(recipe)
    assert [teacher.name for teacher in result.run.teachers] == ["a", "b"]
    assert result.run.student.initialisation.layers
    maps = load_file(result.folder / COMBINATION)
    assert [tuple(maps[name].shape) for name in sorted(maps)] == [(12, 20), (48, 20)]
    assert limbeck.distill(output=result.folder, resume=True).record["status"] == "finished"
    # Two files have no model among them.
    recipe["teachers"]["b"] = {**recipe["teachers"]["a"], "weight": 2}
    recipe["student"]["initialise"] = {"layers": "random"}
    with pytest.raises(RecipeError, match="no tokenizer from 'a and b', of which only outputs are known; name"):
        limbeck.validate(recipe)


def test_a_text_that_one_of_them_lacks_is_refused(recipe, models, tmp_path):
    single = {key: value for key, value in recipe.items() if key not in ("teachers", "combine")}
    single |= {"teacher": {"model": models[1]}, "corpus": {**recipe["corpus"], "max_documents": 5}}
    limbeck.teach(single, output=tmp_path / "few")
    recipe["teachers"]["b"] = {"stored": str(tmp_path / "few")}
    with pytest.raises(LimbeckError, match=r"texts are not in the stored outputs of .*teacher-bert"):
        limbeck.distill(recipe)


@pytest.mark.parametrize("scores", ["probabilities", "logits"])
def test_scores_are_combined_by_the_names_of_classes(tmp_path, scores):
    rows = [{"text": f"word {number} and more", "label": "ABC"[number % 3]} for number in range(60)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    orders = {"a": "ABC", "b": "CAB"}
    teachers = {}
    for seed, (name, order) in enumerate(orders.items()):
        labels = dict(enumerate(order))
        place = make_teacher(
            tmp_path / name, head="classification", seed=seed, id2label=labels,
            label2id={label: number for number, label in labels.items()},
        )  # fmt: skip
        teachers[name] = {"model": str(place), "weight": 1 + seed}
    recipe = recipe_of(teachers["a"]["model"], tmp_path / "rows.jsonl", {"name": "output_distribution"})
    del recipe["teacher"]
    recipe |= {"teachers": teachers, "combine": {"scores": scores}, "output": str(tmp_path / "run")}
    recipe["corpus"]["task"] = {"kind": "classification"}
    recipe["student"]["initialise"] = {"layers": "random"}
    stage = limbeck.plan(recipe).stage(0)
    batch = read_batch(next(stage.batches()))
    result = stage.module.teaching.read(batch)[StreamKey("logits", 0)].double().numpy()
    of_members = []
    for member, order in zip(stage.module.teaching.members, orders.values(), strict=True):
        of_member = member.stream(member.teaching.read(batch), "logits").double().numpy()
        of_members.append(of_member[:, [order.index(label) for label in "ABC"]])
    if scores == "probabilities":
        expected = np.log(softmax(of_members[0], -1) / 3 + 2 * softmax(of_members[1], -1) / 3)
    else:
        expected = of_members[0] / 3 + 2 * of_members[1] / 3
    np.testing.assert_allclose(result, expected, atol=1e-4)
    stage.close()
    finished = limbeck.distill(recipe)
    assert finished.run.teachers[1].taught == {"output_distribution": ["logits"]}


def test_layers_are_those_of_the_teacher_that_a_stage_names(recipe, models, tmp_path):
    layers = {"method": {"name": "minilmv2", "relation_heads": 4}, "layers_from": "b", "name": "layers"}
    recipe["stages"] = [{**layers, "training": recipe["stages"][0]["training"]}, recipe["stages"][0]]
    stage = limbeck.plan(recipe).stage(0)
    batch = read_batch(next(stage.batches()))
    assert len(stage.module.teaching.members) == 1
    alone = limbeck.plan({**recipe, "teachers": {"b": {"model": models[1]}, "a": {"model": models[0]}}}).stage(0)
    expected = alone.module.teaching.read(batch)
    result = stage.module.teaching.read(batch)
    assert result.keys() == expected.keys()
    assert all(torch.equal(result[key], expected[key]) for key in result)
    stage.close()
    alone.close()
    finished = limbeck.distill(recipe)
    assert finished.run.teachers[0].taught == {"aligned_embedding": ["vector"]}
    assert set(finished.run.teachers[1].taught) == {"layers", "aligned_embedding"}


def test_one_stage_reads_vectors_of_all_and_layers_of_one(recipe):
    recipe["combine"] = {"vectors": "averaged"}
    recipe["stages"][0] |= {"layers_from": "a", "method": {**ALIGNED, "hidden_weight": 1.0}}
    result = limbeck.distill(recipe)
    assert result.run.teachers[0].taught["aligned_embedding"] == ["hidden", "vector"]
    assert result.run.teachers[1].taught["aligned_embedding"] == ["vector"]


HIDDEN = {**ALIGNED, "hidden_weight": 1.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teachers": {"a": {"model": "A", "weight": 0}, "b": "B"}}, r"teachers\.a\.weight is .* above 0"),
        ({"teachers": {"a": {"model": "A", "weight": -1}, "b": "B"}}, r"teachers\.a\.weight is .* above 0"),
        ({"teachers": {"a": {"model": "A"}}}, "'teachers' needs at least two teachers"),
        ({"teacher": {"model": "A"}}, "give only one of 'teacher' and 'teachers'"),
        ({"combine": {"vectors": "added"}}, "concatenated"),
        (
            {"combine": {"vectors": "averaged", "width": 20}},
            "has the width of the first teacher's vectors: leave 'width' out",
        ),
        ({"combine": {"width": 97}}, r"combine\.width 97 is more than .* \(48 \+ 48\)"),
        ({"stages": [{"method": HIDDEN}]}, "name the teacher whose layers it reads as layers_from of the stage"),
        ({"stages": [{"method": "minilmv2"}]}, "name the teacher whose layers it reads as layers_from of the stage"),
        (
            {"stages": [{"method": "output_distribution"}]},
            "reads logits@0 .* gives vector and pooled only",
        ),
        ({"stages": [{"method": HIDDEN, "layers_from": "c"}]}, "layers_from 'c' is not one of the teachers: a, b"),
        ({"stages": [{"method": HIDDEN, "layers_from": "a"}]}, "have 20 numbers, but the layers of 'a' have 48"),
        (
            {"stages": [{"method": {"name": "minilmv2", "relation_heads": 4}, "layers_from": "a"}]},
            "No term reads the teacher 'b': stages read only layers of a",
        ),
    ],
)
def test_what_cannot_be_combined_is_refused(recipe, changes, message):
    for stage in changes.get("stages", []):
        stage["training"] = recipe["stages"][0]["training"]
    with pytest.raises(LimbeckError, match=message):
        limbeck.validate(recipe | changes)


def test_other_readers_and_other_classes_are_refused(recipe, tmp_path):
    other = make_embedding(tmp_path, "roberta")
    recipe["corpus"] = {**recipe["corpus"], "length": 128}
    refused = {**recipe, "teachers": {**recipe["teachers"], "b": {"model": str(other)}}}
    with pytest.raises(
        LimbeckError, match=r"teachers\.b .* has a different vocabulary .* tokens all models read"
    ) as line:
        limbeck.validate(refused)
    assert f"`limbeck teach RECIPE --teacher {other} --output FOLDER`" in str(line.value)
    # What the line says makes a store with which the recipe can be used.
    limbeck.teach(refused, teacher=str(other), output=tmp_path / "store")
    limbeck.validate({**recipe, "teachers": {**recipe["teachers"], "b": {"stored": str(tmp_path / "store")}}})
    for name, labels in (("x", "AB"), ("y", "AC")):
        labels = dict(enumerate(labels))
        ids = {label: number for number, label in labels.items()}
        make_teacher(tmp_path / name, head="classification", id2label=labels, label2id=ids)
    teachers = {name: {"model": str(tmp_path / name / "teacher-bert")} for name in "xy"}
    with pytest.raises(LimbeckError, match=r"teachers\.y .* has the classes A, C, but the first teacher has A, B"):
        limbeck.validate({**recipe, "teachers": teachers})


def test_a_key_of_several_teachers_alone_is_refused(models, text_folder):
    recipe = recipe_of(models[0], text_folder, ALIGNED)
    for changes, message in (
        ({"combine": {"scores": "logits"}}, "'combine' applies only to several teachers"),
        (
            {"stages": [{**recipe["stages"][0], "layers_from": "a"}]},
            "names one of several teachers, but the recipe has only one: give 'teachers'",
        ),
    ):
        with pytest.raises(LimbeckError, match=message):
            limbeck.validate({**recipe, **changes})


def test_a_search_has_one_teacher(recipe, tmp_path):
    with pytest.raises(LimbeckError, match="A search trains candidates by one teacher, but the recipe has several"):
        limbeck.search(
            "architecture", recipe, output=tmp_path / "out", layers="1,2", hidden="8,16", heads="2", ffn="2", trials=2
        )
