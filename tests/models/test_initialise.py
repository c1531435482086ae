import json

import pytest
import torch
from transformers import AutoModelForMaskedLM

from limbeck.errors import ModelError
from limbeck.models.blueprint import build_student, parse_blueprint, student_config
from limbeck.models.families import blocks, shape_of
from limbeck.models.initialise import initialise_student, selected_layers
from limbeck.models.loading import load_checkpoint
from tests.support import models as tiny

EXACT = pytest.mark.parametrize("family", tiny.ALL_FAMILIES)


def _student(teacher, layers, **changes):
    blueprint = tiny.blueprint_like(shape_of(teacher.config), layers).model_copy(update=changes)
    return build_student(student_config(blueprint, teacher.config), seed=99)


def _initialised(teacher, layers, strategy, *, embeddings="auto", **changes):
    student = _student(teacher, layers, **changes)
    return student, initialise_student(student, teacher, layers=strategy, embeddings=embeddings, seed=3)


@EXACT
def test_a_truncated_teacher_is_the_teachers_lower_half(family):
    teacher = tiny.tiny_model(family)
    student, report = _initialised(teacher, 2, "first")
    batch = tiny.tiny_batch(family)
    ours = student(**batch, output_hidden_states=True).hidden_states
    theirs = teacher(**batch, output_hidden_states=True).hidden_states
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    if student.config.model_type not in ("modernbert", "llama", "qwen3", "gpt2", "eurobert"):
        assert torch.equal(ours[2], theirs[2])  # the others put their final norm on the last one
    assert (report.layers, report.embeddings) == ([1, 2], "copied")
    assert not report.random
    assert not report.projected


@EXACT
def test_the_whole_teacher_again_is_the_teacher(family):
    teacher = tiny.tiny_model(family)
    student, report = _initialised(teacher, tiny.LAYERS, "uniform")
    given = teacher.state_dict()
    assert all(torch.equal(tensor, given[name]) for name, tensor in student.state_dict().items())
    assert set(report.copied) == set(given)
    batch = tiny.tiny_batch(family)
    assert torch.equal(student(**batch).last_hidden_state, teacher(**batch).last_hidden_state)


@pytest.mark.parametrize("strategy", ["last", "ends", "uniform", [4, 1, 1]])
@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "gpt2", "llama"])
def test_each_block_equals_its_source(family, strategy):
    teacher = tiny.tiny_model(family)
    student, report = _initialised(teacher, 3, strategy)
    assert list(report.layers) == selected_layers(strategy, 3, tiny.LAYERS)
    for block, layer in zip(blocks(student), report.layers, strict=True):
        given = blocks(teacher)[layer - 1].state_dict()
        assert all(torch.equal(tensor, given[name]) for name, tensor in block.state_dict().items())


def test_the_student_shares_no_memory_with_the_teacher():
    teacher = tiny.tiny_model("bert")
    student, _ = _initialised(teacher, 2, [1, 1])
    owned = {parameter.data_ptr() for parameter in teacher.parameters()}
    ours = [parameter.data_ptr() for parameter in student.parameters()]
    assert owned.isdisjoint(ours)
    assert len(set(ours)) == len(ours)
    assert all(parameter.requires_grad for parameter in student.parameters())


def test_a_half_precision_teacher_gives_a_float32_student():
    teacher = tiny.tiny_model("bert").bfloat16()
    student, _ = _initialised(teacher, 2, "first")
    assert {parameter.dtype for parameter in student.parameters()} == {torch.float32}
    words = student.get_input_embeddings().weight
    assert torch.equal(words, teacher.get_input_embeddings().weight.float())


def test_modernbert_blocks_keep_their_kind_and_an_attention_norm_that_has_no_source_is_reset():
    teacher = tiny.tiny_model("modernbert")
    blueprint = tiny.blueprint_like(shape_of(teacher.config), 2)
    config = student_config(blueprint, teacher.config, source_layers=[4, 1])
    student = build_student(config, seed=0)
    report = initialise_student(student, teacher, layers=[4, 1], seed=0)
    assert [block.attention_type for block in blocks(student)] == ["full_attention"] * 2
    assert report.reset == ["layers.1.attn_norm.weight"]
    assert torch.equal(student.layers[1].attn_norm.weight, torch.ones(48))
    assert torch.equal(student.layers[0].attn.Wqkv.weight, teacher.layers[3].attn.Wqkv.weight)
    assert student(**tiny.tiny_batch("modernbert")).last_hidden_state.isfinite().all()


def test_albert_groups_start_from_the_group_of_their_first_layer():
    teacher = tiny.tiny_model("albert", num_hidden_groups=2)
    student, _ = _initialised(teacher, 2, "last")
    groups = student.encoder.albert_layer_groups
    theirs = teacher.encoder.albert_layer_groups
    assert len(groups) == 2
    for group in groups:
        assert torch.equal(group.albert_layers[0].ffn.weight, theirs[1].albert_layers[0].ffn.weight)


def test_random_parts_are_what_the_seed_draws_and_a_head_is_left_alone():
    teacher = tiny.tiny_model("bert")
    config = student_config(tiny.blueprint_like(shape_of(teacher.config), 2), teacher.config)
    fresh = build_student(config, seed=3).state_dict()
    student = AutoModelForMaskedLM.from_config(config)
    head = {name: t.clone() for name, t in student.state_dict().items() if name.startswith("cls.pred")}
    report = initialise_student(student, teacher, embeddings="random", seed=3)
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in student.bert.state_dict().items())
    assert set(report.random) == set(fresh)
    assert report.summary == "Starts from random layers and random embeddings."
    for name in ("transform.dense.weight", "bias"):
        full = f"cls.predictions.{name}"
        assert torch.equal(student.state_dict()[full], head[full])


@EXACT
def test_every_tensor_of_the_student_is_accounted_for(family):
    teacher = tiny.tiny_model(family)
    for layers, embeddings in (("random", "auto"), ("first", "random"), ("random", "random"), ("last", "auto")):
        student, report = _initialised(teacher, 2, layers, embeddings=embeddings)
        named = [*report.copied, *report.projected, *report.reset, *report.random]
        assert sorted(named) == sorted(student.state_dict())
        json.dumps(report.to_dict())


def test_initialising_is_reproducible_and_leaves_the_teacher_and_the_random_state_alone():
    teacher = tiny.tiny_model("bert")
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    first, _ = _initialised(teacher, 2, "random", hidden=24, ffn=50)
    again, _ = _initialised(teacher, 2, "random", hidden=24, ffn=50)
    assert torch.equal(torch.rand(2), expected)
    given = again.state_dict()
    assert all(torch.equal(tensor, given[name]) for name, tensor in first.state_dict().items())
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())


# What cannot be


@pytest.mark.parametrize("family", ["modernbert", "albert", "mpnet", "llama", "gpt2", "nomic_bert"])
def test_families_without_roles_copy_only_equal_blocks(family):
    teacher = tiny.tiny_model(family)
    with pytest.raises(ModelError, match=rf"Blocks of {family} can only be copied at equal shape, because"):
        _initialised(teacher, 2, "first", hidden=24)
    _, report = _initialised(teacher, 2, "random", hidden=24)
    assert report.embeddings == "projected"


SAME_WIDTH = "cannot be projected: the student's are 48 wide and the teacher's 48; set embeddings: copied"
ACROSS_HEADS = r"heads are 24 wide and the teacher's 12, so a copy would cut across heads; set heads to 4"
WIDER_FFN = r"FFN width 128 exceeds the teacher's 96.*set ffn to at most 96, or set layers: random"


@pytest.mark.parametrize(
    ("changes", "layers", "embeddings", "message"),
    [
        ({"hidden": 96}, "first", "auto", r"hidden width 96 exceeds the teacher's 48.*set hidden to at most 48"),
        ({"ffn": 128}, "first", "auto", WIDER_FFN),
        ({"heads": 6}, "first", "auto", r"heads 6 exceeds the teacher's 4"),
        ({"heads": 2}, "first", "auto", ACROSS_HEADS),
        ({}, "random", "projected", SAME_WIDTH),
        ({"hidden": 24}, "random", "copied", "cannot be copied: the student's are 24 .* projected, or auto"),
        ({"hidden": 96}, "random", "copied", "set embeddings: random"),
        ({}, "random", "copyed", "Unknown embeddings 'copyed'. Did you mean 'copied'"),
    ],
)
def test_starts_that_do_not_fit_are_refused(changes, layers, embeddings, message):
    with pytest.raises(ModelError, match=message):
        _initialised(tiny.tiny_model("bert"), 2, layers, embeddings=embeddings, **changes)


def test_a_wider_student_starts_random_by_itself():
    _, report = _initialised(tiny.tiny_model("bert"), 2, "random", hidden=96)
    assert report.embeddings == "random"


def test_another_family_or_vocabulary_is_refused():
    student = build_student(tiny.tiny_config("roberta"), seed=0)
    with pytest.raises(ModelError, match="A roberta student cannot start from a bert teacher"):
        initialise_student(student, tiny.tiny_model("bert"), layers="first", seed=0)
    other = build_student(tiny.tiny_config("bert", vocab_size=50), seed=0)
    with pytest.raises(ModelError, match="student's vocabulary has 50 tokens and the teacher's"):
        initialise_student(other, tiny.tiny_model("bert"), seed=0)
    initialise_student(student, tiny.tiny_model("bert"), embeddings="random", seed=0)


# A checkpoint


def test_a_checkpoint_is_loaded_bit_equal(tmp_path):
    earlier = tiny.tiny_model("bert", seed=4)
    path = tiny.save_folder(earlier, tmp_path / "earlier", "bert")
    student = AutoModelForMaskedLM.from_config(tiny.tiny_config("bert"))
    names = load_checkpoint(student, path)
    given = earlier.state_dict()
    assert set(names) == set(given)
    assert all(torch.equal(tensor, given[name]) for name, tensor in student.bert.state_dict().items())


OTHER_SHAPE = r"The checkpoint .* is bert 4x48, 4 heads, FFN 96, vocabulary .* the student is"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({name: size}, OTHER_SHAPE) for name, size in (("layers", 3), ("hidden", 24), ("vocab_size", 40))),
        ({"max_position_embeddings": 9}, OTHER_SHAPE),
        ({"type_vocab_size": 3}, "no tensor that fits 'embeddings.token_type_embeddings.weight'"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path, changes, message):
    student = build_student(tiny.tiny_config("bert", **changes), seed=0)
    with pytest.raises(ModelError, match=message):
        load_checkpoint(student, tiny.make_teacher(tmp_path, "bert"))
    with pytest.raises(ModelError, match="There is no model folder"):
        load_checkpoint(student, tmp_path / "none")


def test_a_parsed_blueprint_works_end_to_end():
    teacher = tiny.tiny_model("bert", hidden=96, heads=12, ffn=400)
    student = build_student(student_config(parse_blueprint("2x48"), teacher.config), seed=0)
    report = initialise_student(student, teacher, layers="uniform", seed=0)
    assert shape_of(student.config).ffn == 192
    assert report.summary.startswith("Starts from teacher layers 2, 4 and projected embeddings (keeping ")
    assert student(**tiny.tiny_batch("bert")).last_hidden_state.isfinite().all()
