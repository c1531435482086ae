"""The package's shape: imports point down the floors, without circles, and files are neither crumbs nor heaps."""

import ast
import graphlib
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import limbeck

ROOT = Path(limbeck.__file__).parent
FLOORS = {
    room: floor
    for floor, rooms in enumerate(
        (
            "version",
            "errors core",
            "corpus models kernels",
            "objectives evaluation inspection export",
            "methods",
            "recipe",
            "training",
            "benchmark diagnosis comparison search report",
            "api cli",
            "__main__",
        )
    )
    for room in rooms.split()
}
#: Bounds of a file's code lines, which are neither blank nor comment nor docstring.
SHORT, LONG = 60, 420
#: Files beyond a bound, by path below `src/limbeck`, and the reason for each.
LONG_FILES: dict[str, str] = {
    "recipe/schema.py": "the keys of one document, with their ranges and descriptions",
}
METHOD, COMMAND, KERNEL = "a method is one file", "a command is one file", "a kernel is one file"
SHORT_FILES: dict[str, str] = {
    "__main__.py": "Python's own name",
    "version.py": "read by the build without importing the package",
    "cli/doctor.py": COMMAND,
    "api/given.py": "shared by the calls, before anything heavy",
    "cli/quickstart.py": COMMAND,
    "cli/report.py": COMMAND,
    "core/kinds.py": "a table that rooms of every floor read",
    "corpus/mixing.py": "what needs NumPy of a mix, whose settings recipes check without it",
    "core/intervals.py": "formulas that rooms of several floors read",
    "evaluation/certainty.py": "of scores, where rows and predictions meet",
    "report/certainty.py": "words that the tables of four kinds of folders share",
    "core/lists.py": "text of options, as commands and Python read it",
    "core/exports.py": "a kind of record, beside those of runs and studies",
    "search/pareto.py": "of searches and reports, without Optuna",
    "export/compared_vectors.py": "read before anything heavy",
    "export/pushing.py": "the only file that writes to the Hub",
    "kernels/compiling.py": "shared by the kernels in C",
    "kernels/int8_linear.py": KERNEL,
    "kernels/varlen_attention.py": KERNEL,
    "kernels/precision.py": "shared by all kernels, below them",
    "kernels/relation_reference.py": "the specification, to be read alone",
    "models/streams.py": "public, for plugins",
    **{
        f"methods/{name}.py": METHOD
        for name in (
            "bert_emd", "bert_pkd", "direct_minilm", "distilbert", "elm", "hidden_states", "minilm", "mlm",
            "output_distribution", "reranker", "sentence_embedding", "tinybert",
        )
    },
}  # fmt: skip
#: Short files without a reason; the number only falls.
SHORT_FILES_WITHOUT_REASON = 5

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


def code_lines(source: str) -> int:
    """Lines with a token that is neither a comment nor part of a text alone, as docstrings are."""
    without_code = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE}
    without_code |= {tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in without_code]
    texts = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    code = {line for t in tokens for line in range(t.start[0], t.end[0] + 1)}
    return len(code - {line for text in texts for line in range(text.lineno, text.end_lineno + 1)})


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


def test_files_are_neither_crumbs_nor_heaps():
    paths = [path for path in MODULES if path.name != "__init__.py"]
    lengths = {str(path.relative_to(ROOT)): code_lines(path.read_text(encoding="utf-8")) for path in paths}
    long = {name for name, length in lengths.items() if length > LONG}
    short = {name for name, length in lengths.items() if length < SHORT}
    assert long == set(LONG_FILES), f"above {LONG} code lines, with a reason or without need of one any more"
    assert set(SHORT_FILES) <= short, f"no longer under {SHORT} code lines: {sorted(set(SHORT_FILES) - short)}"
    crumbs = sorted(short - set(SHORT_FILES))
    assert len(crumbs) <= SHORT_FILES_WITHOUT_REASON, (
        f"{len(crumbs)} files under {SHORT} code lines: join what changes together, or give a reason. {crumbs}"
    )


def test_lines_of_code_are_neither_comments_nor_docstrings():
    source = '''"""A module."""

# A comment.
x = """two
lines"""
"""The meaning of x."""


def f(a):  # A function.
    """Says something."""

    return (
        a
    )
'''
    assert code_lines(source) == 6


def test_no_test_file_imports_another():
    imports = re.compile(r"^\s*from tests(\.\w+)* import test_|^\s*(from|import) tests(\.\w+)*\.test_", re.MULTILINE)
    assert imports.search("from tests.cli import test_help") and imports.search("from tests.cli.test_help import x")
    paths = sorted(Path(__file__).parent.rglob("*.py"))
    found = [str(path) for path in paths if path.name != "test_layering.py" and imports.search(path.read_text("utf-8"))]
    assert not found, "what tests share lies in tests/support"
