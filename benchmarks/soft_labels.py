"""Measures `soft_label_kl_from_hidden` against `soft_label_kl` of plain logits: time and peak extra memory on a CPU.

Forward and backward from last hidden vectors to the gradients of student vectors, weight and bias. Each measurement
has a process of its own, the two forms turn by turn. Peak extra memory is the highest resident size minus the one
before and minus the gradients, which both forms have to return. Plain logits of many tokens do not fit into memory:
such a row has no ratio, and one of as many tokens as do fit stands beside it.

    python benchmarks/soft_labels.py --output benchmarks/results/soft_labels.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from harness import made_with, resident_megabytes, write_rows
from limbeck.objectives.labels import soft_label_kl, soft_label_kl_from_hidden

FORMS = ("plain", "chunked")
# [tokens, V] tensors that plain logits need at once, a little more than were seen.
PLAIN_COPIES = 8
# Of the free memory that plain logits may take.
FREE_SHARE = 0.7


def make_inputs(tokens, classes, arguments):
    """Student and teacher: hidden vectors, weight and bias, filled in place so that nothing else is ever resident."""
    torch.manual_seed(0)
    dtype = getattr(torch, arguments.dtype)
    heads = []
    for width in (arguments.student, arguments.teacher):
        shapes, scales = ((tokens, width), (classes, width), (classes,)), (1.0, width**-0.5, 1.0)
        heads.append([torch.empty(s, dtype=dtype).normal_(std=d) for s, d in zip(shapes, scales, strict=True)])
    return [x.requires_grad_() for x in heads[0]], heads[1]


def run(form, student, teacher):
    """Forward and backward of one form; the total."""
    for x in student:
        x.grad = None
    if form == "plain":
        term = soft_label_kl(F.linear(*student), F.linear(*teacher))
    else:
        biases = {"student_bias": student[2], "teacher_bias": teacher[2]}
        term = soft_label_kl_from_hidden(*student[:2], *teacher[:2], **biases)
    term.mean.backward()
    return term.mean.item()


def free_gigabytes():
    """Memory of the machine that is free."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 / 1e9
    raise RuntimeError("no MemAvailable")


def child(arguments):
    """One measurement: memory at the first run, seconds at the second."""
    form, tokens, classes = json.loads(arguments.child)
    run(form, *make_inputs(8, 64, arguments))  # loads what is loaded once
    student, teacher = make_inputs(tokens, classes, arguments)
    before = resident_megabytes()
    value = run(form, student, teacher)
    peak = resident_megabytes(highest=True) - before
    gradients = sum(x.numel() * x.element_size() for x in student) / 2**20
    start = time.perf_counter()
    run(form, student, teacher)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "extra_mb": peak - gradients, "gradients_mb": gradients, "value": value}))


def measure_once(form, tokens, classes, arguments):
    command = [sys.executable, __file__, "--child", json.dumps([form, tokens, classes])]
    for name in ("student", "teacher", "threads", "dtype"):
        command += [f"--{name}", str(getattr(arguments, name))]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def summary(found, digits=3):
    """Median and spread."""
    return {
        "median": round(statistics.median(found), digits),
        "least": round(min(found), digits),
        "greatest": round(max(found), digits),
    }


def measure(tokens, classes, with_plain, arguments):
    forms = FORMS if with_plain else FORMS[1:]
    found = {form: [] for form in forms}
    for turn in range(arguments.rounds):
        for form in forms if turn % 2 == 0 else forms[::-1]:
            found[form].append(measure_once(form, tokens, classes, arguments))
    row = {"classes": classes, "tokens": tokens, "rounds": arguments.rounds, "plain": "measured"}
    if with_plain:
        pairs = list(zip(*(found[form] for form in FORMS), strict=True))
        row["time_ratio"] = summary([own["seconds"] / plain["seconds"] for plain, own in pairs])
        row["memory_ratio"] = summary([own["extra_mb"] / plain["extra_mb"] for plain, own in pairs], 4)
    else:
        row["plain"] = f"not measured: needs about {plain_gigabytes(tokens, classes):.0f} GB"
    row["gradients_mb"] = round(found["chunked"][0]["gradients_mb"])
    for form, seen in found.items():
        row[form + "_seconds"] = summary([x["seconds"] for x in seen])
        row[form + "_extra_mb"] = summary([x["extra_mb"] for x in seen], 0)
        row[form + "_value"] = seen[0]["value"]
    return row


def plain_gigabytes(tokens, classes):
    return PLAIN_COPIES * 4 * tokens * classes / 1e9


def tokens_that_fit(tokens, classes):
    """`tokens`, halved until plain logits of them fit into the memory that is free."""
    free = FREE_SHARE * free_gigabytes()
    while tokens > 1 and plain_gigabytes(tokens, classes) > free:
        tokens //= 2
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=[30_522, 250_002])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--student", type=int, default=384)
    parser.add_argument("--teacher", type=int, default=768)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.child:
        child(arguments)
        return
    settings = {name: getattr(arguments, name) for name in ("student", "teacher", "threads", "dtype")}
    print(json.dumps(made_with(**settings)))
    rows = []
    for classes in arguments.classes:
        fit = tokens_that_fit(arguments.tokens, classes)
        for tokens in sorted({fit, arguments.tokens}):
            rows.append(measure(tokens, classes, tokens == fit, arguments))
            print(json.dumps(rows[-1]), flush=True)
    if arguments.output:
        write_rows(arguments.output, rows, settings=settings, seed=0)


if __name__ == "__main__":
    main()
