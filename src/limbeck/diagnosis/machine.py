"""Checks of the devices, of their precision, and of the kernels that `auto` chooses on them."""

import os
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import psutil
import torch

from limbeck.core.devices import bf16_is_fast, choose_device
from limbeck.core.machine import hardware
from limbeck.diagnosis.checks import Finding, gigabytes
from limbeck.kernels import choose_relation_backend, soft_label_chunks
from limbeck.kernels.cpu import attention as cpu_attention
from limbeck.kernels.relation_triton import triton_obstacle

_FLOAT32_BYTES = 4
_MEGABYTE = 1 << 20


def find_devices() -> Iterator[Finding]:
    """Yield the processor, the accelerators, and the precision."""
    yield find_processor()
    yield from find_accelerators()
    yield find_precision()


def find_processor() -> Finding:
    """Describe the processor, its threads and the memory; more threads than cores slow each other down."""
    machine = hardware()
    memory = psutil.virtual_memory()
    cores = machine["cores"]
    threads = machine["threads"]
    facts = {"name": machine["cpu"], "cores": cores, "threads": threads}
    facts |= {"memory_bytes": memory.total, "available_bytes": memory.available}
    text = (
        f"{machine['cpu']}: {threads} threads on {cores} cores, {gigabytes(memory.total)} of memory, "
        f"{gigabytes(memory.available)} free"
    )
    if threads > cores:
        return Finding("processor", "warning", text, f"set OMP_NUM_THREADS={cores}", facts)
    return Finding("processor", "ok", text, facts=facts)


def find_accelerators() -> Iterator[Finding]:
    """Yield each accelerator with its memory; or that there is none, and why a GPU is not used."""
    kind = accelerator_kind()
    if kind is None:
        yield _without_accelerator()
        return
    for index in range(torch.accelerator.device_count()):
        name = f"{kind}:{index}"
        if kind != "cuda":
            yield Finding(name, "ok", f"an accelerator of the kind {kind}", facts={"name": kind})
            continue
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        capability = f"{properties.major}.{properties.minor}"
        facts = {"name": properties.name, "memory_bytes": total, "free_bytes": free, "capability": capability}
        memory = f"{gigabytes(total)} of memory, {gigabytes(free)} free"
        yield Finding(name, "ok", f"{properties.name}, {memory}, compute capability {capability}", facts=facts)


def find_precision() -> Finding:
    """Say in which precision training computes unless a recipe asks for another."""
    kind, native = accelerator_kind() or "cpu", bf16_is_fast()
    dtype = "bfloat16" if native else "float32"
    facts = {"device": kind, "bf16_native": native, "fp16": kind == "cuda", "default": dtype}
    how = "computes in bfloat16 natively" if native else "only emulates bfloat16"
    half = "float16 with `fp16: true`" if kind == "cuda" else "no float16"
    return Finding("precision", "ok", f"{kind} {how}: training uses {dtype} by default; {half}", facts=facts)


def accelerator_kind() -> str | None:
    """Return the kind of accelerator that is here, such as `"cuda"`; None without one."""
    kind = choose_device("auto").type
    return None if kind == "cpu" else kind


def _without_accelerator() -> Finding:
    driver = _nvidia_driver()
    cuda = torch.version.cuda
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    facts = {"torch": torch.__version__, "torch_cuda": cuda, "driver": driver}
    if not driver:
        return Finding("accelerator", "absent", "none: limbeck computes on the processor", facts=facts)
    text = f"there is an NVIDIA driver, but torch {torch.__version__}"
    if cuda is None:
        text = f"{text} was built without CUDA"
        way_out = "install a CUDA build of torch: https://pytorch.org"
    elif hidden is not None and not hidden.strip("- 1"):
        text = f"the GPUs are hidden by CUDA_VISIBLE_DEVICES='{hidden}'"
        way_out = "unset CUDA_VISIBLE_DEVICES"
    else:
        text = f"{text} for CUDA {cuda} finds no GPU"
        way_out = "see what `nvidia-smi` says; the driver may be too old"
    return Finding("accelerator", "warning", text, way_out, facts)


def _nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia/version").is_file() or which("nvidia-smi") is not None


def find_kernels() -> Iterator[Finding]:
    """Yield the choice for attention on the processor, and for relations and soft labels on each kind of device."""
    yield find_attention()
    for kind in filter(None, ("cpu", accelerator_kind())):
        yield find_relation(kind)
        yield find_soft_labels(kind)


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


def find_relation(kind: str) -> Finding:
    """Name the backend of `relation_kl`; a GPU without Triton is slower than it could be."""
    chosen = choose_relation_backend("auto", kind, torch.float32)
    name = f"relation_kl on {kind}"
    text = f"backend '{chosen}'"
    facts = {"device": kind, "backend": chosen}
    if kind != "cuda" or chosen == "triton":
        return Finding(name, "ok", text, facts=facts)
    obstacle = triton_obstacle(kind, torch.float32)
    if obstacle is None:
        return Finding(name, "warning", f"{text}, since Triton is interpreted", "unset TRITON_INTERPRET", facts)
    return Finding(name, "warning", f"{text}: {obstacle.partition(';')[0]}", 'pip install "limbeck[triton]"', facts)


def find_soft_labels(kind: str) -> Finding:
    """Say how soft labels are computed: by PyTorch, or a chunk of logits at a time where they are more than that."""
    size = soft_label_chunks.logits_at_once(torch.device(kind)) * _FLOAT32_BYTES // _MEGABYTE
    text = f"PyTorch; from hidden vectors in chunks of {size} MiB of logits"
    facts = {"device": kind, "backend": "pytorch", "chunk_mebibytes": size}
    return Finding(f"soft labels on {kind}", "ok", text, facts=facts)
