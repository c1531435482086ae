"""The loss that shapes are compared by, against its definition; and copies of students in training."""

import copy

import numpy as np
import pytest
import torch

from limbeck.corpus import PadCollator
from limbeck.errors import CorpusError
from limbeck.models.families import shape_of
from limbeck.models.taps import StreamTap
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search.scores import LastLayerLoss, held_out_batches, loss_kind, plain_copy
from limbeck.training.students import make_student
from tests.support.models import tiny_model, tiny_tokenizer, vocabulary
from tests.support.shape_search import recipe_data, write_teacher


class Rows(list):
    """Blocks of random tokens, as a corpus holds them out."""

    def __init__(self, count, seed=0):
        random = np.random.default_rng(seed)
        lengths = random.integers(6, 20, size=count)
        super().__init__({"input_ids": random.integers(5, len(vocabulary("bert")), size=n).tolist()} for n in lengths)


class FakeCorpus:
    def __init__(self, count):
        self.held_out = Rows(count)


@pytest.fixture(scope="module")
def batches():
    return held_out_batches(FakeCorpus(60), tiny_tokenizer("bert"))


@pytest.fixture(scope="module")
def teacher():
    return tiny_model("bert", layers=3, hidden=16, heads=4, ffn=32)


def test_a_student_that_equals_its_teacher_has_no_loss(teacher, batches):
    for kind in ("hidden", "relations"):
        loss = LastLayerLoss(teacher, batches, [shape_of(teacher.config)], kind)
        assert loss(copy.deepcopy(teacher)) == pytest.approx(0, abs=2e-3)


def test_a_student_whose_hidden_states_are_a_map_of_the_teachers_has_none_either(teacher, batches):
    turned = copy.deepcopy(teacher)
    norm = turned.encoder.layer[-1].output.LayerNorm
    norm.weight.data *= torch.linspace(0.5, 2, 16)
    loss = LastLayerLoss(teacher, batches, [shape_of(teacher.config)], "hidden")
    assert loss(turned) == pytest.approx(0, abs=2e-3)


def test_a_student_that_says_nothing_has_the_loss_1_of_its_hidden_states(teacher, batches):
    silent = copy.deepcopy(teacher)
    silent.encoder.layer[-1].output.LayerNorm.weight.data.zero_()
    loss = LastLayerLoss(teacher, batches, [shape_of(teacher.config)], "hidden")
    assert loss(silent) == pytest.approx(1, abs=0.05)


def test_relations_are_the_mean_divergence_of_all_three(teacher, batches):
    student = tiny_model("bert", seed=4, layers=1, hidden=8, heads=2, ffn=8)
    loss = LastLayerLoss(teacher, batches, [shape_of(student.config)], "relations")
    heads = 8  # the most that divide both widths, below 48
    total, count = 0.0, 0
    for batch in batches:
        found = []
        for model in (teacher, student):
            streams = {}
            attention = (model.encoder.layer[-1].attention.self,)[0]
            hooks = [
                getattr(attention, part).register_forward_hook(
                    lambda module, inputs, output, part=part, streams=streams: streams.__setitem__(part, output)
                )
                for part in ("query", "key", "value")
            ]
            with torch.no_grad():
                model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
            for hook in hooks:
                hook.remove()
            found.append(streams)
        for row, mask in enumerate(batch["attention_mask"].bool()):
            for part in ("query", "key", "value"):
                logs = []
                for streams in found:
                    vectors = streams[part][row][mask].double().reshape(int(mask.sum()), heads, -1).transpose(0, 1)
                    scores = vectors @ vectors.transpose(1, 2) / vectors.shape[-1] ** 0.5
                    logs.append(scores.log_softmax(-1))
                total += float((logs[0].exp() * (logs[0] - logs[1])).sum())
                count += heads * int(mask.sum())
    assert loss(student) == pytest.approx(total / count, rel=1e-4)
    assert loss.divided_by(0.5)(student) == pytest.approx(2 * loss(student))


def test_students_of_all_shapes_share_the_relation_heads(teacher, batches):
    narrow, wide = (tiny_model("bert", layers=1, hidden=width, heads=2, ffn=8) for width in (8, 12))
    alone = LastLayerLoss(teacher, batches, [shape_of(narrow.config)], "relations")(narrow)
    shared = LastLayerLoss(teacher, batches, [shape_of(m.config) for m in (narrow, wide)], "relations")
    assert shared(narrow) != pytest.approx(alone)
    assert shared(wide) > 0


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("{name: hidden_states, mapping: last}", "hidden"),
        ("{name: hidden_states, mapping: [1, 0]}", "relations"),
        ("minilmv2", "relations"),
        ("minilm", "relations"),
        ("{name: tinybert, mapping: uniform}", "hidden"),
        ("sentence_embedding", "hidden"),
    ],
)
def test_the_loss_fits_the_method(tmp_path, method, kind):
    (tmp_path / "some.txt").write_text("Some text.\n", encoding="utf-8")
    data = recipe_data(write_teacher(tmp_path), tmp_path / "some.txt", student={"shape": "2x8h4"})
    assert loss_kind(plan_run(load_recipe(data, [f"stages.0.method={method}"]))) == kind


def test_held_out_blocks_come_in_three_batches_or_more():
    tokenizer = tiny_tokenizer("bert")
    assert [len(batch["input_ids"]) for batch in held_out_batches(FakeCorpus(200), tokenizer)] == [32, 32, 32]
    assert [len(batch["input_ids"]) for batch in held_out_batches(FakeCorpus(10), tokenizer)] == [3, 3, 3, 1]
    with pytest.raises(CorpusError, match="2 blocks are held out"):
        held_out_batches(FakeCorpus(2), tokenizer)


def test_a_plain_copy_is_the_student_without_its_taps(tmp_path):
    (tmp_path / "some.txt").write_text("Some text.\n", encoding="utf-8")
    data = recipe_data(write_teacher(tmp_path), tmp_path / "some.txt")
    plan = plan_run(load_recipe(data, ["stages.0.method=minilmv2"]))
    student, _ = make_student(plan.student_choice, None, None, lambda **_: tiny_model("bert", layers=3, hidden=16), 0)
    batch = PadCollator(0)(list(Rows(3)))
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        expected = student(**inputs).last_hidden_state
        keys = [key for term in plan.stages[0].terms for key in term.student]
        with StreamTap(student, keys) as tap:
            before = tap(**inputs)
            found = plain_copy(student, plan)(**inputs).last_hidden_state
            after = tap(**inputs)
    assert torch.equal(found, expected)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert not student.training
