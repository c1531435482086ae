"""The tests that need a GPU; in a dry run all of them are skipped."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu.parts import Request, Row

ROOT = Path(__file__).parents[2]
WORDS = ("passed", "failed", "skipped", "error")


def measure(request: Request) -> Iterator[Row]:
    """Run them.

    Raises:
        RuntimeError: where one fails, with the names of those that do.
    """
    files = sorted({str(path) for path in (ROOT / "tests").rglob("test_*_gpu.py")})
    # Compilers take most of the time. pytest-benchmark, where it is installed, warns of workers.
    workers = ["-n", "auto", "-p", "no:benchmark"] if find_spec("xdist") else []
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", *workers, *files]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(ran.stdout, ran.stderr)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)s?\b", ran.stdout[-300:])}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    yield {word: counts.get(word, 0) for word in WORDS} | {"names": failed}
    if ran.returncode:
        raise RuntimeError(f"pytest ended with {ran.returncode}: {', '.join(failed) or ran.stderr.strip()[-200:]}")
