"""A step on a GPU never waits for it: run on a device that holds no numbers, where asking for one is an error."""

from contextlib import nullcontext

import pytest
import torch

from limbeck.corpus.batches.collating import PadCollator
from limbeck.kernels import varlen_attention
from limbeck.models import packing
from limbeck.recipe.stages import GuardSpec
from limbeck.training.loss_guard import LossGuard
from limbeck.training.units import sum_units
from tests.support.training import make_module, make_rows

META = torch.device("meta")


@pytest.fixture(autouse=True)
def no_device_attends_as_a_gpu_does(monkeypatch):
    monkeypatch.setattr(packing, "GPUS", ("meta",))
    monkeypatch.setattr(varlen_attention, "_is_ampere_or_later", lambda device: True)
    # It has no autocast.
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)


def take_step(method, batch, folder):
    """What the trainer does with a batch, but for the optimizer, which is PyTorch's."""
    module = make_module(method, hidden=32, heads=4).to(META, torch.bfloat16)
    module.teaching.teacher.to(META, torch.bfloat16)
    module.read_rows.move(META)
    guard = LossGuard(module.terms, GuardSpec(), META, folder, print)
    module.read_rows.note(batch)
    units = sum_units([batch])
    shares = {name: total / count.clamp(min=1) for name, (total, count) in module(**batch).items()}
    guard.note({name: share.detach() for name, share in shares.items()})
    (torch.stack(list(shares.values())).sum() * units[0].float()).backward()
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    guard._judge(guard._step_terms, norm.double())


@pytest.mark.parametrize(
    "method", ["minilmv2", "hidden_states", "tinybert", "sentence_embedding", "output_distribution"]
)
def test_a_step_asks_for_no_number(method, tmp_path):
    take_step(method, packing.send_batch(PadCollator(0)(make_rows(4)), META), tmp_path)


def test_one_that_does_would_fail(tmp_path):
    batch = {name: x.to(META) for name, x in PadCollator(0)(make_rows(4)).items()}
    with pytest.raises(RuntimeError, match="meta"):
        take_step("minilmv2", batch, tmp_path)
