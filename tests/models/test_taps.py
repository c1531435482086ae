"""Taps equal what a full forward gives, whatever the family, and stop as early as they may."""

import copy
import itertools

import pytest
import torch

from limbeck.errors import ModelError
from limbeck.models.families import base_model, blocks, depth
from limbeck.models.streams import ATTENTION_KINDS, StreamKey
from limbeck.models.tap_points import TAPPED_ATTENTION
from limbeck.models.taps import StreamTap, pool
from tests.support.models import ALL_FAMILIES, LAYERS, tiny_model

LENGTH = 11


@pytest.fixture(params=ALL_FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture
def batch(model):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(6, model.config.vocab_size, (4, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0  # padding on the right
    mask[2, :4] = 0  # and on the left
    mask[3, 3:6] = 0  # and a gap
    return ids, mask


def all_keys(model):
    layers = range(1, depth(model.config) + 1)
    return [
        StreamKey("embedding", 0),
        *(StreamKey(kind, layer) for kind in ("hidden", *ATTENTION_KINDS) for layer in layers),
    ]


def read(model, keys, batch, **options):
    with StreamTap(model, keys, **options) as tap:
        return tap(*batch)


def test_hidden_equals_output_hidden_states(model, batch):
    ids, mask = batch
    streams = read(model, all_keys(model), batch)
    expected = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
    valid = mask.bool()
    assert torch.equal(streams[StreamKey("embedding", 0)][valid], expected[0][valid])
    for layer in range(1, depth(model.config) + 1):
        torch.testing.assert_close(
            streams[StreamKey("hidden", layer)][valid], expected[layer][valid], rtol=0, atol=5e-6
        )


PROJECTIONS = {
    "bert": ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    "distilbert": ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
    "mpnet": ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o"),
    "albert": tuple(f"albert_layers.0.attention.{name}" for name in ("query", "key", "value", "dense")),
    "llama": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
}
for _name in ("roberta", "xlm-roberta", "camembert", "ernie", "electra"):
    PROJECTIONS[_name] = PROJECTIONS["bert"]


@pytest.mark.parametrize("family", sorted(PROJECTIONS))
def test_projections_equal_the_modules_own_outputs(family):
    model = tiny_model(family)
    ids = torch.randint(6, model.config.vocab_size, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    seen = {kind: [] for kind in ATTENTION_KINDS}
    handles = []
    for block in dict.fromkeys(blocks(model)):
        *maps, output = PROJECTIONS[family]
        for kind, path in zip(("query", "key", "value"), maps, strict=True):
            handles.append(
                block.get_submodule(path).register_forward_hook(
                    lambda module, args, out, kind=kind: seen[kind].append(out)
                )
            )
        handles.append(
            block.get_submodule(output).register_forward_pre_hook(lambda module, args: seen["context"].append(args[0]))
        )
    model(input_ids=ids, attention_mask=mask)
    for handle in handles:
        handle.remove()
    streams = read(model, all_keys(model), (ids, mask))
    rotated = {"query", "key"} if family == "llama" else set()
    for kind, layer in itertools.product(ATTENTION_KINDS, range(1, LAYERS + 1)):
        ours, theirs = streams[StreamKey(kind, layer)], seen[kind][layer - 1]
        if kind in rotated:  # Rotary embedding keeps norms within a head's pairs, not values.
            torch.testing.assert_close(ours.norm(dim=-1), theirs.norm(dim=-1))
        else:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_modernbert_fused_projection_is_split_and_rotated():
    model = tiny_model("modernbert")
    ids = torch.randint(6, model.config.vocab_size, (2, LENGTH), generator=torch.Generator().manual_seed(2))
    fused = []
    handle = blocks(model)[1].attn.Wqkv.register_forward_hook(lambda module, args, out: fused.append(out))
    keys = [StreamKey(kind, 2) for kind in ("query", "key", "value")]
    streams = read(model, keys, (ids, torch.ones_like(ids)))
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
def test_truncated_forward_equals_the_full_one(model, batch, keys, drop_above):
    keys = [StreamKey(*key) for key in keys]
    full = read(model, all_keys(model), batch)
    cut = copy.deepcopy(model)
    streams = read(cut, keys, batch, drop_above=drop_above)
    assert set(streams) == set(keys)
    valid = batch[1].bool()
    for key in keys:
        assert torch.equal(streams[key][valid], full[key][valid]), key


def test_nothing_runs_beyond_the_deepest_stream():
    model = tiny_model("bert")
    ran = []
    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(lambda module, args, out, name=name: ran.append(name))
    ids = torch.full((1, 5), 7)
    read(model, [StreamKey("value", 2)], (ids, torch.ones_like(ids)))
    assert any("layer.1.attention.self.value" in name for name in ran)
    assert not [name for name in ran if "layer.2" in name or "layer.3" in name]
    assert not [name for name in ran if "layer.1.attention.output" in name or "layer.1.intermediate" in name]


def test_dropping_frees_the_blocks_and_keeps_names():
    model = tiny_model("bert")
    tap = StreamTap(model, [StreamKey("query", 2)], drop_above=True)
    assert len(blocks(model)) == 2
    tap.close()
    student = tiny_model("bert")
    names = list(student.state_dict())
    with StreamTap(student, [StreamKey("query", 2)]):
        assert list(student.state_dict()) == names


def test_close_restores_the_model(model, batch):
    ids, mask = batch
    before = model(input_ids=ids, attention_mask=mask).last_hidden_state
    implementation = model.config._attn_implementation
    read(model, [StreamKey("query", 1)], batch)
    assert model.config._attn_implementation == implementation != TAPPED_ATTENTION
    assert torch.equal(model(input_ids=ids, attention_mask=mask).last_hidden_state, before)


def test_tapped_implementation_never_reaches_a_saved_config(tmp_path):
    model = tiny_model("bert")
    with StreamTap(model, [StreamKey("query", 1)]):
        model.save_pretrained(tmp_path)
    assert TAPPED_ATTENTION not in (tmp_path / "config.json").read_text()


def test_gradient_reaches_exactly_what_a_stream_depends_on():
    model = tiny_model("bert").train()
    ids = torch.randint(6, 60, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    with StreamTap(model, [StreamKey("query", 3)]) as tap:
        tap(ids, torch.ones_like(ids))[StreamKey("query", 3)].square().sum().backward()
    reached = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert "encoder.layer.2.attention.self.query.weight" in reached
    assert "encoder.layer.1.output.dense.weight" in reached
    assert not [name for name in reached if "layer.2.attention.self.key" in name or "layer.2.output" in name]
    assert not [name for name in reached if "layer.3" in name]


@pytest.mark.parametrize("keys", [[("query", 2), ("hidden", 1)], [("hidden", LAYERS)]])
def test_taps_work_under_torch_compile(keys):
    model = tiny_model("bert")
    ids = torch.randint(6, 60, (2, LENGTH), generator=torch.Generator().manual_seed(4))
    mask = torch.ones_like(ids)
    keys = [StreamKey(*key) for key in keys]

    class Reader(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model
            self.tap = StreamTap(model, keys)

        def forward(self, ids, mask):
            return {str(key): value for key, value in self.tap(ids, mask).items()}

    reader = Reader()
    expected = reader(ids, mask)
    compiled = torch.compile(reader, backend="eager")
    for _ in range(2):
        found = compiled(ids, mask)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)


def test_pooled_stream_ignores_padding():
    model = tiny_model("bert")
    ids = torch.randint(6, 60, (3, LENGTH), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    mask[2] = 0
    key = StreamKey("pooled", LAYERS)
    pooled = read(model, [key], (ids, mask))[key]
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(pooled[0], hidden[0].mean(0))
    torch.testing.assert_close(pooled[1], hidden[1, :5].mean(0))
    assert torch.equal(pooled[2], torch.zeros_like(pooled[2]))


def test_cls_pooling_takes_the_first_valid_token():
    hidden = torch.arange(24.0).reshape(2, 4, 3)
    valid = torch.tensor([[True, True, True, False], [False, True, True, True]])
    assert torch.equal(pool(hidden, valid, "cls"), torch.stack([hidden[0, 0], hidden[1, 1]]))


def test_a_poisoned_padding_position_does_not_reach_the_pool():
    hidden = torch.ones(1, 3, 2)
    hidden[0, 2] = float("nan")
    assert torch.equal(pool(hidden, torch.tensor([[True, True, False]]), "mean"), torch.ones(1, 2))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (("query", 0), "1 to 4"),
        (("query", 5), "1 to 4"),
        (("hidden", 9), "1 to 4"),
        (("embedding", 1), "at 0"),
        (("pooled", 2), "at 4"),
        (("querry", 1), "Did you mean 'query'"),
    ],
)
def test_streams_that_do_not_exist_are_refused(key, message):
    with pytest.raises(ModelError, match=message):
        StreamTap(tiny_model("bert"), [StreamKey(*key)])


def test_pooling_names_are_checked():
    with pytest.raises(ModelError, match="Did you mean 'mean'"):
        pool(torch.ones(1, 2, 3), torch.ones(1, 2, dtype=torch.bool), "maen")


def test_base_model_is_tapped_below_a_head():
    from transformers import BertForMaskedLM

    model = BertForMaskedLM(tiny_model("bert").config).eval()
    ids = torch.full((1, 6), 8)
    mask = torch.ones_like(ids)
    keys = [StreamKey("logits", LAYERS), StreamKey("hidden", LAYERS), StreamKey("query", 1)]
    streams = read(model, keys, (ids, mask))
    expected = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    torch.testing.assert_close(streams[keys[0]], expected.logits)
    torch.testing.assert_close(streams[keys[1]], expected.hidden_states[-1])
    assert base_model(model) is model.bert
