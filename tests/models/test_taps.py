"""Taps equal a full forward, whatever the family, and stop as early as they may."""

import copy
import itertools

import pytest
import torch

from limbeck.errors import ModelError
from limbeck.models.families import base_model, blocks, depth
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.streams import OF_ATTENTION, StreamKey
from limbeck.models.tap_points import TAPPED_ATTENTION
from limbeck.models.taps import StreamTap, pool
from tests.support.models import ALL_FAMILIES, LAYERS, tiny_batch, tiny_model

LENGTH = 11


@pytest.fixture(params=ALL_FAMILIES, scope="module")
def model(request):
    return tiny_model(request.param)


def drawn(model, rows=2):
    """Ids, and a mask of real tokens only."""
    ids = torch.randint(6, model.config.vocab_size, (rows, LENGTH), generator=torch.Generator().manual_seed(0))
    return ids, torch.ones_like(ids)


@pytest.fixture(scope="module")
def batch(model):
    ids, mask = drawn(model, rows=4)
    mask[1, 7:] = 0  # padding on the right
    mask[2, :4] = 0  # and on the left
    mask[3, 3:6] = 0  # and a gap
    return ids, mask


def all_keys(model):
    layers = range(1, depth(model.config) + 1)
    kinds = ("hidden", *OF_ATTENTION)
    return [StreamKey("embedding", 0), *itertools.starmap(StreamKey, itertools.product(kinds, layers))]


def read(model, keys, batch, **options):
    with StreamTap(model, keys, **options) as tap:
        return tap(*batch)


@pytest.fixture(scope="module")
def streams(model, batch):
    """Every stream of the batch."""
    return read(model, all_keys(model), batch)


def test_hidden_equals_output_hidden_states(model, batch, streams):
    ids, mask = batch
    expected = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
    valid = mask.bool()
    assert torch.equal(streams[StreamKey("embedding", 0)][valid], expected[0][valid])
    for layer in range(1, depth(model.config) + 1):
        found = streams[StreamKey("hidden", layer)]
        torch.testing.assert_close(found[valid], expected[layer][valid], rtol=0, atol=5e-6)


BERTS = ("bert", "roberta", "xlm-roberta", "camembert", "ernie", "electra")
PROJECTIONS = {
    **dict.fromkeys(
        BERTS, ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    ),
    "distilbert": ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
    "mpnet": ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o"),
    "albert": tuple(f"albert_layers.0.attention.{name}" for name in ("query", "key", "value", "dense")),
    "llama": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
}


@pytest.mark.parametrize("family", sorted(PROJECTIONS))
def test_projections_equal_the_modules_own_outputs(family):
    model = tiny_model(family)
    seen, handles = {kind: [] for kind in OF_ATTENTION}, []
    for block in dict.fromkeys(blocks(model)):
        for kind, path in zip(OF_ATTENTION, PROJECTIONS[family], strict=True):

            def note(module, args, output, kind=kind):
                seen[kind].append(args[0] if kind == "context" else output)

            handles.append(block.get_submodule(path).register_forward_hook(note))
    ids, mask = drawn(model)
    model(input_ids=ids, attention_mask=mask)
    for handle in handles:
        handle.remove()
    streams = read(model, all_keys(model), (ids, mask))
    for kind, layer in itertools.product(OF_ATTENTION, range(1, LAYERS + 1)):
        ours, theirs = streams[StreamKey(kind, layer)], seen[kind][layer - 1]
        if family == "llama" and kind in ("query", "key"):  # Rotary embedding keeps norms, not values.
            ours, theirs = ours.norm(dim=-1), theirs.norm(dim=-1)
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_modernbert_fused_projection_is_split_and_rotated():
    model, fused = tiny_model("modernbert"), []
    handle = blocks(model)[1].attn.Wqkv.register_forward_hook(lambda module, args, out: fused.append(out))
    keys = [StreamKey(kind, 2) for kind in ("query", "key", "value")]
    streams = read(model, keys, drawn(model))
    handle.remove()
    query, key, value = fused[0].chunk(3, dim=-1)
    assert torch.equal(streams[keys[2]], value)
    # Position 0 is not rotated; elsewhere rotation keeps the norm.
    torch.testing.assert_close(streams[keys[0]][:, 0], query[:, 0])
    torch.testing.assert_close(streams[keys[0]].norm(dim=-1), query.norm(dim=-1))
    torch.testing.assert_close(streams[keys[1]].norm(dim=-1), key.norm(dim=-1))


TRUNCATIONS = [
    [("query", 3), ("key", 3), ("value", 3)],
    [("value", LAYERS)],
    [("context", 2)],
    [("hidden", 2)],
    [("embedding", 0)],
    [("hidden", 1), ("query", 2)],
    [("query", 2), ("context", 2)],
]


@pytest.mark.parametrize("drop_above", [False, True])
@pytest.mark.parametrize("keys", TRUNCATIONS, ids=lambda keys: "+".join(f"{k}{n}" for k, n in keys))
def test_truncated_forward_equals_the_full_one(model, batch, streams, keys, drop_above):
    keys = [StreamKey(*key) for key in keys]
    found = read(copy.deepcopy(model), keys, batch, drop_above=drop_above)
    assert set(found) == set(keys)
    valid = batch[1].bool()
    for key in keys:
        assert torch.equal(found[key][valid], streams[key][valid]), key


def test_nothing_runs_beyond_the_deepest_stream():
    model, ran = tiny_model("bert"), []
    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(lambda module, args, out, name=name: ran.append(name))
    read(model, [StreamKey("value", 2)], drawn(model))
    assert any("layer.1.attention.self.value" in name for name in ran)
    beyond = ("layer.2", "layer.3", "layer.1.attention.output", "layer.1.intermediate")
    assert not [name for name in ran if any(part in name for part in beyond)]


def test_gradient_reaches_exactly_what_a_stream_depends_on():
    model, key = tiny_model("bert").train(), StreamKey("query", 3)
    with StreamTap(model, [key]) as tap:
        tap(*drawn(model))[key].square().sum().backward()
    reached = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert {"encoder.layer.2.attention.self.query.weight", "encoder.layer.1.output.dense.weight"} <= reached
    beyond = ("layer.2.attention.self.key", "layer.2.output", "layer.3")
    assert not [name for name in reached if any(part in name for part in beyond)]


def test_dropping_frees_the_blocks():
    model = tiny_model("bert")
    with StreamTap(model, [StreamKey("query", 2)], drop_above=True):
        pass
    assert len(blocks(model)) == 2


def test_close_restores_the_model(model, batch):
    ids, mask = batch
    before = model(input_ids=ids, attention_mask=mask).last_hidden_state
    implementation = model.config._attn_implementation
    read(model, [StreamKey("query", 1)], batch)
    assert model.config._attn_implementation == implementation != TAPPED_ATTENTION
    assert not [module for module in model.modules() if {"forward", "_limbeck_recorder"} & vars(module).keys()]
    assert torch.equal(model(input_ids=ids, attention_mask=mask).last_hidden_state, before)


def test_a_tapped_model_is_saved_under_its_names_and_with_its_attention(tmp_path):
    model = tiny_model("bert")
    names = list(model.state_dict())
    with StreamTap(model, [StreamKey("query", 2)]):
        assert list(model.state_dict()) == names
        model.save_pretrained(tmp_path)
    assert TAPPED_ATTENTION not in (tmp_path / "config.json").read_text()


class Reader(torch.nn.Module):
    """Reads streams as part of a module."""

    def __init__(self, model, keys):
        super().__init__()
        self.model, self.tap = model, StreamTap(model, keys)

    def forward(self, ids, mask):
        return {str(key): value for key, value in self.tap(ids, mask).items()}


@pytest.mark.parametrize("keys", [[("query", 2), ("hidden", 1)], [("hidden", LAYERS)]])
def test_taps_work_under_torch_compile(keys):
    model = tiny_model("bert")
    batch = drawn(model)
    reader = Reader(model, [StreamKey(*key) for key in keys])
    expected, compiled = reader(*batch), torch.compile(reader, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(*batch), expected)


def test_vectors_go_through_the_modules_behind_the_pooling():
    """In float32, whatever precision the model runs in."""
    model, key, head = tiny_model("bert"), StreamKey("vector", LAYERS), SentenceHead("mean")
    head.layers.append(torch.nn.Linear(48, 5))
    batch = tiny_batch("bert")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    expected = head(hidden, batch["attention_mask"].bool())
    with StreamTap(model, [key], pooling=head) as tap, torch.no_grad():
        torch.testing.assert_close(tap(**batch)[key], expected)
        with torch.autocast("cpu", torch.bfloat16):
            assert tap(**batch)[key].dtype == torch.float32
    with pytest.raises(ModelError, match="Layer 1 has no stream 'vector'"):
        StreamTap(model, [StreamKey("vector", 1)])


def test_pooled_stream_ignores_padding():
    model, key = tiny_model("bert"), StreamKey("pooled", LAYERS)
    ids, mask = drawn(model, rows=3)
    mask[1, 5:] = 0
    mask[2] = 0
    pooled = read(model, [key], (ids, mask))[key]
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    expected = torch.stack([hidden[0].mean(0), hidden[1, :5].mean(0), torch.zeros(48)])
    torch.testing.assert_close(pooled, expected)


def test_pooling_takes_the_first_valid_token_or_the_mean_of_all_whatever_the_padding_holds():
    hidden = torch.arange(24.0).reshape(2, 4, 3)
    hidden[0, 3] = hidden[1, 0] = float("nan")
    valid = torch.tensor([[True, True, True, False], [False, True, True, True]])
    assert torch.equal(pool(hidden, valid, "cls"), torch.stack([hidden[0, 0], hidden[1, 1]]))
    assert torch.equal(pool(hidden, valid, "mean"), torch.stack([hidden[0, 1], hidden[1, 2]]))


def test_base_model_is_tapped_below_a_head():
    model = tiny_model("bert", head="masked_lm")
    ids, mask = drawn(model)
    keys = [StreamKey("logits", LAYERS), StreamKey("hidden", LAYERS), StreamKey("query", 1)]
    streams = read(model, keys, (ids, mask))
    expected = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    torch.testing.assert_close(streams[keys[0]], expected.logits)
    torch.testing.assert_close(streams[keys[1]], expected.hidden_states[-1])
    assert base_model(model) is model.bert is base_model(model.bert)
