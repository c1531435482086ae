import pytest
import torch
from transformers import AutoModelForMaskedLM, T5Config

from limbeck.errors import ModelError
from limbeck.models.families import base_model, block_list, blocks, depth, families, family_of, shape_of
from tests.support import models as tiny


def test_every_family_of_the_table_has_a_tiny_model():
    assert set(tiny.ALL_FAMILIES) == set(families)


@pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
def test_the_paths_of_a_family_exist_and_lead_to_all_its_parameters(family):
    model = tiny.tiny_model(family)
    row = family_of(model.config)
    around = [*row.embeddings, *row.extras]
    around += [path for path in (row.final_norm, row.embedding_projection) if path]
    reached = {name for path in (row.blocks, *around) for name in _names(model, path)}
    assert reached == dict(model.named_parameters()).keys()


def _names(model, path):
    return {f"{path}.{name}" for name, _ in model.get_submodule(path).named_parameters()}


@pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
def test_the_numbers_of_a_configuration(family):
    config = tiny.tiny_config(family, layers=3)
    shape = shape_of(config)
    assert depth(config) == 3
    assert (shape.layers, shape.hidden, shape.heads, shape.ffn, shape.head_size) == (3, 48, 4, 96, 12)
    assert shape.vocabulary == len(tiny.vocabulary(family))
    assert shape.embedding == (tiny.EMBEDDING if family in ("electra", "albert") else 48)
    assert shape.key_value_heads == (2 if family in ("llama", "qwen3", "eurobert") else 4)


@pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
def test_positions_are_exactly_the_longest_input(family):
    model = tiny.tiny_model(family, layers=1)
    positions = shape_of(model.config).positions
    assert positions == tiny.MAX_LENGTH
    batch = tiny.tiny_batch(family, rows=1, length=positions)
    assert model(**batch).last_hidden_state.isfinite().all()


def test_roles_name_linear_maps_of_the_right_widths():
    for name, row in families.items():
        if row.roles is None:
            continue
        block = blocks(tiny.tiny_model(name, layers=1))[0]
        widths = [
            tuple(block.get_submodule(path).weight.shape)
            for path in (row.roles.query, row.roles.attention_output, row.roles.ffn_in, row.roles.ffn_out)
        ]
        assert widths == [(48, 48), (48, 48), (96, 48), (48, 96)]
        norms = {name for name, module in block.named_modules() if isinstance(module, torch.nn.LayerNorm)}
        assert norms == set(row.roles.norms)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_blocks_are_one_a_layer_and_in_order(family):
    model = tiny.tiny_model(family)
    called = []
    for block in set(blocks(model)):
        block.register_forward_pre_hook(lambda module, args: called.append(module))
    model(**tiny.tiny_batch(family))
    assert called == blocks(model)


def test_albert_groups_are_spread_over_the_layers_as_its_forward_does():
    model = tiny.tiny_model("albert", layers=4, num_hidden_groups=2)
    first, second = block_list(model)
    assert blocks(model) == [first, first, second, second]


def test_a_head_is_looked_through():
    model = AutoModelForMaskedLM.from_config(tiny.tiny_config("bert"))
    assert base_model(model) is model.bert
    assert base_model(model.bert) is model.bert
    assert len(blocks(model)) == tiny.LAYERS


def test_gpt2_without_an_ffn_width_has_four_times_the_hidden_one():
    assert shape_of(tiny.tiny_config("gpt2", n_inner=None)).ffn == 4 * 48


def test_an_unknown_family_is_refused_with_the_known_ones_and_a_near_one_suggested():
    with pytest.raises(ModelError, match=r"^Unknown model family 't5'\..*Known: .*bert.*roberta"):
        family_of(T5Config())
    config = tiny.tiny_config("bert")
    config.model_type = "robertta"
    with pytest.raises(ModelError, match="Did you mean 'roberta'"):
        shape_of(config)


def test_a_shape_reads_well():
    assert str(shape_of(tiny.tiny_config("bert"))) == "bert 4x48, 4 heads, FFN 96"
    assert str(shape_of(tiny.tiny_config("albert"))).endswith("embedding 24")
