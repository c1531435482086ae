"""Imports point down the floors only, without circles, and every module imports."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import limbeck

ROOT = Path(limbeck.__file__).parent
FLOORS = {
    "version": 0,
    "errors": 1,
    "host_memory": 1,
    "plain_yaml": 1,
    "plugins": 1,
    "progress": 1,
    "registry": 1,
    "strict": 1,
    "worker_process": 1,
    "corpus": 2,
    "models": 2,
    "kernels": 2,
    "objectives": 3,
    "evaluation": 3,
    "inspection": 3,
    "export": 3,
    "methods": 4,
    "recipe": 5,
    "training": 6,
    "benchmark": 7,
    "diagnosis": 7,
    "comparison": 7,
    "experiments": 7,
    "search": 7,
    "report": 7,
    "api": 8,
    "cli": 8,
    "__main__": 9,
}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT)


def module_name(path: Path) -> str:
    parts = ["limbeck", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module]
        rooms |= {name.split(".")[1] for name in names if name.startswith("limbeck.")}
    return rooms


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_down(path):
    room = module_name(path).split(".")[1]
    for imported in imported_rooms(path) - {room}:
        assert FLOORS[imported] <= FLOORS[room], f"{module_name(path)} imports limbeck.{imported}"


def test_rooms_of_a_floor_make_no_circle():
    edges = {(module_name(path).split(".")[1], room) for path in MODULES for room in imported_rooms(path)}
    edges = {(a, b) for a, b in edges if a != b and FLOORS[a] == FLOORS[b]}
    assert not {(a, b) for a, b in edges if (b, a) in edges}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_every_module_imports(path):
    importlib.import_module(module_name(path))


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, limbeck; print([m for m in ('torch', 'transformers', 'datasets') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 320
