"""RAIL-KD (arXiv 2109.10164), ALP-KD (2012.14022) and Annealing KD (2104.07163), of the study's appendix A."""

import io
import math

import pytest
import torch
from pydantic import ValidationError
from rich.console import Console
from torch.nn import functional as F

import limbeck
from limbeck.errors import RecipeError
from limbeck.methods import METHODS, Pairing
from limbeck.methods.transforms import AnnealedScores, AttendedLayers, Course, DrawnLayer
from limbeck.models.families import shape_of
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.module import DistillationModule
from limbeck.training.proxy import Proxy
from limbeck.training.trainer import DistillationTrainer
from tests.support.methods import TRAINING
from tests.support.models import tiny_config, tiny_model
from tests.support.training import (
    assert_ends_like,
    assert_equal,
    collate,
    elsewhere,
    kill_at,
    make_module,
    make_rows,
    student_of,
)


def test_layers_are_drawn_without_replacement_in_order_and_anew_in_every_epoch():
    drawn = [[DrawnLayer(place, 4, 3, True).choose(12, epoch) for place in range(4)] for epoch in range(60)]
    for layers in drawn:
        assert layers == sorted(set(layers))
    assert {layer for layers in drawn for layer in layers} == set(range(12))
    assert len(set(map(tuple, drawn))) > 50
    once = {tuple(DrawnLayer(place, 4, 3, False).choose(12, epoch) for place in range(4)) for epoch in range(9)}
    assert len(once) == 1
    other = [DrawnLayer(place, 4, 4, True).choose(12, 0) for place in range(4)]
    assert other != drawn[0]


def naive_attention(student, layers):
    """Of one vector: the softmax of its products with each layer's, number by number."""
    products = [sum(float(a) * float(b) for a, b in zip(student, layer, strict=True)) for layer in layers]
    largest = max(products)
    shares = [math.exp(product - largest) for product in products]
    return [
        sum(share / sum(shares) * float(layer[k]) for share, layer in zip(shares, layers, strict=True))
        for k in range(len(student))
    ]


def test_layers_are_weighted_by_their_likeness_to_the_students():
    draw = torch.Generator().manual_seed(2)
    student = torch.randn(2, 3, 5, generator=draw, dtype=torch.float64, requires_grad=True)
    layers = [torch.randn(2, 3, 5, generator=draw, dtype=torch.float64) for _ in range(4)]
    found = AttendedLayers().make(lambda: student, layers, Course())
    for row in range(2):
        for token in range(3):
            expected = naive_attention(student.detach()[row, token], [layer[row, token] for layer in layers])
            assert found[row, token].tolist() == pytest.approx(expected, abs=1e-14)
    assert not found.requires_grad
    huge = AttendedLayers().make(lambda: student.detach() * 1e4, [layer * 1e4 for layer in layers], Course())
    assert huge.isfinite().all()


def test_the_temperature_falls_in_equal_shares_of_the_steps():
    annealed = AnnealedScores(4)
    shares = [step / 8 for step in range(8)]
    assert [annealed.scale(share) for share in shares] == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0, 1.0]
    assert annealed.scale(1.0) == 1.0 and AnnealedScores(1).scale(0.0) == 1.0


@pytest.mark.parametrize("mapping", ["random", "attention"])
def test_the_loss_is_that_of_the_drawn_or_joined_layers(mapping):
    drawn = {"mapping_seed": 5} if mapping == "random" else {}
    module = make_module("hidden_states", options={"mapping": mapping} | drawn).eval()
    for learned in module.maps.values():
        torch.nn.init.normal_(learned.weight, std=0.1)
    batch = collate(make_rows(4))
    real = batch["attention_mask"].bool()
    models = module.student, tiny_model("bert")
    with torch.no_grad():
        student, teacher = (model(**batch, output_hidden_states=True).hidden_states for model in models)
        losses = {}
        for epoch in (0, 1):
            module.set_course(Course(epoch))
            for layer in (1, 2):
                total, count = module(**batch)[f"hidden_{layer}"]
                losses[epoch, layer] = float(total / count)
                mapped = student[layer][real].double() @ module.maps[f"hidden_{layer}"].weight.T.double()
                layers = [states[real].double() for states in teacher[1:]]
                if mapping == "random":
                    target = layers[DrawnLayer(layer - 1, 2, 5, True).choose(len(layers), epoch)]
                else:
                    pairs = zip(mapped, zip(*layers, strict=True), strict=True)
                    target = torch.tensor([naive_attention(own, theirs) for own, theirs in pairs], dtype=torch.float64)
                expected = float((mapped - target).square().mean())
                assert losses[epoch, layer] == pytest.approx(expected, rel=1e-4), (epoch, layer)
    assert (losses[0, 1] == losses[1, 1]) is (mapping == "attention")


def pairing(task="classification", layers=2):
    student, teacher = (shape_of(tiny_config("bert", layers=depth, hidden=48, heads=4)) for depth in (layers, 4))
    return Pairing(student, facts_of_shape(teacher), task)


def test_bert_pkd_draws_below_the_last_layers_and_attends_to_all():
    options = METHODS["bert_pkd"].options
    drawn, attended = (
        [term for term in METHODS["bert_pkd"].compose(options(mapping=name), pairing()) if "patient" in term.name]
        for name in ("random", "attention")
    )
    layers = [[key.layer for key in term.teacher] for (term,) in (drawn, attended)]
    assert layers == [[1, 2, 3], [1, 2, 3, 4]]
    assert drawn[0].student == attended[0].student and drawn[0].student[0].layer == 1


def test_annealed_scores_are_compared_themselves():
    (term,) = METHODS["output_distribution"].compose(METHODS["output_distribution"].options(annealing=4), pairing())
    draw = torch.Generator().manual_seed(1)
    own, other = (torch.randn(6, 3, generator=draw, dtype=torch.float64) for _ in range(2))
    target = term.transform.make(lambda: own, [other], Course(share=0.3))
    expected = sum((float(a) - 0.5 * float(b)) ** 2 for a, b in zip(own.flatten(), other.flatten(), strict=True)) / 18
    assert (term.objective, term.weight) == ("soft_label_mse", 1.0)
    assert float(F.mse_loss(own, target)) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(
    ("message", "method", "options", "of"),
    [
        ("only 4 can be drawn", "hidden_states", {"mapping": "random"}, pairing("text", 5)),
        (
            "'annealing' applies only to scores of classes or of a value",
            "output_distribution",
            {"annealing": 3},
            pairing("text"),
        ),
        ("Did you mean 'random'", "hidden_states", {"mapping": "randm"}, pairing("text")),
        ("Unknown mapping 'random'", "elm", {"mapping": "random"}, pairing("text")),
    ],
)
def test_what_cannot_be_is_refused(message, method, options, of):
    with pytest.raises(RecipeError, match=message):
        METHODS[method].compose(METHODS[method].options(**options), of)


def test_annealing_says_the_temperatures():
    with pytest.raises(ValidationError, match="leave temperature out"):
        METHODS["output_distribution"].options(annealing=3, temperature=2.0)


def test_a_drawn_mapping_is_the_same_when_resumed_and_beside_others(tiny_recipe, monkeypatch):
    courses = []
    original = DistillationTrainer.training_step

    def note(self, *arguments):
        if isinstance(self.module, DistillationModule):
            courses.append((self.state.global_step, self.module.course))
        return original(self, *arguments)

    monkeypatch.setattr(DistillationTrainer, "training_step", note)
    method = {"name": "hidden_states", "mapping": "random"}
    training = TRAINING | {"num_train_epochs": 3, "per_device_train_batch_size": 32, "save_strategy": "steps"}
    tiny_recipe["stages"] = [{"method": method, "training": training | {"save_steps": 1}}]
    stopped = elsewhere(tiny_recipe, tiny_recipe["output"] + "-stopped")
    whole = limbeck.distill(tiny_recipe)
    steps = whole.record["stages"][0]["steps"]
    expected = [(step, Course(3 * step // steps, step / steps)) for step in range(steps)]
    assert steps % 3 == 0 and courses == expected

    plan = plan_run(load_recipe(tiny_recipe))
    (candidate,) = Proxy(plan, console=Console(file=io.StringIO())).train([plan])
    weights = student_of(tiny_recipe)
    found = candidate.student.state_dict()
    assert_equal({name: found[name] for name in weights}, weights)

    kill_at(stopped, steps // 2 + 1)
    courses.clear()
    resumed = assert_ends_like(stopped, tiny_recipe)
    assert 0 < len(courses) < steps and courses == expected[-len(courses) :]
    assert resumed.record["stages"][0]["held_out"] == whole.record["stages"][0]["held_out"]
