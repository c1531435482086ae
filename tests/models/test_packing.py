"""A batch that runs packed gives what it gives padded, with any mask, for every family that packs."""

import pytest
import torch
from torch import nn

from limbeck.models import tap_points
from limbeck.models.families import blocks, depth, families
from limbeck.models.packing import PackedLinear, pack_linear_maps, plan_packing, unpack_linear_maps
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap
from tests.support.models import tiny_model

PACKING = sorted(name for name in families if families[name].packs)


@pytest.fixture(autouse=True)
def short_samples_pack_too(monkeypatch):
    monkeypatch.setattr("limbeck.models.packing.SHORTEST_MEAN", 0)


def mask_of(*rows):
    return torch.tensor([[int(token) for token in row] for row in rows])


MASKS = {
    "right": mask_of("111111", "110000", "111110"),
    "left": mask_of("111111", "000011", "001111"),
    "gaps": mask_of("101101", "011010", "111111"),
    "an empty row": mask_of("111100", "000000", "111111"),
    "full": mask_of("111111", "111111"),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_packing_and_back(mask):
    packing = plan_packing(mask)
    tokens = torch.arange(1, mask.numel() + 1).view(mask.shape)
    packed = packing.pack(tokens)
    assert packed.shape == (1, int(mask.sum()))
    assert torch.equal(packed[0], tokens[mask.bool()])
    assert packing.lengths == [n for n in mask.sum(1).tolist() if n]
    assert torch.equal(packing.unpack(packed), tokens * mask)


def test_nothing_to_pack():
    assert plan_packing(torch.zeros(2, 3)) is None
    assert plan_packing(torch.ones(2, 3, device="meta")) is None
    assert plan_packing(torch.ones(2, 1, 3, 3)) is None


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("family", PACKING)
def test_streams_and_gradients_are_those_of_the_padded_batch(family, mask, monkeypatch):
    model = tiny_model(family)
    ids = torch.randint(6, model.config.vocab_size, mask.shape, generator=torch.Generator().manual_seed(0))
    ids = ids.masked_fill(mask == 0, model.config.pad_token_id or 0)
    top = depth(model.config)
    keys = [StreamKey("embedding", 0), StreamKey("hidden", 1), StreamKey("hidden", top), StreamKey("pooled", top)]
    keys += [StreamKey(kind, top) for kind in ("query", "key", "value", "context", "cls")]
    if not mask.any(1).all():
        keys = [key for key in keys if key.kind not in ("cls", "pooled")]
    found = {}
    for packs in (True, False):
        with StreamTap(model, keys) as tap:
            assert tap._packs
            if not packs:
                monkeypatch.setattr("limbeck.models.taps.plan_packing", lambda _: None)
            streams = tap(ids, mask)
            model.zero_grad()
            valid = mask.bool()
            kept = {key: x if x.dim() == 2 else x[valid] for key, x in streams.items()}
            torch.stack([x.float().sin().sum() for x in kept.values()]).sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found[packs] = kept, gradients
    for key, stream in found[False][0].items():
        torch.testing.assert_close(found[True][0][key], stream, rtol=0, atol=1e-5, msg=str(key))
    assert found[True][1].keys() == found[False][1].keys()
    for name, gradient in found[False][1].items():
        torch.testing.assert_close(found[True][1][name], gradient, rtol=1e-3, atol=1e-4, msg=name)


def test_more_tokens_than_positions_fit_in_a_packed_batch():
    model = tiny_model("bert")
    positions = model.config.max_position_embeddings
    rows = 3
    ids = torch.randint(6, model.config.vocab_size, (rows, positions), generator=torch.Generator().manual_seed(0))
    key = StreamKey("hidden", 1)
    with StreamTap(model, [key]) as tap:
        found = tap(ids, torch.ones_like(ids))[key]
        single = torch.cat([tap(row[None], torch.ones_like(row[None]))[key] for row in ids])
    torch.testing.assert_close(found, single, rtol=0, atol=1e-5)


def test_another_attention_of_the_users_choice_stays():
    model = tiny_model("bert")
    model.set_attn_implementation("eager")
    with StreamTap(model, [StreamKey("hidden", 1)]) as tap:
        assert not tap._packs
        assert model.config._attn_implementation == "eager"


def test_dropout_modules_are_given_back():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Dropout(0.5, inplace=True))
    tap_points.attach_dropout(model)
    torch.manual_seed(0)
    x = torch.ones(2, 4)
    dropped = model[1](x)
    torch.manual_seed(0)
    torch.dropout(x, 0.5, True)
    assert "forward" in model[1].__dict__
    assert "forward" not in model[2].__dict__
    assert set(dropped.unique().tolist()) <= {0.0, 2.0}
    assert torch.equal(model.eval()[1](x), x)
    tap_points.detach_dropout(model)
    assert "forward" not in model[1].__dict__


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "albert"])
def test_packed_linear_maps_give_the_same(family, dtype):
    model = tiny_model(family).to(dtype).requires_grad_(False).eval()
    ids = torch.randint(6, model.config.vocab_size, (2, 9), generator=torch.Generator().manual_seed(0))
    expected = model(input_ids=ids).last_hidden_state
    names = {name for name, module in model.named_modules() if type(module) is nn.Linear}
    count = pack_linear_maps(dict.fromkeys(blocks(model)))
    assert count == len([m for m in model.modules() if isinstance(m, PackedLinear)]) > 0
    assert {name for name, module in model.named_modules() if isinstance(module, PackedLinear)} <= names
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(model(input_ids=ids).last_hidden_state, expected, rtol=tolerance, atol=tolerance)


def test_maps_that_are_trained_or_hooked_or_of_another_format_are_not_packed():
    trained, hooked, double = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3, dtype=torch.float64)
    hooked.requires_grad_(False).register_forward_hook(lambda *_: None)
    assert pack_linear_maps([nn.Sequential(trained, hooked, double.requires_grad_(False))]) == 0


def test_a_packed_map_lets_gradients_through():
    linear = nn.Linear(6, 4).requires_grad_(False)
    packed = PackedLinear(linear)
    x = torch.randn(5, 6, requires_grad=True)
    torch.testing.assert_close(packed(x), linear(x))
    (own,), (wanted,) = (torch.autograd.grad(m(x).sum(), x) for m in (packed, linear))
    torch.testing.assert_close(own, wanted)


def test_unpacking_gives_the_model_back():
    model = tiny_model("bert").requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    pack_linear_maps(blocks(model))
    assert model.state_dict().keys() != before.keys()
    unpack_linear_maps(blocks(model))
    assert not [module for module in model.modules() if isinstance(module, PackedLinear)]
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not any(module.training for module in model.modules())


def test_a_checkpointed_model_is_not_packed():
    mask = MASKS["right"]
    ids = torch.randint(6, 50, mask.shape, generator=torch.Generator().manual_seed(0))
    gradients = []
    for checkpointed in (False, True):
        model = tiny_model("bert").train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        if checkpointed:
            model.config.use_cache = False
            model.activation_checkpointing_enable({"use_reentrant": True})
            model.enable_input_require_grads()
        with StreamTap(model, [StreamKey("hidden", 2)]) as tap:
            tap(ids, mask)[StreamKey("hidden", 2)][mask.bool()].sin().sum().backward()
        gradients.append(blocks(model)[1].get_submodule("intermediate.dense").weight.grad)
    torch.testing.assert_close(*gradients)


def test_short_samples_stay_padded(monkeypatch):
    monkeypatch.setattr("limbeck.models.packing.SHORTEST_MEAN", 4)
    assert plan_packing(mask_of("1110", "1100")) is None
    assert plan_packing(mask_of("111111", "110000")) is not None
