"""Kernels in C are compiled once and checked; without a compiler, or with one that fails, PyTorch computes."""

import pytest
import torch

from limbeck.kernels import relation_kl_blocked, relation_kl_reference
from limbeck.kernels.cpu import attention, relation
from limbeck.kernels.packed_attention import packed_attention
from tests.kernels.relation_cases import doubles, draw, run

MODULES = (attention, relation)
each_kernel = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.SOURCE.stem)


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Ask for a kernel on a machine with an empty cache, on which `$CC` is a script of the text given."""
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))

    def asked(module, script):
        script_file = tmp_path / "compiler"
        script_file.write_text(f"#!/bin/sh\n{script}\n")
        script_file.chmod(0o700)
        monkeypatch.setenv("CC", str(script_file))
        module.kernel_or_reason.cache_clear()
        return module.kernel_or_reason()

    yield asked
    for module in MODULES:
        module.kernel_or_reason.cache_clear()


@pytest.mark.usefixtures("compiler")
@each_kernel
def test_what_a_compiler_makes_serves(module):
    assert not isinstance(module.kernel_or_reason(), str)


@pytest.mark.usefixtures("compiler")
@each_kernel
def test_it_is_checked_in_a_forward_pass_without_gradients(module):
    module.kernel_or_reason.cache_clear()
    with torch.inference_mode():
        assert not isinstance(module.kernel_or_reason(), str)


@each_kernel
@pytest.mark.parametrize("script", ["exit 1", "true"], ids=["fails", "makes nothing"])
def test_a_compiler_that_fails_is_told(ask, module, script):
    assert "did not compile it" in ask(module, script)


@each_kernel
def test_a_library_is_compiled_once(ask, module, compiler, tmp_path):
    counted = f'echo >> {tmp_path}/calls; exec {compiler} "$@"'
    for _ in range(2):
        assert not isinstance(ask(module, counted), str)
    assert (tmp_path / "calls").read_text() == "\n"


@each_kernel
def test_a_library_that_computes_something_else_is_not_used(ask, module, compiler, tmp_path):
    wrong = tmp_path / "wrong.c"
    names = (
        "attend",
        "differentiate",
        "drop_float",
        "drop_half",
        "join",
        "multiplies_pairs",
        "multiplies_tiles",
        "relate",
    )
    wrong.write_text("".join(f"int {name}() {{ return 1; }}" for name in names))
    found = ask(module, f'for last; do :; done; exec {compiler} -fPIC -shared {wrong} -o "$last"')
    assert "computes something else" in found


@each_kernel
def test_no_compiler_at_all(ask, module, monkeypatch):
    ask(module, "exit 1")
    monkeypatch.setenv("CC", "no-such-compiler")
    module.kernel_or_reason.cache_clear()
    assert module.kernel_or_reason() == "no C compiler 'no-such-compiler'"


def test_pytorch_attends_without_a_compiler(ask):
    ask(attention, "exit 1")
    given = [torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(i)).bfloat16() for i in range(3)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*(x[None].double() for x in given), scale=0.4)[0]
    found = packed_attention(*given, [9], scale=0.4)
    torch.testing.assert_close(found.transpose(0, 1).double(), wanted, rtol=2e-2, atol=2e-2)


def test_pytorch_compares_relations_without_a_compiler(ask):
    ask(relation, "exit 1")
    tensors = draw(21, dtype=torch.bfloat16)
    found, wanted = run(relation_kl_blocked, tensors), run(relation_kl_reference, doubles(tensors))
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=1e-5, atol=0)
    torch.testing.assert_close(found[1].double(), wanted[1], rtol=1e-2, atol=1e-2)
