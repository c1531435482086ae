"""Error against float64 at most twice that of plain PyTorch in the same dtype, value and gradient."""

import pytest
import torch

from limbeck.kernels import relation_kl_blocked, relation_kl_reference
from tests.kernels.relation_cases import draw, value_and_gradient
from tests.support.masks import make_mask

# Where plain PyTorch is right by luck, one rounding of the result is not an error.
ROUNDING = torch.finfo(torch.float32).eps


def errors(backend, tensors, mask, exact, exact_gradients):
    value, gradients = value_and_gradient(backend, tensors, mask)
    gradient_error = torch.stack([(g - e).norm() for g, e in zip(gradients, exact_gradients, strict=True)]).norm()
    return (value - exact).abs(), gradient_error


@pytest.mark.parametrize("length", [7, 10, 128, 401])
@pytest.mark.parametrize("near", [None, 0.1], ids=["far", "near"])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "pair"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_error_ratio(dtype, symmetric, near, length):
    found = {relation_kl_blocked: [], relation_kl_reference: []}
    sizes = []
    for seed in range(3 if length > 100 else 8):
        tensors = draw(seed, 2, length, symmetric=symmetric, near=near, scale=1.0, dtype=dtype)
        mask = make_mask("gaps", length)[:2]
        doubles = {id(x): x.double() for x in tensors}
        exact, exact_gradients = value_and_gradient(relation_kl_reference, [doubles[id(x)] for x in tensors], mask)
        sizes.append((exact, torch.stack([g.norm() for g in exact_gradients]).norm()))
        for backend, seen in found.items():
            seen.append(errors(backend, tensors, mask, exact, exact_gradients))
    blocked, plain = (torch.tensor(seen, dtype=torch.float64).square().mean(0).sqrt() for seen in found.values())
    allowed = 2 * plain + ROUNDING * torch.tensor(sizes, dtype=torch.float64).mean(0)
    assert (blocked <= allowed).all(), f"{blocked.tolist()} against {plain.tolist()}"
