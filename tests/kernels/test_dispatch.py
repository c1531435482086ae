"""The choice of a backend: an explicit one is met or refused, `auto` says what it chose, once."""

import logging

import pytest
import torch

from limbeck.errors import KernelError
from limbeck.kernels import RELATION_BACKENDS, choose_relation_backend, dispatch
from limbeck.objectives import attention_score_mse, relation_kl


def test_auto_says_so_once(caplog):
    dispatch._announced.clear()
    with caplog.at_level(logging.INFO, logger="limbeck.kernels.dispatch"):
        assert [choose_relation_backend("auto", "cpu") for _ in range(3)] == ["blocked"] * 3
    assert [record.message for record in caplog.records] == ["relation_kl on cpu: backend 'auto' is 'blocked'"]


def test_explicit_choice_is_met_or_refused():
    assert [choose_relation_backend(name, "cpu") for name in RELATION_BACKENDS[1:]] == list(RELATION_BACKENDS[1:])
    with pytest.raises(KernelError, match="'triton' is not available in this build; choose one of auto"):
        choose_relation_backend("triton", "cpu")
    with pytest.raises(KernelError, match="Did you mean 'blocked'"):
        choose_relation_backend("bloked", "cpu")


def test_the_chosen_backend_computes(monkeypatch):
    x = torch.randn(1, 4, 6)
    for name in ("reference", "blocked"):
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, f"relation_kl_{name}", lambda *_: torch.tensor(7.0))
            assert relation_kl(x, x, x, x, heads=2, backend=name).total == 7


@pytest.mark.filterwarnings("ignore::UserWarning:torch.*")  # the compiler asks non-leaf tensors for .grad
def test_compiled_code_calls_it_as_it_is():
    """No compiler is needed: "eager" only splits the graph, as every other backend has to."""

    def loss(x):
        term = relation_kl(x * 2, x * 2, y, y, heads=2)
        return term.mean + attention_score_mse(x, x, y, y, heads=2).mean

    y, x = torch.randn(2, 4, 6), torch.randn(2, 4, 6, requires_grad=True)
    compiled = torch.compile(loss, backend="eager")
    (gradient,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(loss(x), x)[0])
