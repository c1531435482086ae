"""Many students under one teacher: each gets the weights that it would get alone."""

import copy
import io
import json
import math
import tempfile

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from limbeck import distill
from limbeck.errors import RecipeError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.cohort import StudentCohort
from limbeck.training.proxy import Proxy
from tests.support.models import make_teacher

METHODS = {
    "mappings": [{"name": "hidden_states", "mapping": mapping} for mapping in ([0, 2], [1, 4], "uniform")],
    "attention mappings": [{"name": "tinybert", "mapping": mapping} for mapping in ([1, 2], [2, 4])],
    "teacher layers": [{"name": "minilmv2", "teacher_layer": layer, "relation_heads": 4} for layer in (2, 4)],
    "learned maps": [{"name": "direct_minilm", "teacher_layer": layer} for layer in (1, 4)],
    "masked tokens": [{"name": "output_distribution"}, {"name": "output_distribution", "temperature": 2.0}],
    "moving layer weights": [{"name": "bert_emd", "soft_label_weight": weight} for weight in (0.5, 2.0)],
}
TRAINING = {"max_steps": 4, "max_grad_norm": 0.05, "weight_decay": 0.1}


def recipe_for(tiny_recipe, method, **training):
    recipe = copy.deepcopy(tiny_recipe)
    recipe["student"] |= {"dropout": 0.1, "shape": recipe["student"]["shape"] | {"heads": 4}}
    recipe["stages"][0]["method"] = method
    recipe["stages"][0]["training"] |= TRAINING | training
    return recipe


def proxy_for(recipe, **options):
    return Proxy(plan_run(load_recipe(recipe)), console=Console(file=io.StringIO()), **options)


def plans_for(recipes):
    return [plan_run(load_recipe(recipe)) for recipe in recipes]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Distils a student alone, each recipe once; returns its weights and the record of its last stage."""
    found = {}

    def distil_alone(recipe):
        recipe = {name: value for name, value in recipe.items() if name != "output"}
        key = json.dumps(recipe)
        if key not in found:
            result = distill(recipe | {"output": str(tmp_path_factory.mktemp("alone") / "run")})
            found[key] = load_file(result.student / "model.safetensors"), result.record["stages"][-1]
        return found[key]

    return distil_alone


def assert_same(student, weights):
    found = student.state_dict()
    compared = [name for name in weights if name in found]
    assert len(compared) > 20
    for name in compared:
        assert torch.equal(found[name], weights[name]), name


def test_candidates_that_are_killed_leave_nothing_among_temporary_files(tiny_recipe, tmp_path, monkeypatch):
    recipe, scratch, seen = recipe_for(tiny_recipe, {"name": "minilmv2"}), tmp_path / "scratch", []
    scratch.mkdir()
    proxy, plans = proxy_for(recipe), plans_for([recipe])
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def look(students):
        seen.append(list(scratch.iterdir()))
        return students

    proxy.train(plans, cuts={2: look})
    assert seen == [[]]
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("accumulation", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_each_student_gets_the_weights_that_it_gets_alone(tiny_recipe, tmp_path, alone, kind, accumulation):
    if kind == "moving layer weights" and accumulation > 1:
        pytest.skip("a flow belongs to one batch, and the recipe is refused")
    more = {"gradient_accumulation_steps": accumulation, "per_device_train_batch_size": 8 // accumulation}
    recipes = [recipe_for(tiny_recipe, method, **more) for method in METHODS[kind]]
    if kind in ("masked tokens", "moving layer weights"):
        with_head = str(make_teacher(tmp_path, head="masked_lm"))
        recipes = [recipe | {"teacher": {"model": with_head}} for recipe in recipes]
    trained = proxy_for(recipes[0]).train(plans_for(recipes))
    for recipe, candidate in zip(recipes, trained, strict=True):
        weights, stage = alone(recipe)
        assert_same(candidate.student, weights)
        assert not candidate.diverged
        assert candidate.steps == 4
        assert candidate.held_out == pytest.approx(stage["held_out"], rel=1e-6)


def test_the_teacher_runs_once_a_batch(tiny_recipe, monkeypatch):
    from limbeck.training.teacher import TeacherReader

    batches = []
    read = TeacherReader.read

    def count(self, input_ids, *rest, **more):
        if torch.is_grad_enabled():
            batches.append(len(input_ids))
        return read(self, input_ids, *rest, **more)

    recipes = [recipe_for(tiny_recipe, method) for method in METHODS["mappings"]]
    proxy = proxy_for(recipes[0])
    monkeypatch.setattr(TeacherReader, "read", count)
    proxy.train(plans_for(recipes))
    assert batches == [2] * len(recipes) + [8] * 4  # Two rows for each student tell what its terms reach.


def test_several_stages_follow_each_other(tiny_recipe, alone):
    recipes = []
    for layer in (2, 4):
        recipe = recipe_for(tiny_recipe, {"name": "hidden_states", "mapping": [1, layer]})
        second = copy.deepcopy(recipe["stages"][0]) | {"name": "second", "freeze": ["embeddings"]}
        second["method"] = {"name": "minilmv2", "relation_heads": 4, "teacher_layer": layer}
        recipe["stages"][0]["name"] = "first"
        recipes.append(recipe | {"stages": [recipe["stages"][0], second]})
    trained = proxy_for(recipes[0]).train(plans_for(recipes))
    for recipe, candidate in zip(recipes, trained, strict=True):
        weights, stage = alone(recipe)
        assert_same(candidate.student, weights)
        assert candidate.held_out == pytest.approx(stage["held_out"], rel=1e-6)
        assert candidate.steps == 8


def test_a_cut_student_stops_and_the_others_go_on_as_alone(tiny_recipe, alone):
    recipes = [recipe_for(tiny_recipe, method) for method in METHODS["mappings"]]
    asked = []

    def cut(students):
        asked.append(sorted(students))
        assert not any(student.training for student in students.values())
        assert not torch.equal(*(next(iter(students[i].parameters())) for i in (0, 1)))
        return [0, 2]

    trained = proxy_for(recipes[0]).train(plans_for(recipes), cuts={2: cut})
    assert asked == [[0, 1, 2]]
    assert [candidate.steps for candidate in trained] == [4, 2, 4]
    for number in (0, 2):
        assert_same(trained[number].student, alone(recipes[number])[0])
    # A schedule of four steps, stopped after two: not the run of two steps, but its weights stay where they were.
    assert math.isfinite(trained[1].held_out["loss"])


def test_a_student_that_diverges_leaves_the_others_alone(tiny_recipe, alone, monkeypatch):
    recipes = [recipe_for(tiny_recipe, method) for method in METHODS["mappings"][:2]]
    steps = iter(range(100))
    forward = StudentCohort.forward

    def poison(self, *inputs, **more):
        found = forward(self, *inputs, **more)
        broken = next(steps) == 3 and self.training
        return {name: (t * math.nan if broken and name.startswith("1/") else t, c) for name, (t, c) in found.items()}

    monkeypatch.setattr(StudentCohort, "forward", poison)
    trained = proxy_for(recipes[0]).train(plans_for(recipes))
    monkeypatch.undo()
    assert [candidate.diverged for candidate in trained] == [False, True]
    assert [candidate.steps for candidate in trained] == [4, 3]
    assert trained[1].held_out == {}
    assert_same(trained[0].student, alone(recipes[0])[0])


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_training_ends_when_all_diverge(tiny_recipe, clip):
    recipe = recipe_for(tiny_recipe, METHODS["mappings"][0], learning_rate=1e38, max_steps=50, max_grad_norm=clip)
    (candidate,) = proxy_for(recipe).train(plans_for([recipe]))
    assert candidate.diverged
    assert candidate.steps < 50


def test_a_share_of_the_text_is_a_fixed_part_of_it(tiny_recipe):
    recipe = recipe_for(tiny_recipe, METHODS["mappings"][0])
    whole, part, again = (proxy_for(recipe, share=share).corpora[0].train for share in (1.0, 0.25, 0.25))
    assert len(part) == round(len(whole) / 4)
    assert part["input_ids"][:] == again["input_ids"][:]
    assert all(row in whole["input_ids"][:] for row in part["input_ids"][:])


@pytest.mark.parametrize(
    ("change", "share", "message"),
    [
        (dict, 0.0, "share of 0.0"),
        (dict, 1.5, "share of 1.5"),
        (lambda recipe: recipe["stages"].clear(), 1.0, "no stages"),
        (lambda recipe: recipe["stages"][0]["training"].update(fp16=True), 1.0, "float16"),
        (lambda recipe: recipe["corpus"].update(streaming=True), 1.0, "streams its text"),
        (lambda recipe: recipe["stages"][0].update(teacher=recipe["teacher"]), 1.0, "a teacher of its own"),
        (
            lambda recipe: recipe["stages"].insert(
                0, recipe["stages"][0] | {"name": "assistant", "student": recipe["student"]}
            ),
            1.0,
            "a student of its own",
        ),
    ],
)
def test_what_cannot_be_trained_side_by_side_is_refused(tiny_recipe, change, share, message):
    recipe = recipe_for(tiny_recipe, METHODS["mappings"][0])
    change(recipe)
    with pytest.raises(RecipeError, match=message):
        proxy_for(recipe, share=share)


def test_candidates_of_other_stages_are_refused(tiny_recipe):
    recipe = recipe_for(tiny_recipe, METHODS["mappings"][0])
    longer = recipe | {"stages": [recipe["stages"][0] | {"name": "a"}, recipe["stages"][0] | {"name": "b"}]}
    with pytest.raises(RecipeError, match="1 stages of their recipe"):
        proxy_for(recipe).train(plans_for([longer]))
    with pytest.raises(RecipeError, match="cut only where it has one"):
        proxy_for(longer).train(plans_for([longer]), cuts={1: lambda students: students})


def test_a_cohort_needs_terms_for_every_student(tiny_recipe):
    with pytest.raises(ValueError, match="as many lists of terms"):
        StudentCohort([], torch.nn.Module(), [])
