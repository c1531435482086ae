"""Learned maps and layer weights go on from stage to stage, as in the papers' one training over two lengths."""

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import limbeck
from limbeck.methods import METHODS
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.proxy import Proxy
from limbeck.training.stage import StageTraining
from limbeck.training.trainer import WEIGHTS
from tests.support.methods import TRAINING
from tests.support.models import tiny_model
from tests.support.training import assert_equal, collate, elsewhere, make_module, make_rows, student_of

ELM = {"name": "elm", "mapping": [0, 4]}


def stages_of(recipe, first, second, rate):
    """Two stages, the second of one step at another rate."""
    recipe["student"]["shape"] = recipe["student"]["shape"] | {"heads": 4}
    recipe["stages"] = [
        {"name": "first", "method": first, "training": TRAINING | {"max_steps": 4}},
        {"name": "second", "method": second, "training": TRAINING | {"max_steps": 1, "learning_rate": rate}},
    ]
    return recipe


def learned_of(recipe):
    """Everything beside the student that each stage left."""
    folders = (Path(recipe["output"], "stages", name) for name in ("1-first", "2-second"))
    found = (load_file(folder / WEIGHTS) for folder in folders)
    return [{name: one[name] for name in one if not name.startswith("student.")} for one in found]


@pytest.mark.parametrize("method", [ELM, {"name": "direct_minilm", "teacher_layer": 4}], ids=lambda one: one["name"])
def test_a_second_stage_without_a_rate_leaves_loss_and_maps_as_they_were(tiny_recipe, method):
    recipe = stages_of(tiny_recipe, method, method, 1e-30)
    first, second = limbeck.distill(recipe).record["stages"]
    trained, kept = learned_of(recipe)
    assert trained and trained.keys() == kept.keys()
    for name, tensor in trained.items():
        assert torch.equal(kept[name], tensor), name
        assert not torch.equal(tensor, torch.eye(*tensor.shape[-2:]).expand_as(tensor)), name
    assert second["held_out"] == pytest.approx(first["held_out"], rel=1e-6)


def test_a_resumed_run_and_a_search_go_on_with_the_same_maps(tiny_recipe, monkeypatch):
    recipe = stages_of(tiny_recipe, ELM, ELM, 3e-3)
    limbeck.distill(recipe)
    weights = student_of(recipe)
    plan = plan_run(load_recipe(recipe))
    (candidate,) = Proxy(plan, console=Console(file=io.StringIO())).train([plan])
    found = candidate.student.state_dict()
    assert_equal({name: found[name] for name in weights}, weights)

    original = StageTraining.run

    def fail_in_the_second(self):
        if self.plan.spec.title == "second":
            raise MemoryError("killed")
        return original(self)

    stopped = elsewhere(recipe, recipe["output"] + "-stopped")
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(StageTraining, "run", fail_in_the_second)
        limbeck.distill(stopped)
    limbeck.distill(stopped, resume=True)
    assert_equal(student_of(stopped), weights)


def test_only_terms_between_the_same_layers_go_on():
    before, same, other = (
        make_module("hidden_states", options={"mapping": mapping}) for mapping in ([1, 4], [1, 4], [2, 4])
    )
    for learned in before.maps.values():
        torch.nn.init.normal_(learned.weight)
    for module in (same, other):
        module.take_learned(before.learned())
    assert_equal(same.learned()[1], before.learned()[1])
    kept = other.learned()[1]
    assert torch.equal(kept["maps.hidden_2_4.weight"], before.maps["hidden_2_4"].weight)
    assert [name for name in kept if name not in before.learned()[1]] == ["maps.hidden_1_2.weight"]
    assert torch.equal(kept["maps.hidden_1_2.weight"], torch.eye(*kept["maps.hidden_1_2.weight"].shape))


@pytest.mark.parametrize(("temperature", "goes_on"), [(10.0, True), (None, False)])
def test_weights_of_layers_go_on_where_they_follow_their_costs(temperature, goes_on):
    before, after = (
        make_module("bert_emd", options={"attention_weight": 0.0, "soft_label_weight": 0.0, "cost_attention": one})
        for one in (10.0, temperature)
    )
    before.layer_weights.student.copy_(torch.tensor([0.25, 0.75]))
    after.take_learned(before.learned())
    assert torch.equal(after.layer_weights.student, before.layer_weights.student) == goes_on


@pytest.mark.parametrize(
    ("method", "further"),
    [("elm", {}), ("tinybert", {"embedding_weight": 0.0}), ("mlkd_bert", {"embedding_weight": 0.0})],
)
def test_one_map_of_all_layers_is_the_equation_as_printed(method, further):
    options = {"mapping": [2, 4], "attention_weight": 0.0, "one_map": True, **further}
    module = make_module(method, options=options).eval()
    assert [name for name, _ in module.maps.named_parameters()] == ["hidden.weight"]
    shared = torch.nn.init.normal_(module.maps["hidden"].weight)
    batch = collate(make_rows(4))
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        found = module(**batch)
        models = module.student, tiny_model("bert")
        student, teacher = (model(**batch, output_hidden_states=True).hidden_states for model in models)
        for layer, target in ((1, 2), (2, 4)):
            total, count = found[f"hidden_{layer}_{target}"]
            mapped = student[layer][real].double() @ shared.T.double()
            expected = (mapped - teacher[target][real].double()).square().mean()
            assert float(total / count) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("method", "option", "value", "others"),
    [
        ("elm", "one_map", True, {}),
        ("mlkd_bert", "mha_draw", "layer", {"mha_mapping": "random"}),
        ("hidden_states", "mapping_draw", "once", {"mapping": "random"}),
        ("output_distribution", "annealing", 10, {}),
    ],
)
def test_an_option_that_came_later_decides_nothing_at_its_default(method, option, value, others):
    options = METHODS[method].options
    assert option not in options(**others).deciding()
    assert options(**others, **{option: value}).deciding() == options(**others).deciding() | {option: value}
