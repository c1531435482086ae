"""A batch that runs packed equals the padded one, with any mask, for every family that packs."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from limbeck.kernels import varlen_attention
from limbeck.models import tap_points
from limbeck.models.families import blocks, depth
from limbeck.models.family_table import families
from limbeck.models.packed_linear import PackedLinear, pack_linear_maps, unpack_linear_maps
from limbeck.models.packing import plan_for_gpu, plan_packing, send_batch
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap
from tests.support.attention import attend_samples
from tests.support.masks import NAMES, make_mask
from tests.support.models import tiny_model

MASKED = pytest.mark.parametrize("mask", [make_mask(name, 6).long() for name in NAMES if name != "none"], ids=NAMES[1:])


@pytest.fixture(autouse=True)
def short_samples_pack_too(monkeypatch):
    monkeypatch.setattr("limbeck.models.packing.SHORTEST_MEAN", 0)


def drawn_ids(*shape, size=50):
    return torch.randint(6, size, shape, generator=torch.Generator().manual_seed(0))


@MASKED
def test_packing_and_back(mask):
    packing = plan_packing(mask)
    tokens = torch.arange(1, mask.numel() + 1).view(mask.shape)
    packed = packing.pack(tokens)
    assert packed.shape == (1, int(mask.sum()))
    assert torch.equal(packed[0], tokens[mask.bool()])
    assert packing.lengths == [n for n in mask.sum(1).tolist() if n]
    assert torch.equal(packing.unpack(packed), tokens * mask)


def test_nothing_to_pack(monkeypatch):
    for mask in (torch.zeros(2, 3), torch.ones(2, 3, device="meta"), torch.ones(2, 1, 3, 3)):
        assert plan_packing(mask) is None
    monkeypatch.setattr("limbeck.models.packing.SHORTEST_MEAN", 4)
    assert plan_packing(torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0]])) is None, "short samples"
    assert plan_packing(torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]])) is not None
    assert plan_packing(torch.tensor([[1, 0]]), torch.bfloat16) is not None, "short samples in groups"


@MASKED
@pytest.mark.parametrize("family", sorted(name for name in families if families[name].packs))
def test_streams_and_gradients_are_those_of_the_padded_batch(family, mask, monkeypatch):
    model = tiny_model(family)
    ids = drawn_ids(*mask.shape, size=model.config.vocab_size).masked_fill(mask == 0, model.config.pad_token_id or 0)
    types = {"token_type_ids": ids % 2} if families[family].segments else {}
    top, valid = depth(model.config), mask.bool()
    keys = [StreamKey("embedding", 0), StreamKey("hidden", 1)]
    keys += [StreamKey(kind, top) for kind in ("hidden", "query", "key", "value", "context")]
    if valid.any(1).all():
        keys += [StreamKey("cls", top), StreamKey("pooled", top)]
    found = []
    for packs in (True, False):
        with StreamTap(model, keys) as tap:
            assert tap._packs
            if not packs:
                monkeypatch.setattr("limbeck.models.taps.plan_packing", lambda *_: None)
            streams = {key: x if x.dim() == 2 else x[valid] for key, x in tap(ids, mask, **types).items()}
        model.zero_grad()
        torch.stack([x.float().sin().sum() for x in streams.values()]).sum().backward()
        found.append((streams, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}))
    (packed, packed_gradients), (padded, gradients) = found
    torch.testing.assert_close(packed, padded, rtol=0, atol=1e-5)
    torch.testing.assert_close(packed_gradients, gradients, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", sorted(name for name in families if families[name].packs))
def test_a_head_that_needs_rows_has_packed_attention(family, monkeypatch):
    """In bfloat16 and for a gradient; here in float32, whose arithmetic is the same."""
    attend = tap_points.packed_attention
    calls = []
    monkeypatch.setattr(tap_points, "packed_attention", lambda *x, **y: calls.append(1) or attend(*x, **y))
    mask, found = torch.ones(4, 6).tril(2).long(), []
    for halves in ((torch.float32,), ()):
        for module in ("models.taps", "models.packing", "kernels.packed_attention"):
            monkeypatch.setattr(f"limbeck.{module}.HALVES", halves)
        model = tiny_model(family, head="classification")
        padding = model.config.pad_token_id or 0
        ids = drawn_ids(*mask.shape, size=model.config.vocab_size).masked_fill(mask == 0, padding)
        key = StreamKey("logits", depth(model.config))
        with StreamTap(model, [key]) as tap:
            logits = tap(ids, mask)[key]
        logits.float().sin().sum().backward()
        found.append((logits.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}))
    assert len(calls) == depth(model.config)
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


CPU = torch.device("cpu")


def test_a_batch_that_stays_on_the_cpu_is_sent_as_it_is():
    batch = {"attention_mask": torch.ones(2, 3), "groups": None}
    assert send_batch(batch, CPU) == batch
    assert not batch["attention_mask"].__dict__


@MASKED
def test_offsets_are_where_samples_begin(mask):
    packing = plan_for_gpu(mask, CPU)
    assert packing.offsets.dtype == torch.int32
    bounds = packing.offsets.tolist()
    assert [end - begin for begin, end in pairwise(bounds)] == packing.lengths
    rows = torch.arange(len(mask))[:, None].expand(mask.shape)
    samples = [set(packing.pack(rows)[0, begin:end].tolist()) for begin, end in pairwise(bounds)]
    assert [len(sample) for sample in samples] == [1] * len(samples)


@pytest.mark.parametrize("head", [None, "classification"])
@pytest.mark.parametrize("family", sorted(name for name in families if families[name].packs))
def test_packed_as_on_a_gpu_streams_and_gradients_are_those_of_the_padded_batch(family, head, monkeypatch):
    """In float64, by plain PyTorch in place of a GPU's kernel; a head that needs rows keeps its mask."""
    mask, found = torch.ones(4, 6).tril(2).long(), []
    model = tiny_model(family, head=head).double()
    padding = model.config.pad_token_id or 0
    ids = drawn_ids(*mask.shape, size=model.config.vocab_size).masked_fill(mask == 0, padding)
    top, valid = depth(model.config), mask.bool()
    keys = [StreamKey(kind, top) for kind in ("query", "key", "value", "context")]
    keys += [StreamKey("logits" if head else "hidden", top), StreamKey("embedding", 0)]
    attended, masks = [], []
    monkeypatch.setattr(varlen_attention, "_efficient", lambda *x: attended.append(1) or attend_samples(*x))
    monkeypatch.setattr("limbeck.models.taps.HALVES", (torch.float64,))
    for plan in (lambda given, *_: plan_for_gpu(given, CPU), lambda *_: None):
        monkeypatch.setattr("limbeck.models.taps.plan_packing", plan)
        with StreamTap(model, keys) as tap:
            handle = tap.base.register_forward_pre_hook(
                lambda _, __, given: masks.append(given["attention_mask"]), with_kwargs=True
            )
            streams = {key: x if x.dim() == 2 else x[valid] for key, x in tap(ids, mask).items()}
            handle.remove()
        model.zero_grad()
        torch.stack([x.sin().sum() for x in streams.values()]).sum().backward()
        found.append((streams, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}))
    assert len(attended) == top
    assert masks[0] is None
    assert masks[1] is not None
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-11)


def test_more_tokens_than_positions_fit_in_a_packed_batch():
    model, key = tiny_model("bert"), StreamKey("hidden", 1)
    ids = drawn_ids(3, model.config.max_position_embeddings)
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
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Dropout(0.5, inplace=True)), torch.ones(2, 4)
    tap_points.attach_dropout(model)
    assert ["forward" in module.__dict__ for module in model] == [False, True, False]
    assert set(model[1](x).unique().tolist()) <= {0.0, 2.0}
    assert torch.equal(model.eval()[1](x), x)
    tap_points.detach(model)
    assert "forward" not in model[1].__dict__


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "albert"])
def test_packed_linear_maps_give_the_same_and_are_unpacked_whole(family, dtype):
    model = tiny_model(family).to(dtype).requires_grad_(False)
    before, ids = {name: tensor.clone() for name, tensor in model.state_dict().items()}, drawn_ids(2, 9)
    expected = model(input_ids=ids).last_hidden_state
    names = {name for name, module in model.named_modules() if type(module) is nn.Linear}
    count = pack_linear_maps(dict.fromkeys(blocks(model)))
    packed = [name for name, module in model.named_modules() if isinstance(module, PackedLinear)]
    # A CPU without products of bfloat16 has no packed ones.
    has_packed = dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert count == len(packed) and set(packed) <= names
    assert bool(packed) == has_packed
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(model(input_ids=ids).last_hidden_state, expected, rtol=tolerance, atol=tolerance)
    assert (model.state_dict().keys() != before.keys()) == has_packed
    unpack_linear_maps(blocks(model))
    assert not [module for module in model.modules() if isinstance(module, PackedLinear) or module.training]
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_maps_that_are_trained_or_hooked_or_of_another_format_are_not_packed():
    trained, hooked, double = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3, dtype=torch.float64)
    hooked.requires_grad_(False).register_forward_hook(lambda *_: None)
    assert pack_linear_maps([nn.Sequential(trained, hooked, double.requires_grad_(False))]) == 0


def test_a_packed_map_lets_gradients_through():
    linear = nn.Linear(6, 4).requires_grad_(False)
    packed, x = PackedLinear(linear), torch.randn(5, 6, requires_grad=True)
    torch.testing.assert_close(packed(x), linear(x))
    (own,), (wanted,) = (torch.autograd.grad(m(x).sum(), x) for m in (packed, linear))
    torch.testing.assert_close(own, wanted)


def test_a_checkpointed_model_is_not_packed():
    mask, key, gradients = make_mask("right", 6), StreamKey("hidden", 2), []
    ids = drawn_ids(*mask.shape)
    for checkpointed in (False, True):
        model = tiny_model("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
        if checkpointed:
            model.config.use_cache = False
            model.activation_checkpointing_enable({"use_reentrant": True})
            model.enable_input_require_grads()
        with StreamTap(model, [key]) as tap:
            tap(ids, mask)[key][mask].sin().sum().backward()
        gradients.append(blocks(model)[1].get_submodule("intermediate.dense").weight.grad)
    torch.testing.assert_close(*gradients)
