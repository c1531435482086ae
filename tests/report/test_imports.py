"""A report is written without PyTorch, which takes seconds to load and prints nothing meanwhile."""

import subprocess
import sys


def test_a_report_is_written_without_pytorch():
    code = "import sys, limbeck.report.writing; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
