"""Devices, threads, precision, and the kernels that are chosen for them."""

from types import SimpleNamespace

import pytest
import torch

from limbeck.core.machine import bf16_is_fast
from limbeck.diagnosis import machine
from limbeck.diagnosis.machine import find_accelerators, find_precision, find_processor, find_relation, find_soft_labels
from limbeck.kernels import dispatch


@pytest.fixture
def without_accelerator(monkeypatch):
    monkeypatch.setattr(machine, "accelerator_kind", lambda: None)
    monkeypatch.setattr(machine, "_nvidia_driver", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def gpus(monkeypatch):
    """Pretend to have two GPUs."""
    properties = SimpleNamespace(name="Pretended GPU", major=9, minor=0)
    monkeypatch.setattr(machine, "accelerator_kind", lambda: "cuda")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (30 * 10**9, 80 * 10**9))


def test_more_threads_than_cores_are_a_warning(monkeypatch):
    found = find_processor()
    assert found.status == "ok"
    assert found.facts["threads"] == torch.get_num_threads() == 1
    assert 0 < found.facts["available_bytes"] <= found.facts["memory_bytes"]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 10_000)
    found = find_processor()
    assert found.status == "warning"
    assert found.way_out == f"set OMP_NUM_THREADS={found.facts['cores']}"


def test_every_gpu_is_listed_with_its_memory(gpus):
    first, second = find_accelerators()
    assert (first.name, second.name) == ("cuda:0", "cuda:1")
    assert "Pretended GPU, 80.0 GB of memory, 30.0 GB free, compute capability 9.0" in second.text
    assert second.facts["free_bytes"] == 30 * 10**9


def test_no_accelerator_is_no_fault(without_accelerator):
    (found,) = find_accelerators()
    assert (found.status, found.way_out) == ("absent", None)


@pytest.mark.parametrize(
    ("built_for", "hidden", "said", "way_out"),
    [
        (None, None, "built without CUDA", "pytorch.org"),
        ("12.8", "-1", "hidden by CUDA_VISIBLE_DEVICES='-1'", "unset CUDA_VISIBLE_DEVICES"),
        ("12.8", "", "hidden by", "unset"),
        ("12.8", "0", "finds no GPU", "nvidia-smi"),
    ],
)
def test_a_gpu_that_is_not_used_is_a_warning_with_its_reason(
    without_accelerator, monkeypatch, built_for, hidden, said, way_out
):
    monkeypatch.setattr(machine, "_nvidia_driver", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    (found,) = find_accelerators()
    assert found.status == "warning"
    assert said in found.text and way_out in found.way_out


@pytest.mark.parametrize(("native", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_the_precision_and_the_kernel_are_those_of_training(monkeypatch, native, dtype):
    assert machine.bf16_is_fast is bf16_is_fast
    monkeypatch.setattr(machine, "bf16_is_fast", lambda: native)
    found = find_precision()
    assert found.facts["default"] == dtype and f"training uses {dtype} by default" in found.text
    kernel = find_relation("cpu")
    assert kernel.facts["backend"] == dispatch.choose_relation_backend("auto", "cpu") == "blocked"
    assert kernel.status == "ok"


@pytest.mark.parametrize(
    ("interpreted", "obstacle", "status", "way_out"),
    [
        (False, None, "ok", None),
        (True, None, "warning", "unset TRITON_INTERPRET"),
        (False, "backend 'triton' needs the package triton; x", "warning", 'pip install "limbeck[triton]"'),
    ],
)
def test_a_gpu_without_triton_is_a_warning(monkeypatch, interpreted, obstacle, status, way_out):
    monkeypatch.setattr(dispatch, "interpreting", lambda: interpreted)
    for module in (dispatch, machine):
        monkeypatch.setattr(module, "triton_obstacle", lambda kind, dtype: obstacle)
    found = find_relation("cuda")
    assert (found.status, found.way_out) == (status, way_out)
    assert found.facts["backend"] == ("triton" if status == "ok" else "blocked")


def test_kernels_are_listed_for_every_device(monkeypatch):
    monkeypatch.setattr(machine, "accelerator_kind", lambda: "mps")
    names = [finding.name for finding in machine.find_kernels()]
    assert names == ["relation_kl on cpu", "soft labels on cpu", "relation_kl on mps", "soft labels on mps"]
    assert "chunks of 64 MiB" in find_soft_labels("cpu").text
    assert find_soft_labels("cuda").facts["chunk_mebibytes"] > 64
