"""The Triton kernels compile for real GPUs, which needs none: the interpreter would run what a compiler refuses."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", minversion="3.3")

# Every launch is compiled from its arguments, for the target of the moment, instead of being run.
PROGRAM = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from limbeck.kernels import relation_triton, relation_triton_kernels

TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.uint8: "*u8"}
TYPES |= {int: "i32", float: "fp32"}
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")

class Compiled:
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return self.launch

    def launch(self, **named):
        options = {name: named.pop(name) for name in OPTIONS}
        assert {*named} == {*self.kernel.arg_names}
        # Arguments in capitals are constants that a kernel is compiled for.
        given = {name: named.pop(name) for name in self.kernel.arg_names if name.islower()}
        signature = {n: TYPES[x.dtype if isinstance(x, torch.Tensor) else type(x)] for n, x in given.items()}
        signature = {n: signature.get(n, "constexpr") for n in self.kernel.arg_names}
        target = GPUTarget("cuda", TARGET[0], 32)
        made = triton.compile(ASTSource(self.kernel, signature, named), target, options)
        assert made.metadata.shared <= 64 * 1024, made.metadata.shared
        print(self.kernel.__name__)

for name in ("relation_forward_kernel", "relation_gradient_kernel"):
    setattr(relation_triton_kernels, name, Compiled(getattr(relation_triton_kernels, name)))
precision = relation_triton.gradient_precision
relation_triton.gradient_precision = lambda x: "tf32x3" if x.dtype == torch.float16 else precision(x)
for TARGET in ((90, torch.bfloat16, True), (80, torch.float32, False), (80, torch.float16, False)):
    _, dtype, symmetric = TARGET
    a, b = (torch.zeros(2, 128, 48, dtype=dtype) for _ in range(2))
    c, d = (torch.zeros(2, 128, 96, dtype=dtype) for _ in range(2))
    valid = torch.ones(2, 128, dtype=torch.bool) if dtype != torch.float32 else None
    vectors = (a, None, c, None) if symmetric else (a, b, c, d)
    terms = torch.ops.limbeck.relation_kl_forward(*vectors, valid, 6, not symmetric)[1:]
    for sides in ((True, True),) if symmetric else ((True, False), (False, True)):
        torch.ops.limbeck.relation_kl_gradient(torch.ones(()), *vectors, valid, *terms, *sides, not symmetric)
"""


def test_kernels_compile(tmp_path):
    """For an H100 in bfloat16 with one tensor as both vectors, and for an A100 with pairs, masked in float16."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, env=environment)
    forward, gradient = "relation_forward_kernel", "relation_gradient_kernel"
    assert done.stdout.split() == [forward, gradient] + 2 * [forward, gradient, gradient], done.stderr
