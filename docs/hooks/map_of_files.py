"""The map of the package is made of the first lines of its files: a heading for each room, a line for each file.

`python docs/hooks/map_of_files.py` writes it into `docs/reference/files.md`, below the line that names its source.
"""

from __future__ import annotations

import ast
from pathlib import Path

from limbeck.methods import METHODS

PAGE = Path(__file__).parents[1] / "reference/files.md"
PLACE = "<!-- limbeck: made of the first lines of its files by `make references` -->\n"
_PACKAGE = Path(__file__).parents[2] / "src/limbeck"


def with_map(text: str) -> str:
    """Put the map below its line in the page."""
    head, place, _ = text.partition(PLACE)
    assert place, "the page has a place for the map"
    rooms = [_PACKAGE, *sorted(path.parent for path in _PACKAGE.rglob("*/__init__.py"))]
    return f"{head}{place}\n" + "\n\n".join(map(_room, rooms)) + "\n"


def _room(folder: Path) -> str:
    title = str(folder.relative_to(_PACKAGE.parent))
    lines = []
    for path in sorted(folder.glob("*.py")):
        # Methods have cards of their own.
        is_method = folder.name == "methods" and path.stem in METHODS
        if path.name != "__init__.py" and not is_method:
            lines.append(f"- `{path.name}`: {_first_line(path)}")
    return "\n".join([f"## `{title}/`", "", _first_line(folder / "__init__.py"), "", *lines])


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(with_map(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
