"""Packed batches on a real GPU: the kernels, whole steps beside padded ones, and that no step waits for the device."""

import pytest
import torch
from torch.nn import functional as F

from limbeck.benchmark.step import Step
from limbeck.benchmark.step_setup import StepRequest, set_up_step
from limbeck.kernels.varlen_attention import varlen_attention
from tests.support.attention import bounds_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LENGTHS = (70, 1, 128, 33)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [24, 32, 64])
def test_error_is_at_most_twice_that_of_sample_by_sample(size, dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    exact = [torch.randn(4, sum(LENGTHS), size, generator=generator, device="cuda").to(dtype).double() for _ in "qkv"]
    offsets = bounds_of(LENGTHS).cuda()

    def plain(*given):
        parts = zip(*(x.split(LENGTHS, dim=1) for x in given), strict=True)
        joined = [F.scaled_dot_product_attention(*(x[None] for x in part), scale=0.2)[0] for part in parts]
        return torch.cat(joined, dim=1).transpose(0, 1)

    def own(*given):
        return varlen_attention(*given, offsets, max(LENGTHS), scale=0.2)

    found = []
    for run, kind in ((plain, torch.float64), (plain, dtype), (own, dtype)):
        given = [x.to(kind).requires_grad_() for x in exact]
        context = run(*given)
        weights = torch.randn(context.shape, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
        found.append([x.double() for x in (context, *torch.autograd.grad(context, given, weights.to(kind)))])
    for z, y, x in zip(*found, strict=True):
        assert (x - z).norm() <= 2 * (y - z).norm() + 1e-6 * z.norm()


def make_step(method):
    torch.manual_seed(0)
    asked = StepRequest(teacher="3x96", student="2x48", method=method, batch=8, length=64, ragged=True, vocabulary=200)
    setup = set_up_step(asked)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        setattr(setup.student, name, 0.0)
    step = Step(setup)
    step.optimizer.step = lambda: None
    return step


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("method", ["minilmv2", "hidden_states", "output_distribution", "sentence_embedding"])
def test_a_packed_step_waits_for_nothing_and_has_the_gradient_of_a_padded_one(method):
    gradients = []
    for packs in (True, False):
        step = make_step(method)
        if not packs:
            step.batches = [{name: x.clone() for name, x in batch.items()} for batch in step.batches]
        step.module.student_tap(
            **{k: v for k, v in step.batches[0].items() if k != "labels"}
        )  # Loads what is loaded once.
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error" if packs else "default")
        try:
            step.trainer.training_step(step.model, dict(step.batches[0]), None)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        gradients.append(torch.cat([p.grad.flatten() for p in step.module.parameters() if p.grad is not None]))
    packed, padded = gradients
    assert (packed - padded).norm() <= 0.05 * padded.norm()
