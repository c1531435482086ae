"""Many students under one teacher: each gets the weights that it would get alone."""

import copy
import io
import json
import math
import tempfile
from string import Template

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from limbeck import distill, errors
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.cohort import StudentCohort
from limbeck.training.proxy import Proxy
from tests.support.models import make_teacher
from tests.support.streams import make_texts, write_texts
from tests.training.conftest import REFUSALS, refused

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


def assert_as_alone(recipes, alone, steps):
    """Students of recipes that are trained together come to what each comes to alone."""
    trained = proxy_for(recipes[0]).train(plans_for(recipes))
    for recipe, candidate in zip(recipes, trained, strict=True):
        weights, stage = alone(recipe)
        assert_same(candidate.student, weights)
        assert (candidate.diverged, candidate.steps) == (False, steps)
        assert candidate.held_out == pytest.approx(stage["held_out"], rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "accumulation"),
    [
        *((kind, 1) for kind in METHODS),
        # A flow belongs to one batch: with accumulation that recipe is refused.
        *(pytest.param(kind, 2, marks=pytest.mark.slow) for kind in METHODS if kind != "moving layer weights"),
    ],
)
def test_each_student_gets_the_weights_that_it_gets_alone(tiny_recipe, tmp_path, alone, kind, accumulation):
    more = {"gradient_accumulation_steps": accumulation, "per_device_train_batch_size": 8 // accumulation}
    recipes = [recipe_for(tiny_recipe, method, **more) for method in METHODS[kind]]
    if kind in ("masked tokens", "moving layer weights"):
        with_head = str(make_teacher(tmp_path, head="masked_lm"))
        recipes = [recipe | {"teacher": {"model": with_head}} for recipe in recipes]
    assert_as_alone(recipes, alone, steps=4)


def test_the_teacher_runs_once_a_batch(tiny_recipe, monkeypatch):
    from limbeck.training.teaching.live import LiveTeaching

    batches = []
    read = LiveTeaching.read

    def count(self, batch, scored=None):
        if torch.is_grad_enabled():
            batches.append(len(batch.teacher["input_ids"]))
        return read(self, batch, scored)

    recipes = [recipe_for(tiny_recipe, method) for method in METHODS["mappings"]]
    proxy = proxy_for(recipes[0])
    monkeypatch.setattr(LiveTeaching, "read", count)
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
    assert_as_alone(recipes, alone, steps=8)


def test_a_cut_student_stops_and_the_others_go_on_as_alone(tiny_recipe, tmp_path, monkeypatch, alone):
    """Nothing is left among temporary files, should the process be killed."""
    recipes = [recipe_for(tiny_recipe, method) for method in METHODS["mappings"]]
    asked, scratch = [], tmp_path / "scratch"
    scratch.mkdir()

    def cut(students):
        asked.append((sorted(students), list(scratch.iterdir())))
        assert not any(student.training for student in students.values())
        assert not torch.equal(*(next(iter(students[i].parameters())) for i in (0, 1)))
        return [0, 2]

    proxy, plans = proxy_for(recipes[0]), plans_for(recipes)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    trained = proxy.train(plans, cuts={2: cut})
    assert asked == [([0, 1, 2], [])] and not list(scratch.iterdir())
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


def test_a_share_of_mixed_sources_is_drawn_from_its_rows(tiny_recipe, tmp_path):
    for name, count in (("a", 90), ("b", 30)):
        write_texts(tmp_path / "mixed" / f"{name}.txt.xz", make_texts(name, count))
    recipe = recipe_for(tiny_recipe, METHODS["mappings"][0], max_steps=2)
    recipe["corpus"] |= {"sources": [], "mix": {"by": f"{tmp_path}/mixed/{{name}}.txt.xz", "exponent": 0.3}}
    proxy = proxy_for(recipe, share=0.5)
    rows = proxy.corpora[0].manifest["source_rows"]
    assert len(rows) == 2 and rows[0] > rows[1] > 0 and sum(rows) == len(proxy.corpora[0].train)
    assert proxy.train(plans_for([recipe]))[0].steps == 2


@pytest.mark.parametrize("case", REFUSALS["candidates"], ids=lambda case: case[1])
def test_what_cannot_be_trained_side_by_side_is_refused(tiny_recipe, bert_folder, case):
    share, line, *overrides = case
    recipe = load_recipe(tiny_recipe, [Template(one).substitute(bert=bert_folder) for one in overrides])
    with refused(line, errors.RecipeError):
        proxy_for(recipe, share=share)


def test_candidates_of_other_stages_are_refused(tiny_recipe):
    recipe = recipe_for(tiny_recipe, METHODS["mappings"][0])
    longer = recipe | {"stages": [recipe["stages"][0] | {"name": "a"}, recipe["stages"][0] | {"name": "b"}]}
    with refused("only if their recipe has a single stage", errors.RecipeError):
        proxy_for(recipe).train(plans_for([longer]))
    with refused("dropped early only if their recipe has a single stage", errors.RecipeError):
        proxy_for(longer).train(plans_for([longer]), cuts={1: lambda students: students})


def test_a_cohort_needs_terms_for_every_student(tiny_recipe):
    with pytest.raises(ValueError, match="lists of terms, one for each"):
        StudentCohort([], torch.nn.Module(), [])
