"""The package's shape: imports point down the floors, without circles."""

import ast
import graphlib
import re
from functools import cache
from pathlib import Path

import limbeck

ROOT = Path(limbeck.__file__).parent
FLOORS = {
    room: floor
    for floor, rooms in enumerate(
        (
            "version option_names",
            "errors core",
            "corpus models kernels",
            "objectives kinds",
            "methods evaluation inspection export targets",
            "recipe",
            "training",
            "benchmark diagnosis comparison search report",
            "api cli",
            "__main__",
        )
    )
    for room in rooms.split()
}

MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT)


def module_name(path: Path) -> str:
    parts = ["limbeck", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_rooms(source: str) -> set[str]:
    """Rooms that a module imports from; a name of the package itself, as `limbeck.distill`, comes from `api`."""
    rooms = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the package"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found = [name.split(".")[1] if "." in name else "" for name in names if name.split(".")[0] == "limbeck"]
        rooms |= {room if room in FLOORS else "api" for room in found}
    return rooms


@cache
def edges() -> dict[Path, set[str]]:
    return {path: imported_rooms(path.read_text(encoding="utf-8")) - {room_of(path)} for path in MODULES}


def room_of(path: Path) -> str:
    return module_name(path).split(".")[1]


def test_imports_point_down():
    upwards = [
        f"{module_name(path)} imports limbeck.{room}"
        for path, rooms in edges().items()
        for room in rooms
        if FLOORS[room] > FLOORS[room_of(path)]
    ]
    assert not upwards, "\n".join(upwards)


def test_every_way_of_importing_is_seen():
    assert imported_rooms("import limbeck.report.quality") == {"report"}
    assert imported_rooms("from limbeck.report.quality import render") == {"report"}
    assert imported_rooms("def f():\n    from limbeck import report as pages, errors") == {"report", "errors"}
    assert imported_rooms("import limbeck") == imported_rooms("from limbeck import distill") == {"api"}
    assert imported_rooms("import torch\nfrom limbecks.report import x") == set()


def test_rooms_of_a_floor_make_no_circle():
    rooms = {room: set() for room in FLOORS}
    for path, imported in edges().items():
        rooms[room_of(path)] |= {room for room in imported if FLOORS[room] == FLOORS[room_of(path)]}
    graphlib.TopologicalSorter(rooms).prepare()  # does not raise: CycleError names the rooms of a circle


def test_no_test_file_imports_another():
    imports = re.compile(r"^\s*from tests(\.\w+)* import test_|^\s*(from|import) tests(\.\w+)*\.test_", re.MULTILINE)
    assert imports.search("from tests.cli import test_help") and imports.search("from tests.cli.test_help import x")
    paths = sorted(Path(__file__).parent.rglob("*.py"))
    found = [str(path) for path in paths if path.name != "test_layering.py" and imports.search(path.read_text("utf-8"))]
    assert not found, "what tests share lies in tests/support"
