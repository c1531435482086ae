"""The kernels that the setting `auto` chooses on the devices of this machine, and faster ones that are missing.

A *kernel* is a compiled function, in C for processors and in Triton for GPUs. Where there is none, PyTorch computes the
same, more slowly.
"""

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
    kernel_or_reason = cpu_attention.kernel_or_reason()
    # A text is the reason why there is no kernel.
    if isinstance(kernel_or_reason, str):
        facts = {"device": "cpu", "backend": "pytorch"}
        text = f"in bfloat16 by PyTorch, at half the speed: {kernel_or_reason}"
        return Finding(name, "warning", text, way_out="install a C compiler (gcc), or name one in $CC", facts=facts)
    facts = {"device": "cpu", "backend": "compiled"}
    return Finding(name, "ok", "in bfloat16 by a compiled kernel", facts=facts)


def find_relation(device_type: str) -> Finding:
    """Name the backend of the loss `relation_kl`, and warn if a GPU computes it without Triton, which is slower."""
    backend = choose_relation_backend("auto", device_type, torch.float32)
    name = f"relation_kl on {device_type}"
    text = f"backend '{backend}'"
    facts = {"device": device_type, "backend": backend}
    if device_type != "cuda" or backend == "triton":
        return Finding(name, "ok", text, facts=facts)
    obstacle = triton_obstacle(device_type, torch.float32)
    # Triton can run here, yet is not chosen: its interpreter is switched on, which is for tests and slow.
    if obstacle is None:
        return Finding(
            name, "warning", f"{text}, since Triton is interpreted", way_out="unset TRITON_INTERPRET", facts=facts
        )
    # An obstacle has the form "reason; way out". On a GPU and in float32, Triton can only be missing.
    reason, _, _ = obstacle.partition(";")
    return Finding(name, "warning", f"{text}: {reason}", way_out='pip install "limbeck[triton]"', facts=facts)


def find_soft_labels(device_type: str) -> Finding:
    """Name the computation of the loss on soft labels, the teacher's probabilities: it is always PyTorch.

    Logits that would take too much memory are made in chunks, whose size depends on the device.
    """
    logits = soft_label_chunks.logits_at_once(torch.device(device_type))
    megabytes = logits * _FLOAT32_BYTES // _MEGABYTE
    text = f"PyTorch; from hidden vectors in chunks of {megabytes} MiB of logits"
    facts = {"device": device_type, "backend": "pytorch", "chunk_mebibytes": megabytes}
    return Finding(f"soft labels on {device_type}", "ok", text, facts=facts)
