"""Checks of the processor, the accelerators, and the precision of training on them."""

import os
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import psutil
import torch

from limbeck.core.devices import bf16_is_fast, choose_device
from limbeck.core.machine import hardware
from limbeck.diagnosis.findings import Finding, gigabytes


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
    facts = {
        "name": machine["cpu"],
        "cores": cores,
        "threads": threads,
        "memory_bytes": memory.total,
        "available_bytes": memory.available,
    }
    text = (
        f"{machine['cpu']}: {threads} threads on {cores} cores, {gigabytes(memory.total)} of memory, "
        f"{gigabytes(memory.available)} free"
    )
    if threads > cores:
        return Finding("processor", "warning", text, f"set OMP_NUM_THREADS={cores}", facts)
    return Finding("processor", "ok", text, facts=facts)


def find_accelerators() -> Iterator[Finding]:
    """Yield each accelerator with its memory; or that there is none, and why a GPU is not used."""
    device_type = accelerator_type()
    if device_type is None:
        yield _without_accelerator()
        return
    for index in range(torch.accelerator.device_count()):
        name = f"{device_type}:{index}"
        if device_type != "cuda":
            text = f"an accelerator of the kind {device_type}"
            yield Finding(name, "ok", text, facts={"name": device_type})
            continue
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        capability = f"{properties.major}.{properties.minor}"
        facts = {"name": properties.name, "memory_bytes": total, "free_bytes": free, "capability": capability}
        memory = f"{gigabytes(total)} of memory, {gigabytes(free)} free"
        yield Finding(name, "ok", f"{properties.name}, {memory}, compute capability {capability}", facts=facts)


def find_precision() -> Finding:
    """Name the precision in which training computes unless a recipe asks for another."""
    device_type = accelerator_type() or "cpu"
    if bf16_is_fast():
        dtype = "bfloat16"
        support = "computes in bfloat16 natively"
    else:
        dtype = "float32"
        support = "only emulates bfloat16"
    has_float16 = device_type == "cuda"
    half = "float16 with `fp16: true`" if has_float16 else "no float16"
    facts = {"device": device_type, "bf16_native": bf16_is_fast(), "fp16": has_float16, "default": dtype}
    text = f"{device_type} {support}: training uses {dtype} by default; {half}"
    return Finding("precision", "ok", text, facts=facts)


def accelerator_type() -> str | None:
    """Return the type of the accelerator, such as `"cuda"`; None without one."""
    device_type = choose_device("auto").type
    return None if device_type == "cpu" else device_type


def device_types() -> list[str]:
    """Return the types of the devices of this machine, the processor first."""
    accelerator = accelerator_type()
    return ["cpu"] if accelerator is None else ["cpu", accelerator]


def _without_accelerator() -> Finding:
    """Explain why there is no accelerator: there is no GPU, or torch cannot use it."""
    has_driver = _has_nvidia_driver()
    cuda = torch.version.cuda
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    facts = {"torch": torch.__version__, "torch_cuda": cuda, "driver": has_driver}
    if not has_driver:
        return Finding("accelerator", "absent", "none: limbeck computes on the processor", facts=facts)
    text = f"there is an NVIDIA driver, but torch {torch.__version__}"
    if cuda is None:
        text = f"{text} was built without CUDA"
        way_out = "install a CUDA build of torch: https://pytorch.org"
    # An empty list and -1 both hide all GPUs.
    elif hidden is not None and not hidden.strip("- 1"):
        text = f"the GPUs are hidden by CUDA_VISIBLE_DEVICES='{hidden}'"
        way_out = "unset CUDA_VISIBLE_DEVICES"
    else:
        text = f"{text} for CUDA {cuda} finds no GPU"
        way_out = "see what `nvidia-smi` says; the driver may be too old"
    return Finding("accelerator", "warning", text, way_out, facts)


def _has_nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia/version").is_file() or which("nvidia-smi") is not None
