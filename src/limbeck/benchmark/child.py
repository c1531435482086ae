"""A process that measures one peak: `python -m limbeck.benchmark.child loss`, its request on standard input."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any


def main() -> None:
    """Read the request, measure, and print the peak as the last line."""
    # What libraries print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task, request = sys.argv[1], json.loads(sys.stdin.read())

    import torch

    from limbeck.benchmark.measuring import Peak, peak_as_json

    torch.set_num_threads(request["threads"])
    measure_peak: Callable[[Mapping[str, Any]], Peak]
    if task == "loss":
        from limbeck.benchmark.loss import measure_peak
    else:
        from limbeck.benchmark.step import measure_peak
    print(peak_as_json(measure_peak(request["spec"])), file=answers, flush=True)


if __name__ == "__main__":
    main()
