"""The device: its name, memory and rates, as its data sheet has them and as a product and a copy reach them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from benchmarks.gpu.parts import Request, Row

from limbeck.benchmark.peak_rates import measure_bandwidth, measure_ceiling
from limbeck.benchmark.rows import describe_machine

#: Dense bfloat16 operations a second of data sheets, in 10¹², by a part of the device's name; the first that fits.
DATA_SHEETS = {
    "H100 PCIe": 756, "H100 NVL": 835, "H100": 989, "H200": 989, "B200": 2250, "A100": 312, "A10G": 70, "L40S": 362,
    "L4": 121, "RTX 4090": 165,
}  # fmt: skip


def data_sheet_peak() -> float | None:
    """Operations a second of this device by its data sheet; None for one that is not in the table."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return next((rate * 1e12 for part, rate in DATA_SHEETS.items() if part in name), None)


def measured_peak(request: Request) -> float:
    """Operations a second of a large product in bfloat16."""
    return measure_ceiling(torch.device(request.device), torch.bfloat16, size=256 if request.dry else None)


def measure(request: Request) -> Iterator[Row]:
    """Describe and measure it.

    Raises:
        RuntimeError: without a GPU.
    """
    if not request.dry and not torch.cuda.is_available():
        raise RuntimeError("no CUDA device is here; make gpu DRY=1 runs toy sizes on the CPU")
    device, sheet = torch.device(request.device), data_sheet_peak()
    yield {
        "machine": describe_machine(request.device),
        "cuda": torch.version.cuda,
        "memory_gb": None if request.dry else torch.cuda.get_device_properties(device).total_memory / 1e9,
        "data_sheet_tflops": sheet and sheet / 1e12,
        "measured_tflops": measured_peak(request) / 1e12,
        "copy_gbytes": measure_bandwidth(device, numbers=1 << (16 if request.dry else 28)) / 1e9,
    }
