"""The short version of the memory measurement: four times as much text needs no more of it."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_stream_of_more_text_needs_no_more_memory(tmp_path):
    output = tmp_path / "memory.json"
    script = ["benchmarks/streaming_memory.py", "--megabytes", "8", "32", "--ways", "stream"]
    done = subprocess.run(
        [sys.executable, *script, "--work", str(tmp_path), "--output", str(output)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert output.is_file()
    assert json.loads(output.read_text())
