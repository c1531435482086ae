"""A student of its teacher's width starts bit-equal to the layers that it is given, or at random by its seed."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForMaskedLM

from limbeck.models.families import blocks, shape_of
from limbeck.models.layer_selection import selected_layers
from limbeck.models.start import start_student
from limbeck.models.start_checkpoint import load_checkpoint
from limbeck.models.start_step import StartSettings
from limbeck.models.students import build_student, student_config
from tests.support import models as tiny

EVERY_FAMILY = pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
EXPECTED = yaml.safe_load(Path(__file__).with_name("expected.yaml").read_text(encoding="utf-8"))


def assert_equal(tensors, expected):
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize(("arguments", "layers"), EXPECTED["layers"])
def test_strategies(arguments, layers):
    assert selected_layers(*arguments) == layers


def test_named_strategies_stay_in_range_and_never_go_back():
    for teacher in range(1, 14):
        for student in range(1, teacher + 1):
            for name in ("first", "last", "uniform", "ends"):
                layers = selected_layers(name, student, teacher)
                assert len(layers) == student and layers == sorted(layers)
                assert 1 <= layers[0] <= layers[-1] <= teacher
                if name == "ends" and student > 1:
                    assert (layers[0], layers[-1], len(set(layers))) == (1, teacher, student)


@EVERY_FAMILY
def test_a_truncated_teacher_is_the_teachers_lower_half(family):
    teacher = tiny.tiny_model(family)
    student, record = tiny.start_student(teacher, 2, "first")
    batch = tiny.tiny_batch(family)
    ours = student(**batch, output_hidden_states=True).hidden_states
    theirs = teacher(**batch, output_hidden_states=True).hidden_states
    # A final norm is on the last state of the student, and on none of the teacher's lower ones.
    has_norm = family in ("modernbert", "llama", "qwen3", "gpt2", "eurobert")
    assert all(torch.equal(ours[layer], theirs[layer]) for layer in range(2 if has_norm else 3))
    assert (record.layers, record.embeddings, record.random, record.projected) == ([1, 2], "copied", [], [])


@EVERY_FAMILY
def test_the_whole_teacher_again_is_the_teacher(family):
    teacher = tiny.tiny_model(family)
    student, record = tiny.start_student(teacher, tiny.LAYERS, "uniform")
    assert_equal(student.state_dict(), teacher.state_dict())
    assert set(record.copied) == set(teacher.state_dict())
    batch = tiny.tiny_batch(family)
    assert torch.equal(student(**batch).last_hidden_state, teacher(**batch).last_hidden_state)


@pytest.mark.parametrize("strategy", ["last", "ends", "uniform", [4, 1, 1]])
@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "gpt2", "llama"])
def test_each_block_equals_its_source(family, strategy):
    teacher = tiny.tiny_model(family)
    student, record = tiny.start_student(teacher, 3, strategy)
    assert list(record.layers) == selected_layers(strategy, 3, tiny.LAYERS)
    for block, layer in zip(blocks(student), record.layers, strict=True):
        assert_equal(block.state_dict(), blocks(teacher)[layer - 1].state_dict())


def test_the_student_shares_no_memory_with_the_teacher():
    teacher = tiny.tiny_model("bert")
    student, _ = tiny.start_student(teacher, 2, [1, 1])
    ours = [parameter.data_ptr() for parameter in student.parameters()]
    assert set(ours).isdisjoint(parameter.data_ptr() for parameter in teacher.parameters())
    assert len(set(ours)) == len(ours)
    assert all(parameter.requires_grad for parameter in student.parameters())


def test_a_half_precision_teacher_gives_a_float32_student():
    teacher = tiny.tiny_model("bert").bfloat16()
    student, _ = tiny.start_student(teacher, 2, "first")
    assert {parameter.dtype for parameter in student.parameters()} == {torch.float32}
    assert torch.equal(student.get_input_embeddings().weight, teacher.get_input_embeddings().weight.float())


def test_modernbert_blocks_keep_their_kind_and_an_attention_norm_that_has_no_source_is_reset():
    teacher = tiny.tiny_model("modernbert")
    blueprint = tiny.blueprint_like(shape_of(teacher.config), 2)
    student = build_student(student_config(blueprint, teacher.config, source_layers=[4, 1]), seed=0)
    record = start_student(student, teacher, StartSettings(layers=[4, 1], seed=0))
    assert [block.attention_type for block in blocks(student)] == ["full_attention"] * 2
    assert record.reset == ["layers.1.attn_norm.weight"]
    assert torch.equal(student.layers[1].attn_norm.weight, torch.ones(48))
    assert torch.equal(student.layers[0].attn.Wqkv.weight, teacher.layers[3].attn.Wqkv.weight)
    assert student(**tiny.tiny_batch("modernbert")).last_hidden_state.isfinite().all()


def test_albert_groups_start_from_the_group_of_their_first_layer():
    teacher = tiny.tiny_model("albert", num_hidden_groups=2)
    student, _ = tiny.start_student(teacher, 2, "last")
    groups, theirs = student.encoder.albert_layer_groups, teacher.encoder.albert_layer_groups
    assert len(groups) == 2
    for group in groups:
        assert torch.equal(group.albert_layers[0].ffn.weight, theirs[1].albert_layers[0].ffn.weight)


def test_random_parts_are_what_the_seed_draws_and_a_head_is_left_alone():
    teacher = tiny.tiny_model("bert")
    config = student_config(tiny.blueprint_like(shape_of(teacher.config), 2), teacher.config)
    fresh = build_student(config, seed=3).state_dict()
    student = AutoModelForMaskedLM.from_config(config)
    head = {name: tensor.clone() for name, tensor in student.cls.state_dict().items() if "decoder" not in name}
    record = start_student(student, teacher, StartSettings(embeddings="random", seed=3))
    assert_equal(student.bert.state_dict(), fresh)
    assert_equal(head, student.cls.state_dict())
    assert set(record.random) == set(fresh)
    assert record.summary == "Starts from random layers and random embeddings."


@EVERY_FAMILY
def test_every_tensor_of_the_student_is_accounted_for(family):
    teacher = tiny.tiny_model(family)
    for layers, embeddings in (("random", "auto"), ("first", "random"), ("random", "random"), ("last", "auto")):
        student, record = tiny.start_student(teacher, 2, layers, embeddings=embeddings)
        named = [*record.copied, *record.projected, *record.reset, *record.random]
        assert sorted(named) == sorted(student.state_dict())
        json.dumps(record.to_dict())


def test_initialising_is_reproducible_and_leaves_the_teacher_and_the_random_state_alone():
    teacher = tiny.tiny_model("bert")
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    (first, _), (again, _) = (tiny.start_student(teacher, 2, "random", hidden=24, ffn=50) for _ in range(2))
    assert torch.equal(torch.rand(2), expected)
    assert_equal(first.state_dict(), again.state_dict())
    assert_equal(teacher.state_dict(), before)


@pytest.mark.parametrize(
    ("family", "changes", "embeddings"),
    [
        ("bert", {"hidden": 96}, "random"),
        ("electra", {"hidden": 24, "embedding": 24}, "random"),
        *(
            (name, {"hidden": 24}, "projected")
            for name in ("modernbert", "albert", "mpnet", "llama", "gpt2", "nomic_bert")
        ),
    ],
)
def test_embeddings_of_random_layers_start_as_the_widths_allow(family, changes, embeddings):
    _, record = tiny.start_student(tiny.tiny_model(family), 2, "random", **changes)
    assert record.embeddings == embeddings


def test_a_student_of_another_family_starts_at_random():
    student = build_student(tiny.tiny_config("roberta"), seed=0)
    start_student(student, tiny.tiny_model("bert"), StartSettings(embeddings="random", seed=0))  # does not raise


def test_a_checkpoint_is_loaded_bit_equal(tmp_path, refused):
    earlier = tiny.tiny_model("bert", seed=4)
    student = AutoModelForMaskedLM.from_config(tiny.tiny_config("bert"))
    names = load_checkpoint(student, tiny.save_folder(earlier, tmp_path / "earlier", "bert"))
    assert set(names) == set(earlier.state_dict())
    assert_equal(student.bert.state_dict(), earlier.state_dict())
    with refused("The model folder"):
        load_checkpoint(student, tmp_path / "none")
