"""The table of families holds for the models themselves: paths, numbers, positions, roles and the order of blocks."""

import pytest
import torch

from limbeck.models.families import block_list, blocks, family_of, shape_of
from limbeck.models.family_table import families
from tests.support import models as tiny

EVERY_FAMILY = pytest.mark.parametrize("family", tiny.ALL_FAMILIES)


def test_every_family_of_the_table_has_a_tiny_model():
    assert set(tiny.ALL_FAMILIES) == set(families)


@EVERY_FAMILY
def test_the_paths_of_a_family_exist_and_lead_to_all_its_parameters(family):
    model = tiny.tiny_model(family)
    row = family_of(model.config)
    paths = [row.blocks, *row.embeddings, *row.extras, row.final_norm, row.embedding_projection]
    reached = {
        f"{path}.{name}" for path in filter(None, paths) for name, _ in model.get_submodule(path).named_parameters()
    }
    assert reached == dict(model.named_parameters()).keys()


@EVERY_FAMILY
def test_the_numbers_of_a_configuration(family):
    shape = shape_of(tiny.tiny_config(family, layers=3))
    assert (shape.layers, shape.hidden, shape.heads, shape.ffn, shape.head_size) == (3, 48, 4, 96, 12)
    assert shape.vocabulary == len(tiny.vocabulary(family))
    assert shape.embedding == (tiny.EMBEDDING if family in ("electra", "albert") else 48)
    assert shape.key_value_heads == (2 if family in ("llama", "qwen3", "eurobert") else 4)
    assert str(shape) == f"{family} 3x48, 4 heads, FFN 96" + (", embedding 24" if shape.embedding == 24 else "")


@EVERY_FAMILY
def test_positions_are_exactly_the_longest_input(family):
    model = tiny.tiny_model(family, layers=1)
    positions = shape_of(model.config).positions
    assert positions == tiny.MAX_LENGTH
    batch = tiny.tiny_batch(family, rows=1, length=positions)
    assert model(**batch).last_hidden_state.isfinite().all()


@pytest.mark.parametrize("family", [name for name, row in families.items() if row.roles is not None])
def test_roles_name_linear_maps_of_the_right_widths(family):
    roles, block = families[family].roles, blocks(tiny.tiny_model(family, layers=1))[0]
    maps = (roles.query, roles.attention_output, roles.ffn_in, roles.ffn_out)
    widths = [tuple(block.get_submodule(path).weight.shape) for path in maps]
    assert widths == [(48, 48), (48, 48), (96, 48), (48, 96)]
    norms = {name for name, module in block.named_modules() if isinstance(module, torch.nn.LayerNorm)}
    assert norms == set(roles.norms)


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


def test_heads_may_be_wider_than_their_part_of_the_hidden_width():
    assert shape_of(tiny.tiny_config("qwen3", head_dim=20)).head_size == 20


def test_gpt2_without_an_ffn_width_has_four_times_the_hidden_one():
    assert shape_of(tiny.tiny_config("gpt2", n_inner=None)).ffn == 4 * 48
