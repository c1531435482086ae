"""Families without a row: their structure, streams, vectors and students are those of the models themselves."""

import copy

import pytest
import torch
from transformers import AutoConfig

import limbeck
import tests.support.alembic  # noqa: F401 - registers the family
from limbeck.evaluation import encode
from limbeck.models.families import blocks, depth, family_of, shape_of
from limbeck.models.loading import load_config, load_model
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.start import start_student
from limbeck.models.start_step import StartSettings
from limbeck.models.streams import OF_ATTENTION, StreamKey
from limbeck.models.structure import find_family
from limbeck.models.students import build_student, student_config
from limbeck.models.taps import StreamTap
from limbeck.models.tokenizers import load_tokenizer
from limbeck.recipe.choosing import choose_recipe
from tests.support import models as tiny
from tests.support.recipes import recipe_of
from tests.support.training import make_module, make_rows, make_trainer

EACH = pytest.mark.parametrize("family", tiny.UNLISTED)


def pieces(family):
    """The modules around the blocks."""
    found = [*family.embeddings, *family.extras, family.final_norm, family.embedding_projection]
    return sorted(filter(None, found))


@pytest.mark.parametrize("name", [name for name in tiny.ALL_FAMILIES if name != "albert"])
def test_a_family_with_a_row_is_found_as_the_row_says(name):
    config = tiny.tiny_config(name)
    row, found = family_of(config), find_family(config)
    assert pieces(found) == pieces(row)
    facts = ("blocks", "causal", "padded_positions", "positions", "segments", "returned")
    assert [getattr(found, fact) for fact in facts] == [getattr(row, fact) for fact in facts]
    numbers = ("layers", "hidden", "heads", "ffn")
    assert [getattr(found.fields, number) for number in numbers] == [getattr(row.fields, number) for number in numbers]
    assert set(row.fields.dropouts) <= set(found.fields.dropouts)


def test_blocks_that_are_shared_are_no_list_of_blocks(refused):
    with refused("'albert' .* it has 0 lists of blocks that run one after the other"):
        find_family(tiny.tiny_config("albert"))


@EACH
def test_the_parts_of_a_family_hold_all_parameters(family):
    model = tiny.tiny_model(family)
    row = family_of(model.config)
    reached = {
        f"{path}.{name}"
        for path in (row.blocks, *pieces(row))
        # Embeddings that are as wide as the hidden states have no map behind them.
        if path != row.embedding_projection
        for name, _ in model.get_submodule(path).named_parameters()
    }
    assert reached == dict(model.named_parameters()).keys()
    assert str(shape_of(model.config)) == f"{family} 4x48, 4 heads, FFN 96"
    assert len(blocks(model)) == depth(model.config) == 4


@pytest.mark.parametrize(("family", "changes", "causal"), [
    ("gemma3_text", {}, False),
    ("gemma3_text", {"use_bidirectional_attention": False}, True),
    ("qwen3", {}, True),
    ("qwen3", {"is_causal": False}, False),
    ("alembic", {}, False),
])  # fmt: skip
def test_whether_a_token_sees_those_after_it(family, changes, causal):
    model = tiny.tiny_model(family, layers=1, **changes)
    ids = torch.arange(20, 28).unsqueeze(0)
    first = model(input_ids=ids).last_hidden_state[0, :-1]
    ids[0, -1] = 60
    assert torch.equal(model(input_ids=ids).last_hidden_state[0, :-1], first) == causal
    assert shape_of(model.config).causal == causal


@EACH
def test_hidden_streams_equal_output_hidden_states(family):
    model = tiny.tiny_model(family)
    batch = tiny.tiny_batch(family)
    expected = model(**batch, output_hidden_states=True).hidden_states
    valid = batch["attention_mask"].bool()
    for layers in ((0, 1, 2, 3, 4), (0, 2)):
        keys = [StreamKey("hidden" if layer else "embedding", layer) for layer in layers]
        with StreamTap(copy.deepcopy(model), [*keys, StreamKey("cls", 2)], drop_above=True) as tap:
            streams = tap(**batch)
        for key in keys:
            torch.testing.assert_close(streams[key][valid], expected[key.layer][valid], rtol=0, atol=1e-5)
        torch.testing.assert_close(streams[StreamKey("cls", 2)], expected[2][:, 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["gemma3_text", "gte", "alembic"])
def test_relations_are_read_where_the_tap_verifies_itself(family):
    model, seen = tiny.tiny_model(family), []
    attention = {"gemma3_text": "self_attn.v_proj", "gte": "self_attn.v_proj", "alembic": "look"}[family]
    blocks(model)[2].get_submodule(attention).register_forward_hook(lambda module, args, out: seen.append(out))
    keys = [StreamKey(kind, 3) for kind in OF_ATTENTION]
    batch = tiny.tiny_batch(family)
    with StreamTap(model, keys) as tap:
        seen.clear()
        streams = tap(**batch)
    value = streams[StreamKey("value", 3)]
    torch.testing.assert_close(value, seen[0][..., -value.shape[-1] :], rtol=1e-5, atol=1e-6)
    assert all(streams[key].isfinite().all() for key in keys)


@pytest.mark.parametrize(("family", "changes", "kind", "message"), [
    ("deberta-v2", {}, "query", "does not compute attention through transformers' AttentionInterface"),
    ("alembic", {"oddity": "attention"}, "value", "compute attention through transformers' AttentionInterface"),
    ("alembic", {"oddity": "query"}, "query", "query of layer 2 .* not the output of any map .*hidden states"),
    ("alembic", {"oddity": "between"}, "hidden", "Layer 2 .* hidden states that differ from its output_hidden_states"),
])  # fmt: skip
def test_streams_that_cannot_be_verified_are_refused(family, changes, kind, message, refused):
    model = tiny.tiny_model(family, **changes)
    with refused(message):
        StreamTap(model, [StreamKey(kind, 2)])
    others = "query" if kind == "hidden" else "hidden" if "Interface" in message else "value"
    StreamTap(model, [StreamKey(others, 2)]).close()


@EACH
def test_a_student_starts_from_whole_layers_of_its_teacher(family):
    teacher = tiny.tiny_model(family)
    blueprint = tiny.blueprint_like(shape_of(teacher.config), 2)
    student = build_student(student_config(blueprint, teacher.config, source_layers=[2, 3]), seed=9)
    start = start_student(student, teacher, StartSettings(layers=[2, 3], seed=3))
    assert not start.random and not start.reset and not start.projected
    assert len(start.copied) == len(student.state_dict())
    path, theirs = family_of(teacher.config).blocks, teacher.state_dict()
    for name, tensor in student.state_dict().items():
        assert torch.equal(tensor, theirs[name.replace(f"{path}.1.", f"{path}.2.").replace(f"{path}.0.", f"{path}.1.")])
    for listed in ("layer_types", "layer_doors"):
        if getattr(teacher.config, listed, None) is not None:
            assert getattr(student.config, listed) == getattr(teacher.config, listed)[1:3]


def test_layers_of_another_kind_are_not_mixed(refused):
    teacher = tiny.tiny_model("alembic")
    with refused("'tower.0.door.weight' of the student has no counterpart in the teacher's layer"):
        tiny.start_student(teacher, 2, [2, 3])  # The student's own pattern begins with a door.


@EACH
def test_a_narrower_copy_is_refused_and_a_random_start_is_not(family, refused):
    teacher = tiny.tiny_model(family)
    reason = f"Blocks of {family} can only be copied between equal shapes, because limbeck does not know which map"
    with refused(f"{reason} .* layers: random"):
        tiny.start_student(teacher, 2, "first", hidden=24)
    student, start = tiny.start_student(teacher, 2, "random", hidden=24)
    assert shape_of(student.config).hidden == 24 and not start.copied and not start.projected


def test_the_recipe_that_is_chosen_reads_what_is_certain(text_folder, tmp_path):
    folder = tiny.make_teacher(tmp_path, "deberta-v2")
    recipe = choose_recipe(folder, 2, str(text_folder))
    assert [stage["method"]["name"] for stage in recipe["stages"]] == ["hidden_states"]


@pytest.mark.parametrize(("family", "method"), [("deberta-v2", "hidden_states"), ("gemma3_text", "minilmv2")])
def test_three_steps_of_training(family, method, tmp_path):
    module = make_module(method, family)
    before = copy.deepcopy(module.student.state_dict())
    trainer = make_trainer(module, make_rows(12), tmp_path, max_steps=3, per_device_train_batch_size=4)
    trainer.train()
    assert trainer.state.global_step == 3
    after = module.student.state_dict()
    assert sum(not torch.equal(tensor, after[name]) for name, tensor in before.items()) > len(before) // 2


def test_a_family_of_ones_own_becomes_a_student_end_to_end(text_folder, tmp_path):
    teacher = tiny.make_teacher(tmp_path, "alembic")
    write_sentence_transformers_files(teacher, width=48, pooling="mean", normalize=True, max_length=None)
    recipe = recipe_of(teacher, text_folder, {"name": "sentence_embedding"}, output=str(tmp_path / "run"))
    recipe["student"] = {"shape": {"layers": 2, "hidden": 48, "heads": 4, "ffn": 96}, "initialise": {"layers": "ends"}}
    recipe["stages"][0]["training"] |= {"max_steps": 3, "eval_strategy": "no"}
    student = limbeck.distill(recipe).student
    config = load_config(student)
    assert (config.floors, config.layer_doors, type(config)) == (
        2,
        ["wide", "none"],
        AutoConfig.for_model("alembic").__class__,
    )
    vectors = encode(
        load_model(student), load_tokenizer(student), ["the model"], pooling=SentenceHead(sentence_pooling(student))
    )
    assert vectors.shape == (1, 48)
