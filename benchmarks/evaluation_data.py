"""Loads every file of a data folder that belongs to a task, and prints its rows beside the number expected.

    python benchmarks/evaluation_data.py FOLDER

Expected is what the source publishes, or, for copies that are known to be smaller, what `SMALLER_COPIES` says. The exit
code is 1 if a file cannot be read, or has another number of rows, or a table under a task's folder belongs to no task.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from limbeck.errors import LimbeckError
from limbeck.evaluation.tasks.loading import load_task
from limbeck.evaluation.tasks.registry import DEFINITIONS
from limbeck.evaluation.tasks.split_files import find_file

# SQuAD 1.1's development set split by article, and FewCLUE's merged files, of which no count is published.
SMALLER_COPIES = {
    ("squad", "train"): 9189,
    ("squad", "validation"): 1381,
    ("few_csl", "train"): 160,
    ("few_csl", "validation"): 160,
    ("few_csl", "test"): 2838,
    ("few_ocnli", "train"): 160,
    ("few_ocnli", "validation"): 160,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    read: set[Path] = set()
    failures = 0
    print(f"{'task':<12} {'split':<22} {'rows':>8} {'expected':>8} {'seconds':>8}  file")
    for name, definition in DEFINITIONS.items():
        for split in definition.split_names:
            found = find_file(definition.paths(split), [folder])
            if found is None:
                continue
            path = found[0]
            read.add(path)
            start = time.perf_counter()
            try:
                data = load_task(name, data=folder, splits=[split])
            except LimbeckError as error:
                failures += 1
                print(f"{name:<12} {split:<22} failed: {error}")
                continue
            rows = len(data.splits[split])
            expected = SMALLER_COPIES.get((name, split), definition.task.splits[split].published_rows)
            failures += rows != expected
            mark = "" if rows == expected else "  <- differs"
            seconds = time.perf_counter() - start
            print(f"{name:<12} {split:<22} {rows:>8} {expected!s:>8} {seconds:>8.2f}  {path.relative_to(folder)}{mark}")
            for note in data.notes[1:]:
                print(f"{'':<12} {note}")
    homes = {path.parent for path in read}
    left = sorted(path for home in homes for path in home.iterdir() if path.is_file() and path not in read)
    for path in left:
        print(f"belongs to no task: {path.relative_to(folder)}")
    print(f"{len(read)} files read, {failures} failures, {len(left)} left over")
    return 1 if failures or left or not read else 0


if __name__ == "__main__":
    sys.exit(main())
