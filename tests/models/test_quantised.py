"""Quantised teachers of every family: all linear maps of their blocks, nothing else, and plain again afterwards."""

import pytest
import torch
from torch import nn

import tests.support.alembic  # noqa: F401 - registers the family
from limbeck.corpus.batch import read_batch
from limbeck.errors import ModelError
from limbeck.kernels.int8_linear import int8_problem
from limbeck.methods.term import Term
from limbeck.models import quantising
from limbeck.models.families import blocks, depth
from limbeck.models.packed_linear import PackedLinear
from limbeck.models.streams import ATTENTION_KINDS, StreamKey
from limbeck.models.taps import StreamTap
from limbeck.training.teaching.live import LiveTeaching
from tests.support.int8 import naive_linear, on_vnni
from tests.support.models import ALL_FAMILIES, UNLISTED, tiny_config, tiny_model

pytestmark = on_vnni
WITH_LINEAR_MAPS = [family for family in (*ALL_FAMILIES, *UNLISTED) if family != "gpt2"]


def linear_maps(model):
    return [part for block in dict.fromkeys(blocks(model)) for part in block.modules() if type(part) is nn.Linear]


def keys_of(model, kinds=("hidden", *ATTENTION_KINDS)):
    """Streams of all layers, as far as the family has them tapped."""
    keys = [StreamKey(kind, layer) for kind in kinds for layer in range(1, depth(model.config) + 1)]
    try:
        with StreamTap(model, keys):
            return keys
    except ModelError:
        return keys_of(model, ("hidden",))


def batch_of(model):
    ids = torch.randint(6, model.config.vocab_size, (3, 11), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    return read_batch({"input_ids": ids, "attention_mask": mask})


def reader(model, keys, **options):
    return LiveTeaching(model, [Term("read", "hidden_mse", (), tuple(keys))], **options)


def compute_naively(linear, x):
    return naive_linear(x, linear.weight, linear.bias).to(x.dtype)


@pytest.mark.parametrize("family", WITH_LINEAR_MAPS)
def test_streams_are_those_of_maps_that_are_quantised_by_float64(family):
    model = tiny_model(family)
    keys, batch = keys_of(model), batch_of(model)
    plain = reader(model, keys).read(batch)
    teacher = reader(tiny_model(family), keys, int8=True)
    teacher.move("cpu")
    called = []
    for linear in linear_maps(teacher.teacher):
        linear.register_forward_hook(lambda module, *_: called.append(module))
    found = teacher.read(batch)
    assert set(called) == set(linear_maps(teacher.teacher))
    for linear in linear_maps(model):
        linear.forward = lambda x, own=linear: compute_naively(own, x)
    wanted = reader(model, keys).read(batch)
    valid = batch.student["attention_mask"].bool()
    for key in keys:
        ours, theirs, exact = (streams[key][valid].double() for streams in (found, wanted, plain))
        # A rounding of float32 may tip a code over, and what follows from that.
        assert (ours - theirs).norm() < 0.4 * (theirs - exact).norm(), key
        assert (ours - exact).norm() < 0.1 * exact.norm(), key


@pytest.mark.parametrize("family", WITH_LINEAR_MAPS)
def test_a_closed_teacher_is_plain_again(family):
    model = tiny_model(family)
    before, ids = {name: tensor.clone() for name, tensor in model.state_dict().items()}, batch_of(model)[0]
    expected = model(input_ids=ids).last_hidden_state
    teacher = reader(model, [StreamKey("hidden", depth(model.config))], int8=True)
    teacher.move("cpu")
    assert model.state_dict().keys() == before.keys()
    teacher.move("cpu")
    assert not torch.equal(model(input_ids=ids).last_hidden_state, expected)
    teacher.close()
    assert torch.equal(model(input_ids=ids).last_hidden_state, expected)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_only_linear_maps_of_blocks_are_quantised():
    model = tiny_model("bert", head="masked_lm").bfloat16()
    teacher = reader(model, [StreamKey("logits", depth(model.config))], int8=True)
    teacher.move("cpu", pack=False)
    own = {name for name, part in model.named_modules() if "forward" in part.__dict__ and isinstance(part, nn.Linear)}
    assert own == {name for name, part in model.named_modules() if ".layer." in name and type(part) is nn.Linear}
    assert not [part for part in model.modules() if isinstance(part, PackedLinear)]
    assert teacher.read(batch_of(model))[StreamKey("logits", depth(model.config))].dtype == torch.bfloat16


@pytest.mark.parametrize("family", ["alembic", "deberta-v2"])
def test_taps_verify_themselves_before(family, monkeypatch):
    order = []
    verify, quantise = StreamTap._verify, quantising.quantise_linear_maps
    monkeypatch.setattr(StreamTap, "_verify", lambda *given: (order.append("verified"), verify(*given)))
    monkeypatch.setattr(quantising, "quantise_linear_maps", lambda parts: (order.append("quantised"), quantise(parts)))
    reader(tiny_model(family), [StreamKey("hidden", 2)], int8=True).move("cpu")
    assert order == ["verified", "quantised"]


def test_maps_of_another_kind_stay():
    class Other(nn.Linear):
        pass

    parts = nn.Sequential(Other(4, 4), nn.Linear(4, 4))
    assert quantising.quantise_linear_maps([parts]) == 1
    assert "forward" not in parts[0].__dict__


def test_a_model_without_linear_maps_is_refused(refused):
    with refused("The teacher 'old' cannot run in int8, since its blocks \\('gpt2'\\) are not made of torch.nn.Linear"):
        quantising.check_quantisable("old", tiny_config("gpt2"))
    for family in WITH_LINEAR_MAPS:
        quantising.check_quantisable(family, tiny_config(family))


def test_a_machine_without_products_is_refused(monkeypatch, refused):
    assert int8_problem() is None
    monkeypatch.setattr(quantising, "int8_problem", lambda: "this CPU has no int8 products (AVX512-VNNI)")
    with refused("in int8, since this CPU has no int8 products .*; leave out teacher.precision"):
        quantising.check_quantisable("any", tiny_config("bert"))
