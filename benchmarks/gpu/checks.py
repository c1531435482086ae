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
COUNT = re.compile(rf"(\d+) ({'|'.join(WORDS)})s?\b")


def measure(request: Request) -> Iterator[Row]:
    """Run them.

    Raises:
        RuntimeError: where one fails, with the names of those that do.
    """
    files = sorted({str(path) for path in (ROOT / "tests").rglob("test_*_gpu.py")})
    # Compilers take most of the time. pytest-benchmark, where it is installed, warns of workers.
    workers = ["-n", "auto", "-p", "no:benchmark"] if find_spec("xdist") else []
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", *workers, *files]
    lines = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        for line in running.stdout or ():
            print(line, end="", flush=True)  # Into the part's log, which is shown where time runs out.
            lines.append(line)
    output = "".join(lines)
    summary = next((line for line in reversed(lines) if COUNT.search(line)), "")
    counts = {word: int(n) for n, word in COUNT.findall(summary)}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    yield {word: counts.get(word, 0) for word in WORDS} | {"names": failed}
    if running.returncode:
        raise RuntimeError(f"pytest ended with {running.returncode}: {', '.join(failed) or output.strip()[-200:]}")
