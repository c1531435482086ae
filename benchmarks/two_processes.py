"""Measures what a second process brings: tokens per second of `limbeck distill` in one process and in two.

Each process has one thread. A teacher of 12x384 teaches 6x384 (minilmv2, 12 relation heads) from random weights on
generated text, float32. The same steps are taken three ways: one process with 16 rows; two with 8 each, which shares
the work (strong scaling); two with 16 each, which doubles it (weak scaling). Both processes are on this machine and
talk over gloo. Two runs at once that know nothing of each other show what the machine has for two processes that do not
talk at all. Every round takes each way once, in turn; ratios are those of one round.

    python benchmarks/two_processes.py --rounds 5 --output benchmarks/results/two_processes.json

Efficiency is tokens per second of two processes, or runs, over twice those of one. The time that gradients take to be
summed is measured by itself, in two processes, on as many numbers as the student has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = 4000
LENGTH = 128
WAYS = {"one": (1, 16), "two, 8 rows each": (2, 8), "two, 16 rows each": (2, 16)}
APART = "two runs apart, 16 rows each"
SUM_ROUNDS = 20


def make_teacher(folder: Path) -> None:
    """Save a BERT of 12x384 with random weights, and a tokenizer of whole words."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: i for i, word in enumerate([*specials, *(f"word{i}" for i in range(WORDS))])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", **names).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(vocabulary), num_hidden_layers=12, hidden_size=384, intermediate_size=1536)
    BertModel(config).save_pretrained(folder)


def write_text(path: Path, documents: int = 1500) -> None:
    """Write paragraphs of random words, more than a block long."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(0, WORDS, (documents, 2 * LENGTH), generator=generator).tolist()
    path.write_text("\n\n".join(" ".join(f"word{i}" for i in row) for row in drawn), encoding="utf-8")


def recipe(folder: Path, output: Path, rows: int, steps: int) -> dict[str, Any]:
    training = {
        "max_steps": steps, "per_device_train_batch_size": rows, "bf16": False, "save_strategy": "no",
        "eval_strategy": "no", "logging_steps": steps,
    }  # fmt: skip
    return {
        "output": str(output),
        "teacher": {"model": str(folder / "teacher")},
        "student": {"shape": {"layers": 6, "hidden": 384}},
        "corpus": {"sources": [str(folder / "text.txt")], "length": LENGTH, "held_out": 0.02},
        "stages": [{"method": {"name": "minilmv2", "relation_heads": 12}, "training": training}],
        "evaluation": {"enabled": False},
    }


def launch(processes: int, *command: str) -> str:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    done = subprocess.run(
        [*launcher, *command], capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def two_apart(folder: Path, number: int, steps: int) -> float:
    """Tokens per second of two runs at once, added up."""
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(tokens_per_second, folder, "one", f"{number}-{i}", steps) for i in range(2)]
        return sum(run.result()[0] for run in runs)


def tokens_per_second(folder: Path, name: str, number: object, steps: int) -> tuple[float, dict[str, Any]]:
    processes, rows = WAYS[name]
    output = folder / f"run-{number}-{processes}-{rows}"
    path = folder / f"recipe-{number}.json"
    path.write_text(json.dumps(recipe(folder, output, rows, steps)))
    launch(processes, "-m", "limbeck", "distill", str(path), "--quiet")
    record = json.loads((output / "run.json").read_text())
    return record["stages"][0]["tokens_per_second"], record


def sum_gradients(numbers: int) -> None:
    """Time the sum of so many numbers over the processes, in this one of them."""
    import time

    torch.distributed.init_process_group("gloo")
    values = torch.zeros(numbers)
    seconds = []
    for _ in range(SUM_ROUNDS):
        torch.distributed.barrier()
        began = time.perf_counter()
        torch.distributed.all_reduce(values)
        seconds.append(time.perf_counter() - began)
    if torch.distributed.get_rank() == 0:
        print(json.dumps(statistics.median(seconds)))
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--sum", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sum is not None:
        sum_gradients(options.sum)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["LIMBECK_CACHE"] = str(folder / "cache")
        make_teacher(folder / "teacher")
        write_text(folder / "text.txt")
        tokens_per_second(folder, "one", -1, 2)  # Builds the corpus.
        rounds = []
        for number in range(options.rounds):
            found = {way: tokens_per_second(folder, way, number, options.steps) for way in WAYS}
            rounds.append(
                {way: rate for way, (rate, _) in found.items()} | {APART: two_apart(folder, number, options.steps)}
            )
            print(json.dumps(rounds[-1]), flush=True)
        parameters = next(iter(found.values()))[1]["student"]["parameters"]
        hardware = next(iter(found.values()))[1]["hardware"]
        seconds = json.loads(launch(2, str(Path(__file__).resolve()), "--sum", str(parameters)).splitlines()[-1])
    efficiencies = {
        way: [round(each[way] / (2 * each["one"]), 4) for each in rounds] for way in (*WAYS, APART) if way != "one"
    }
    result = {
        "command": f"python benchmarks/two_processes.py --rounds {options.rounds} --steps {options.steps}",
        "hardware": hardware,
        "parameters": parameters,
        "tokens_per_second": rounds,
        "efficiency": {way: {"median": statistics.median(each), "rounds": each} for way, each in efficiencies.items()},
        "gradient_sum_seconds": seconds,
    }
    print(json.dumps(result, indent=2))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
