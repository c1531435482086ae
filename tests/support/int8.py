"""Quantised linear maps by float64, and the machines that have fast ones."""

import pytest

from limbeck.kernels.int8_linear import LARGEST, int8_problem

on_vnni = pytest.mark.skipif(int8_problem() is not None, reason=f"{int8_problem()}")


def naive_codes(rows):
    """round(127 x / max|row|), and the scales."""
    largest = rows.double().abs().amax(-1, keepdim=True)
    return (LARGEST * rows.double() / largest.where(largest > 0, 1)).round(), largest / LARGEST


def naive_linear(x, weight, bias=None):
    """A linear map by the codes of both."""
    (rows, scales), (columns, weights) = naive_codes(x.flatten(0, -2)), naive_codes(weight)
    found = scales * (rows @ columns.T) * weights.T
    return (found if bias is None else found + bias.double()).view(*x.shape[:-1], -1)
