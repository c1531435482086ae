"""The examination: parts in order, each alone; packages, devices, kernels and folders as they are judged."""

import subprocess
import sys
import tomllib
from collections import namedtuple
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from huggingface_hub import constants
from packaging.requirements import Requirement

from limbeck.core.devices import bf16_is_fast
from limbeck.core.paths import MANIFEST
from limbeck.diagnosis import devices, examination, folders, kernel_choices, packages
from limbeck.diagnosis.examination import examine
from limbeck.diagnosis.findings import Finding, gigabytes, worst
from limbeck.diagnosis.packages import find_extra, find_needed
from limbeck.kernels import dispatch

MISSING = "no-such-package-of-limbeck"
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
Usage = namedtuple("Usage", "total used free")


def line(status, name="x"):
    return Finding(name, status, "text")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"packages": [line("ok")], "devices": [line("absent"), line("ok", "y")]},
         [("packages", "ok", "text"), ("devices", "absent", "text"), ("devices", "ok", "text")]),
        # Without the packages nothing else is looked at.
        ({"packages": [line("failed"), line("ok")], "devices": [AssertionError("not reached")]},
         [("packages", "failed", "text"), ("packages", "ok", "text")]),
        # A part that raises is a finding, and the others follow.
        ({"devices": [line("ok"), RuntimeError("no\ndriver")], "kernels": [line("ok")]},
         [("devices", "ok", "text"), ("devices", "failed", "RuntimeError: no driver"), ("kernels", "ok", "text")]),
    ],
    ids=["order", "packages", "raises"],
)  # fmt: skip
def test_parts_come_in_order_each_alone(monkeypatch, parts, expected):
    def find(findings):
        for finding in findings:
            if isinstance(finding, Exception):
                raise finding
            yield finding

    module = ModuleType("parts_of_this_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, findings in parts.items():
        setattr(module, name, lambda findings=findings: find(findings))
    monkeypatch.setattr(examination, "PARTS", {name: f"{module.__name__}:{name}" for name in parts})
    begun = []
    found = list(examine(begun.append))
    assert [(part, finding.status, finding.text) for part, finding in found] == expected
    assert begun == list(dict.fromkeys(part for part, _, _ in expected))


def test_a_part_that_cannot_be_imported_is_a_finding(monkeypatch):
    monkeypatch.setattr(examination, "PARTS", {"devices": "limbeck.diagnosis.nowhere:find"})
    ((_, found),) = examine(len)
    assert found.status == "failed" and "ModuleNotFoundError" in found.text


def test_the_packages_are_first_and_need_no_torch():
    assert next(iter(examination.PARTS)) == "packages"
    code = "import sys; from limbeck.diagnosis import examination, packages as p; [*p.find_packages()]; "
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


def test_the_worst_of_findings():
    for statuses, found in (((), "ok"), (("absent", "ok"), "ok"), (("ok", "warning", "absent"), "warning"),
                            (("warning", "failed"), "failed")):  # fmt: skip
        assert worst(map(line, statuses)) == found
    assert gigabytes(1_234_000_000) == "1.2 GB"


# Packages, judged by the requirements that the installer had.


def requirements(*texts):
    return [Requirement(text) for text in texts]


@pytest.fixture
def installed(monkeypatch):
    """Pretend that what is installed of limbeck says something else."""

    def pretend(version=packages.__version__, needs=(), extras=(), python=">=3.11"):
        described = type("Described", (dict,), {"get_all": lambda self, name: list(extras)})
        real = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: version if name == "limbeck" else real(name))
        monkeypatch.setattr(metadata, "requires", lambda name: list(needs))
        monkeypatch.setattr(metadata, "metadata", lambda name: described({"Requires-Python": python}))

    return pretend


def test_packages_that_are_there_are_listed_with_their_versions():
    (found,) = find_needed(requirements("pytest>=1", f"{MISSING}; extra == 'x'", f"{MISSING}; sys_platform == 'none'"))
    assert (found.status, found.facts) == ("ok", {"pytest": metadata.version("pytest")})
    (needed,) = requirements(f"torch>={metadata.version('torch').split('+')[0]}")
    assert packages.problem_of(needed) is None, "a version before a release counts as one"


@pytest.mark.parametrize(
    ("needed", "problem"), [(f"{MISSING}>=2", f"{MISSING} is not installed"), ("pytest<0.1", "does not fit <0.1")]
)
def test_a_package_that_is_missing_or_too_old_fails_with_the_line_to_install_it(needed, problem):
    failed, rest = find_needed(requirements(needed, "packaging"))
    assert (failed.status, rest.status) == ("failed", "ok")
    assert problem in failed.text and failed.way_out == f'pip install "{needed}"'


def test_an_extra_is_absent_or_complete():
    listed = requirements("rich", "pytest; extra == 'export'", f"{MISSING}>=1; extra == 'export'")
    found = find_extra("export", "`limbeck export`", listed)
    assert (found.status, found.way_out) == ("absent", 'pip install "limbeck[export]"')
    assert found.facts == {"pytest": metadata.version("pytest"), MISSING: None}
    assert "for `limbeck export`" in found.text and f"{MISSING} is not installed" in found.text
    assert find_extra("export", "", listed[:2]).status == "ok"
    elsewhere = find_extra("triton", "a GPU", requirements("triton; sys_platform == 'none' and extra == 'triton'"))
    assert (elsewhere.status, elsewhere.way_out) == ("absent", None)


def test_all_packages(installed):
    installed(needs=["rich", "pytest; extra == 'quickstart'"], extras=["quickstart"])
    found = {finding.name: finding for finding in packages.find_packages()}
    assert {found[name].status for name in ("python", "limbeck", "needed packages", "extra quickstart")} == {"ok"}
    older = found["extra triton"]
    assert older.status == "warning" and 'pip install --upgrade "limbeck[triton]"' in older.way_out
    extras = set(tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"])
    assert extras - {"dev", "docs", "examples"} == set(packages.USES), "those of users are all explained"


def test_another_limbeck_or_python_than_the_right_one(installed, monkeypatch):
    installed(version="0.0.1", python=">=4.7")
    found = packages.find_limbeck()
    assert found.status == "warning" and "installed as 0.0.1" in found.text
    found = packages.find_python()
    assert (found.status, found.way_out) == ("failed", "install Python >=4.7")

    def nothing(name):
        raise metadata.PackageNotFoundError(name)

    for function in ("version", "requires", "metadata"):
        monkeypatch.setattr(metadata, function, nothing)
    python, found = packages.find_packages()
    assert python.status == "ok", "of a limbeck that is only imported nothing is known"
    assert (found.status, found.way_out) == ("warning", "pip install limbeck")


# Devices, threads, precision, and the kernels that are chosen for them.


@pytest.fixture
def without_accelerator(monkeypatch):
    monkeypatch.setattr(devices, "accelerator_type", lambda: None)
    monkeypatch.setattr(devices, "_has_nvidia_driver", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_more_threads_than_cores_are_a_warning(monkeypatch):
    found = devices.find_processor()
    assert found.status == "ok" and found.facts["threads"] == torch.get_num_threads() == 1
    assert 0 < found.facts["available_bytes"] <= found.facts["memory_bytes"]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 10_000)
    found = devices.find_processor()
    assert (found.status, found.way_out) == ("warning", f"set OMP_NUM_THREADS={found.facts['cores']}")


def test_every_gpu_is_listed_with_its_memory(monkeypatch):
    properties = SimpleNamespace(name="Pretended GPU", major=9, minor=0)
    monkeypatch.setattr(devices, "accelerator_type", lambda: "cuda")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (30 * 10**9, 80 * 10**9))
    first, second = devices.find_accelerators()
    assert (first.name, second.name) == ("cuda:0", "cuda:1")
    assert "Pretended GPU, 80.0 GB of memory, 30.0 GB free, compute capability 9.0" in second.text
    assert second.facts["free_bytes"] == 30 * 10**9


@pytest.mark.parametrize(
    ("driver", "built_for", "hidden", "said", "way_out"),
    [
        (False, None, None, "computes on the processor", None),
        (True, None, None, "built without CUDA", "pytorch.org"),
        (True, "12.8", "-1", "hidden by CUDA_VISIBLE_DEVICES='-1'", "unset CUDA_VISIBLE_DEVICES"),
        (True, "12.8", "", "hidden by", "unset"),
        (True, "12.8", "0", "finds no GPU", "nvidia-smi"),
    ],
)
def test_a_gpu_that_is_not_used_is_a_warning_with_its_reason_and_none_is_no_fault(
    without_accelerator, monkeypatch, driver, built_for, hidden, said, way_out
):
    monkeypatch.setattr(devices, "_has_nvidia_driver", lambda: driver)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    (found,) = devices.find_accelerators()
    assert found.status == ("warning" if driver else "absent") and said in found.text
    assert found.way_out is None if way_out is None else way_out in found.way_out


@pytest.mark.parametrize(("native", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_the_precision_and_the_kernel_are_those_of_training(monkeypatch, native, dtype):
    assert devices.bf16_is_fast is bf16_is_fast
    monkeypatch.setattr(devices, "bf16_is_fast", lambda: native)
    found = devices.find_precision()
    assert found.facts["default"] == dtype and f"training uses {dtype} by default" in found.text
    kernel = kernel_choices.find_relation("cpu")
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
    for module in (dispatch, kernel_choices):
        monkeypatch.setattr(module, "triton_obstacle", lambda kind, dtype: obstacle)
    found = kernel_choices.find_relation("cuda")
    assert (found.status, found.way_out) == (status, way_out)
    assert found.facts["backend"] == ("triton" if status == "ok" else "blocked")


def test_kernels_are_listed_for_every_device(monkeypatch):
    monkeypatch.setattr(devices, "accelerator_type", lambda: "mps")
    names = [finding.name for finding in kernel_choices.find_kernels()]
    of_each = ["relation_kl on cpu", "soft labels on cpu", "relation_kl on mps", "soft labels on mps"]
    assert names == ["attention on cpu", *of_each]
    assert "chunks of 64 MiB" in kernel_choices.find_soft_labels("cpu").text
    assert kernel_choices.find_soft_labels("cuda").facts["chunk_mebibytes"] > 64


def test_attention_without_a_compiler_is_a_warning(monkeypatch):
    monkeypatch.setattr(kernel_choices.cpu_attention, "kernel_or_reason", lambda: "no C compiler 'cc'")
    found = kernel_choices.find_attention()
    assert (found.status, found.facts["backend"]) == ("warning", "pytorch")
    assert found.text == "in bfloat16 by PyTorch, at half the speed: no C compiler 'cc'"


# Folders: their places, sizes and room, and whether they can be written.


@pytest.fixture
def room(monkeypatch):
    def leave(free):
        monkeypatch.setattr(folders.shutil, "disk_usage", lambda path: Usage(10**12, 0, free))

    leave(5 * 10**9)
    return leave


def test_a_cache_with_its_size(tmp_path, monkeypatch, room):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    folder = tmp_path / "blocks" / "one"
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text("{}")
    with (folder / "data").open("wb") as file:
        file.truncate(3 * 10**8)
    found = folders.find_cache()
    assert (found.status, found.facts["bytes"], found.facts["finished"]) == ("ok", 3 * 10**8 + 2, 1)
    assert str(tmp_path) in found.text and "5.0 GB free; 0.3 GB in 1 finished" in found.text
    assert found.facts["from_environment"] is True


def test_a_cache_that_is_not_there_yet_is_well_and_is_not_made(tmp_path, monkeypatch, room):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "a" / "b"))
    found = folders.find_cache()
    assert found.status == "ok" and "made when it is needed" in found.text
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").write_text("in the way")
    found = folders.find_cache()
    assert found.status == "failed" and "LIMBECK_CACHE" in found.way_out


def test_little_room_and_a_hub_folder_that_cannot_be_written_are_warnings(tmp_path, monkeypatch, room):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "file"))
    for offline in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        found = folders.find_hub()
        assert found.status == "warning" and "HF_HOME" in found.way_out and found.facts["offline"] is offline
        assert ("offline: nothing is fetched" in found.text) == offline
    room(10**9)
    found = folders.find_folder("x", tmp_path, "")
    assert found.status == "warning" and "1.0 GB free" in found.text
