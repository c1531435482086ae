"""`benchmark loss`: what is compared is the same loss, and what cannot be measured says so."""

from dataclasses import replace

import pytest
import torch

from limbeck.benchmark import loss, loss_errors
from limbeck.benchmark.loss import measure_losses
from limbeck.benchmark.loss_case import LossCase, benchmark_of, make_inputs, megabytes_needed, run_loss
from limbeck.benchmark.loss_errors import error_case, errors_of
from limbeck.errors import KernelError, RecipeError

SMALL = {"batch": 2, "length": 6, "heads": 2, "teacher_width": 8, "student_width": 4, "classes": 11}


@pytest.mark.parametrize("mask", ["full", "ragged"])
@pytest.mark.parametrize(
    ("objective", "relation"),
    [("relation_kl", "symmetric"), ("relation_kl", "pair"), ("attention_score_mse", "pair"), ("soft_label_kl", "pair")],
)
def test_every_backend_computes_the_same_loss(objective, relation, mask):
    case = LossCase(objective=objective, relation=relation, mask=mask, **SMALL)
    backends = benchmark_of(objective).backends
    inputs = make_inputs(case).double()
    # The plain one is held to its formula by the tests of its kernel.
    exact = run_loss(backends[benchmark_of(objective).plain], inputs).item()
    gradient = inputs.leaves[0].grad
    runs = [name for name in backends if name != "triton"]
    for name in runs:
        assert run_loss(backends[name], inputs).item() == pytest.approx(exact, rel=1e-9) and exact > 0
        torch.testing.assert_close(inputs.leaves[0].grad, gradient)
    for value, grad in errors_of(case, runs).values():
        assert 0 <= value < 1e-4 and 0 < grad < 1e-4


def test_inputs_are_what_the_case_says():
    symmetric = make_inputs(LossCase(**SMALL))
    assert symmetric.student[0] is symmetric.student[1]
    assert symmetric.valid.all()
    case = LossCase(relation="pair", mask="ragged", dtype="bfloat16", **{**SMALL, "batch": 50})
    inputs = make_inputs(case)
    assert inputs.student[0] is not inputs.student[1]
    assert inputs.student[0].dtype == torch.bfloat16
    lengths = inputs.valid.sum(1)
    assert (lengths.min(), lengths.max()) == (3, 6)
    torch.testing.assert_close(make_inputs(case).teacher, inputs.teacher)


def test_rows_have_every_column():
    cases = [LossCase(**SMALL), LossCase(**{**SMALL, "length": 9})]
    heard = []
    rows = measure_losses(
        cases, ["blocked", "reference"], seconds=0.05, memory=False, report=lambda share, *_: heard.append(share)
    )
    assert [(row["backend"], row["length"]) for row in rows] == [
        ("blocked", 6), ("reference", 6), ("blocked", 9), ("reference", 9)
    ]  # fmt: skip
    for row in rows:
        assert row["p10_ms"] <= row["median_ms"] <= row["p90_ms"]
        assert row["rounds"] >= 3
        assert row["gradient_error"] < 1e-4
        assert row["peak_extra_mb"] is None
        assert row["speedup"] == 1 or row["backend"] == "reference"
    assert heard == sorted(heard) and heard[-1] == 1


def test_peaks_are_joined_to_their_backends(monkeypatch):
    def peak_of(measure, device):
        assert measure.func is loss.measure_peak and measure.args[0] == case
        return loss.Peak(1.0, 0.5, "a note" if measure.args[1] == "gram" else "")

    monkeypatch.setattr(loss.peak_memory, "peak_of", peak_of)
    case = LossCase(objective="attention_score_mse", **SMALL)
    rows = measure_losses([case], seconds=0.01)
    assert [(row["backend"], row["peak_extra_mb"], row["note"]) for row in rows] == [
        ("materialised", 0.5, None), ("gram", 0.5, "a note")
    ]  # fmt: skip


def test_what_does_not_fit_is_not_tried(monkeypatch):
    monkeypatch.setattr(loss, "FREE_SHARE", 0.0)
    rows = measure_losses([LossCase(objective="soft_label_kl", **SMALL)], seconds=0.01, memory=False)
    assert [row["backend"] for row in rows] == ["materialised", "from_hidden"]
    assert rows[0]["median_ms"] is None and "needs about" in rows[0]["note"]
    assert rows[1]["median_ms"] > 0 and rows[1]["speedup"] is None
    assert set(rows[0]) == set(rows[1])


def test_errors_are_measured_on_less_where_float64_would_not_fit():
    assert error_case(LossCase(length=128)) == LossCase(length=128, batch=2)
    long = error_case(LossCase(length=4096))
    assert long.batch == 1
    assert 2 * megabytes_needed(long) <= loss_errors.ERROR_MEGABYTES < 8.1 * megabytes_needed(long)


@pytest.mark.parametrize(
    ("changes", "backends", "error", "words"),
    [
        ({}, ["block"], RecipeError, "Did you mean 'blocked'"),
        ({"heads": 3}, [], KernelError, "does not divide"),
    ],
)
def test_mistakes_are_found_before_anything_is_measured(changes, backends, error, words):
    good = LossCase(**SMALL)
    with pytest.raises(error, match=words):
        measure_losses([good, replace(good, **changes)], backends, seconds=60)
