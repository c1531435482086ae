"""The kernels that `auto` chooses on the devices of this machine."""

from collections.abc import Iterator

import torch

from limbeck.diagnosis.devices import device_types
from limbeck.diagnosis.findings import Finding
from limbeck.kernels import choose_relation_backend, soft_label_chunks
from limbeck.kernels.cpu import attention as cpu_attention
from limbeck.kernels.relation_triton import triton_obstacle

_FLOAT32_BYTES = 4
_MEGABYTE = 1 << 20


def find_kernels() -> Iterator[Finding]:
    """Yield the choice for attention on the processor, and for relations and soft labels on each type of device."""
    yield find_attention()
    for device_type in device_types():
        yield find_relation(device_type)
        yield find_soft_labels(device_type)


def find_attention() -> Finding:
    """Name the computation of attention over packed samples in bfloat16: a compiled kernel, or PyTorch."""
    name = "attention on cpu"
    # The kernel, or the reason why there is none.
    kernel = cpu_attention.kernel()
    if not isinstance(kernel, str):
        facts = {"device": "cpu", "backend": "compiled"}
        return Finding(name, "ok", "in bfloat16 by a compiled kernel", facts=facts)
    facts = {"device": "cpu", "backend": "pytorch"}
    way_out = "install a C compiler (gcc), or name one in $CC"
    return Finding(name, "warning", f"in bfloat16 by PyTorch, at half the speed: {kernel}", way_out, facts)


def find_relation(device_type: str) -> Finding:
    """Name the backend of `relation_kl`; a GPU without Triton is slower than it could be."""
    backend = choose_relation_backend("auto", device_type, torch.float32)
    name = f"relation_kl on {device_type}"
    text = f"backend '{backend}'"
    facts = {"device": device_type, "backend": backend}
    if device_type != "cuda" or backend == "triton":
        return Finding(name, "ok", text, facts=facts)
    obstacle = triton_obstacle(device_type, torch.float32)
    if obstacle is None:
        return Finding(name, "warning", f"{text}, since Triton is interpreted", "unset TRITON_INTERPRET", facts)
    return Finding(name, "warning", f"{text}: {obstacle.partition(';')[0]}", 'pip install "limbeck[triton]"', facts)


def find_soft_labels(device_type: str) -> Finding:
    """Name the computation of soft labels: PyTorch, and the size of a chunk of logits where they are made in chunks."""
    logits = soft_label_chunks.logits_at_once(torch.device(device_type))
    megabytes = logits * _FLOAT32_BYTES // _MEGABYTE
    text = f"PyTorch; from hidden vectors in chunks of {megabytes} MiB of logits"
    facts = {"device": device_type, "backend": "pytorch", "chunk_mebibytes": megabytes}
    return Finding(f"soft labels on {device_type}", "ok", text, facts=facts)
