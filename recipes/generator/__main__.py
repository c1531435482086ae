"""The command: write the files, or say which of them differ."""

from __future__ import annotations

import sys

from recipes.generator.collection import RECIPES, all_files


def main() -> int:
    """Write every file, or with `--check` only compare; files of no recipe are named either way."""
    files, check = all_files(), "--check" in sys.argv[1:]
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    strange = sorted(set((RECIPES / "papers").glob("*.yaml")) - set(files))
    for path in strange:
        sys.stdout.write(f"{path} belongs to no recipe: remove it\n")
    for path in stale:
        sys.stdout.write(f"{path} {'differs' if check else 'written'}\n")
        if not check:
            path.write_text(files[path], encoding="utf-8")
    return int(bool(strange or (check and stale)))


if __name__ == "__main__":
    sys.exit(main())
