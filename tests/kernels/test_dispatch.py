"""The choice of a backend: an explicit one is met or refused, `auto` is logged once."""

import logging
import subprocess
import sys

import pytest
import torch

from limbeck.errors import KernelError
from limbeck.kernels import RELATION_BACKENDS, choose_relation_backend, dispatch, relation_triton
from limbeck.objectives import attention_score_mse, relation_kl


@pytest.fixture
def with_triton(monkeypatch):
    """As on a GPU machine: Triton is there and its interpreter is off; nothing was logged yet."""
    monkeypatch.setattr(relation_triton, "INSTALLED", True)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    dispatch._announced.clear()


def test_auto_is_the_fastest_that_fits_and_says_so_once(with_triton, caplog):
    with caplog.at_level(logging.INFO, logger="limbeck.kernels.dispatch"):
        assert [choose_relation_backend("auto", "cpu") for _ in range(3)] == ["blocked"] * 3
        assert [choose_relation_backend("auto", "cuda") for _ in range(2)] == ["triton"] * 2
        assert choose_relation_backend("auto", "cuda", torch.float64) == "blocked"
        assert choose_relation_backend("auto", "mps") == "blocked"
    assert [record.message for record in caplog.records] == [
        "relation_kl on cpu: backend 'auto' is 'blocked'",
        "relation_kl on cuda: backend 'auto' is 'triton'",
        "relation_kl on cuda: backend 'auto' is 'blocked', since backend 'triton' has no float64",
        "relation_kl on mps: backend 'auto' is 'blocked'",
    ]


def test_an_explicit_choice_is_met_or_refused(with_triton, monkeypatch):
    def refuses(line, backend, *given):
        with pytest.raises(KernelError, match=line):
            choose_relation_backend(backend, *given)

    for name, given in (("reference", ("cpu",)), ("blocked", ("cpu",)), ("reference", ("cuda", torch.float64))):
        assert choose_relation_backend(name, *given) == name
    refuses("Did you mean 'blocked'", "bloked", "cpu")
    assert choose_relation_backend("triton", "cuda") == "triton"
    refuses("needs a CUDA device, but the tensors are on cpu; choose backend 'auto'", "triton", "cpu")
    refuses("'triton' has no float64; give float32, bfloat16 or float16, or choose", "triton", "cuda", torch.float64)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert choose_relation_backend("triton", "cpu") == "triton"
    assert choose_relation_backend("auto", "cuda") == "blocked"
    monkeypatch.setattr(relation_triton, "INSTALLED", False)
    refuses("needs the package triton, which is not installed; install it or choose", "triton", "cuda")


WITHOUT_TRITON_AND_FORKED = """
import os, sys
sys.modules["triton"] = None
import torch
from limbeck.errors import KernelError
from limbeck.kernels.workers import run_tasks
from limbeck.objectives import relation_kl
x = torch.randn(1, 4, 6)
assert relation_kl(x, x, x, x, heads=2).total == 0
try:
    relation_kl(x, x, x, x, heads=2, backend="triton")
except KernelError as error:
    print(error, flush=True)
torch.set_num_threads(2)
assert run_tasks([lambda: 1, lambda: 2]) == [1, 2]
child = os.fork()
if child == 0:
    os._exit(0 if run_tasks([lambda: 3, lambda: 4]) == [3, 4] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_works_where_triton_is_not_installed_and_after_a_fork():
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_TRITON_AND_FORKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "needs the package triton" in done.stdout and done.returncode == 0, done.stderr


def test_the_chosen_backend_computes(monkeypatch):
    x = torch.randn(1, 4, 6)
    for name in RELATION_BACKENDS[1:]:
        with monkeypatch.context() as patch:
            patch.setattr(dispatch.Operation, "choose", lambda operation, backend, *_: backend)
            patch.setitem(dispatch.RELATION_KL.backends, name, lambda *_, **__: torch.tensor(7.0))
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


def test_the_choice_is_a_constant_of_a_compiled_graph(with_triton):
    def scale(x):
        return x * len(choose_relation_backend("auto", "cuda"))

    x = torch.ones(2)
    assert torch.equal(torch.compile(scale, backend="eager", fullgraph=True)(x), scale(x))


def test_the_compiler_is_not_imported_to_check_a_recipe():
    code = "import sys, limbeck.recipe.plan; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"
