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
    """Yield the findings on the processor, the accelerators, and the precision of training."""
    yield find_processor()
    yield from find_accelerators()
    yield find_precision()


def find_processor() -> Finding:
    """Describe the processor and the memory, and warn of more threads than cores, which slow each other down."""
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
        return Finding("processor", "warning", text, way_out=f"set OMP_NUM_THREADS={cores}", facts=facts)
    return Finding("processor", "ok", text, facts=facts)


def find_accelerators() -> Iterator[Finding]:
    """Yield a finding for each accelerator, or one that says that there is none, or why a GPU cannot be used."""
    device_type = accelerator_type()
    if device_type is None:
        yield _without_accelerator()
        return
    for index in range(torch.accelerator.device_count()):
        name = f"{device_type}:{index}"
        # Only CUDA tells the name and the memory of a device.
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
    """Name the number format in which training computes unless a recipe sets another."""
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
    """Explain why torch has no accelerator: the machine has no GPU, or torch cannot use it."""
    has_driver = _has_nvidia_driver()
    # The version of CUDA that torch was built for; None for a build for processors.
    cuda = torch.version.cuda
    facts = {"torch": torch.__version__, "torch_cuda": cuda, "driver": has_driver}
    if not has_driver:
        return Finding("accelerator", "absent", "none: limbeck computes on the processor", facts=facts)

    # A driver means that there is a GPU: something keeps torch from using it.
    visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    text = f"there is an NVIDIA driver, but torch {torch.__version__}"
    if cuda is None:
        text += " was built without CUDA"
        way_out = "install a CUDA build of torch: https://pytorch.org"
    elif visible_devices is not None and _hides_all_gpus(visible_devices):
        text = f"the GPUs are hidden by CUDA_VISIBLE_DEVICES='{visible_devices}'"
        way_out = "unset CUDA_VISIBLE_DEVICES"
    else:
        text += f" for CUDA {cuda} finds no GPU"
        way_out = "see what `nvidia-smi` says; the driver may be too old"
    return Finding("accelerator", "warning", text, way_out=way_out, facts=facts)


def _hides_all_gpus(visible_devices: str) -> bool:
    """Return whether a value of CUDA_VISIBLE_DEVICES hides all GPUs: an empty one, or the number -1."""
    # Nothing is left of these values without their characters.
    return not visible_devices.strip("- 1")


def _has_nvidia_driver() -> bool:
    """Return whether an NVIDIA driver is installed, by its file on Linux or its program."""
    return Path("/proc/driver/nvidia/version").is_file() or which("nvidia-smi") is not None
