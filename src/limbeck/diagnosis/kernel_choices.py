"""Which kernels `auto` chooses on the devices of this machine, as training would."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from limbeck.diagnosis.devices import accelerator_kind
from limbeck.diagnosis.finding import Finding
from limbeck.kernels import choose_relation_backend
from limbeck.kernels.relation_triton import triton_obstacle
from limbeck.kernels.soft_label_chunks import CPU_CHUNK, DEVICE_CHUNK

_FLOAT32_BYTES = 4
_MEGABYTE = 1 << 20


def find() -> Iterator[Finding]:
    """Yield the choice for relations and soft labels on each kind of device."""
    for kind in ("cpu", accelerator_kind()):
        if kind is not None:
            yield find_relation(kind)
            yield find_soft_labels(kind)


def find_relation(kind: str) -> Finding:
    """Ask what computes `relation_kl`; a GPU without Triton is slower than it could be."""
    chosen = choose_relation_backend("auto", kind, torch.float32)
    name, text, facts = f"relation_kl on {kind}", f"backend '{chosen}'", {"device": kind, "backend": chosen}
    if kind != "cuda" or chosen == "triton":
        return Finding(name, "ok", text, facts=facts)
    obstacle = triton_obstacle(kind, torch.float32)
    if obstacle is None:
        return Finding(name, "warning", f"{text}, since Triton is interpreted", "unset TRITON_INTERPRET", facts)
    return Finding(name, "warning", f"{text}: {obstacle.partition(';')[0]}", 'pip install "limbeck[triton]"', facts)


def find_soft_labels(kind: str) -> Finding:
    """Say how soft labels are computed: by PyTorch, or a chunk of logits at a time where there are hidden vectors."""
    size = (CPU_CHUNK if kind == "cpu" else DEVICE_CHUNK) * _FLOAT32_BYTES // _MEGABYTE
    text = f"PyTorch; from hidden vectors in chunks of {size} MiB of logits"
    facts = {"device": kind, "backend": "pytorch", "chunk_mebibytes": size}
    return Finding(f"soft labels on {kind}", "ok", text, facts=facts)
