"""Quantised linear maps by float64, and the machines that have fast ones."""

import pytest
import torch

from limbeck.kernels.int8_linear import LARGEST

#: Not by `int8_problem`: where a CPU has VNNI, products that are missing or wrong fail the tests.
HAS_VNNI = torch.cpu._is_vnni_supported()
on_vnni = pytest.mark.skipif(not HAS_VNNI, reason="this CPU has no AVX512-VNNI")


def naive_codes(rows):
    """round(127 x / max|row|), and the scales."""
    largest = rows.double().abs().amax(-1, keepdim=True)
    return (LARGEST * rows.double() / largest.where(largest > 0, 1)).round(), largest / LARGEST


def naive_linear(x, weight, bias=None):
    """A linear map by the codes of both."""
    (rows, scales), (columns, weights) = naive_codes(x.flatten(0, -2)), naive_codes(weight)
    found = scales * (rows @ columns.T) * weights.T
    return (found if bias is None else found + bias.double()).view(*x.shape[:-1], -1)
