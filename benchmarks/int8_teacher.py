"""Teachers in int8 (`teacher.precision`): their products and forwards in time, their streams, and students of both.

    python benchmarks/int8_teacher.py --speed
    python benchmarks/int8_teacher.py --streams --data DATA
    python benchmarks/int8_teacher.py --students --data DATA --work DIR
    python benchmarks/int8_teacher.py --table

DATA has SICK and SQuAD 1.1's `v1.1-dev.json` wherever they lie below it. Rows of `--speed` replace those of the same
machine; five rounds, in which all formats take turns, give ratios of times and of core time, with two threads:

- `product`: a linear map of a batch's tokens, whole and by parts, beside those in bfloat16 and float32, whose weights
  are laid out once as a teacher's are, and `torch._int_mm` alone;
- `forward`: a teacher up to the last layer's query, key and value, samples of 64 to 128 tokens.

`--streams` compares a teacher's streams with those in float32: differences as shares of a stream, by the root of the
mean square and by the largest number. `--students` trains the student of `embedding_ablation.py` in 170 steps from
teachers in bfloat16 and int8, seed by seed, and scores SICK; a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import torch
from scipy import stats
from torch import Tensor, nn

from embedding_ablation import (
    SEEDS,
    TEACHER,
    Change,
    add_row,
    find,
    read_rows,
    read_squad,
    read_table,
    recipe_of,
    spearman,
)
from limbeck.benchmark.model import read_config
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.core.memory import keep_freed_memory
from limbeck.corpus.batch import read_batch
from limbeck.kernels.int8_linear import int8_linear, int8_problem, multiply, pack, quantise
from limbeck.methods.term import Term
from limbeck.models.families import depth
from limbeck.models.loading import load_model
from limbeck.models.packed_linear import pack_linear_maps
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.students import build_student
from limbeck.models.tokenizers import load_tokenizer
from limbeck.training.teaching.live import LiveTeaching

RESULTS = Path(__file__).parent / "results" / "int8_teacher.jsonl"
SHAPES = ((825, 768, 768), (825, 768, 3072), (825, 3072, 768), (1300, 384, 384), (1300, 384, 1536), (1300, 1536, 384))
"""Tokens, inputs and outputs: maps of BERT-base and of all-MiniLM-L6-v2."""
FORMATS: Mapping[str, tuple[torch.dtype, bool]] = {
    "float32": (torch.float32, False),
    "bfloat16": (torch.bfloat16, False),
    "int8": (torch.bfloat16, True),
    "int8, rest float32": (torch.float32, True),
}
"""Number formats of teachers: of their weights, and whether their linear maps are quantised."""
ROUNDS, LENGTH, STEPS = 5, 128, 170


Times = dict[str, dict[str, list[float]]]
"""By clock and call, milliseconds of each round."""
CLOCKS: Mapping[str, Callable[[], float]] = {"": time.perf_counter, "core_": time.process_time}
"""Of the wall, and of the process's cores, which other work on the machine disturbs less."""


def in_turns(calls: Mapping[str, Callable[[], object]], repeats: int) -> Times:
    """Time calls, round by round; what comes before the first round does not count."""
    times: Times = {clock: {name: [] for name in calls} for clock in CLOCKS}
    for number in range(ROUNDS + 1):
        for name, call in calls.items():
            started = {clock: read() for clock, read in CLOCKS.items()}
            for _ in range(repeats):
                call()
            for clock, read in CLOCKS.items() if number else ():
                times[clock][name].append(1000 * (read() - started[clock]) / repeats)
    return times


def ratios(times: Times) -> dict[str, Any]:
    """Give medians, and how many times faster int8 is: median, least and largest of the rounds."""
    found: dict[str, Any] = {}
    for clock, of in times.items():
        found[f"{clock}milliseconds"] = {name: round(statistics.median(own), 3) for name, own in of.items()}
        for name in ("bfloat16", "float32"):
            rounds = [theirs / own for theirs, own in zip(of[name], of["int8"], strict=True)]
            faster = statistics.median(rounds), min(rounds), max(rounds)
            found[f"{clock}faster_than_{name}"] = [round(x, 2) for x in faster]
    return found


# Speed.


def product(tokens: int, inputs: int, outputs: int) -> dict[str, Any]:
    """Measure a linear map."""
    torch.manual_seed(0)
    linear = nn.Linear(inputs, outputs).requires_grad_(False)
    x, weight, bias = torch.randn(tokens, inputs), pack(*quantise(linear.weight)), linear.bias.clone()
    plain = nn.ModuleList([linear, nn.Linear(inputs, outputs).requires_grad_(False).bfloat16()])
    codes, half, columns = quantise(x)[0], x.bfloat16(), quantise(linear.weight)[0].T.contiguous()
    pack_linear_maps([plain])
    times = in_turns({
        "int8": lambda: int8_linear(half, weight, bias),
        "quantising": lambda: quantise(half),
        "products": lambda: multiply(codes, weight),
        "_int_mm": lambda: torch._int_mm(codes, columns),
        "bfloat16": lambda: plain[1](half),
        "float32": lambda: plain[0](x),
    }, repeats=3)  # fmt: skip
    return {"kind": "product", "tokens": tokens, "inputs": inputs, "outputs": outputs} | ratios(times)


def reader(model: Any, name: str, keys: Sequence[StreamKey], head: SentenceHead | str = "mean") -> LiveTeaching:
    """Make a teacher that is read, in a number format."""
    dtype, int8 = FORMATS[name]
    terms = [Term(name="read", objective="hidden_mse", student=(), teacher=tuple(keys))]
    made = LiveTeaching(model.to(dtype), terms, pooling=head, int8=int8)
    made.move("cpu")
    return made


def forward(title: str, load: Callable[[], Any], rows: int) -> dict[str, Any]:
    """Measure a teacher's forward."""
    torch.manual_seed(0)
    ids = torch.randint(1000, 20_000, (rows, LENGTH))
    lengths = torch.linspace(LENGTH // 2, LENGTH, rows).round().long()
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    readers = {}
    for name in ("float32", "bfloat16", "int8"):
        model = load()
        keys = [StreamKey(kind, depth(model.config)) for kind in ("query", "key", "value")]
        readers[name] = reader(model, name, keys)
    times = in_turns(
        {
            name: (lambda own=own: own.read(read_batch({"input_ids": ids, "attention_mask": mask})))
            for name, own in readers.items()
        },
        repeats=1,
    )
    return {"kind": "forward", "teacher": title, "tokens": int(mask.sum())} | ratios(times)


def bert_base() -> Any:
    """Make BERT-base with random weights."""
    return build_student(read_config("12x768", LENGTH), seed=0)


def measure_speed() -> Iterator[dict[str, Any]]:
    """Measure products and forwards."""
    torch.set_num_threads(2)
    keep_freed_memory()
    for shape in SHAPES:
        yield product(*shape)
    yield forward("BERT-base, random", bert_base, 9)
    yield forward(TEACHER, lambda: load_model(TEACHER), 14)


# Differences of streams.


def differences(found: Tensor, wanted: Tensor) -> dict[str, float]:
    """Compare real tokens or vectors of two streams, `[N, width]`."""
    off, wanted = found.double() - wanted.double(), wanted.double()
    return {
        "root_mean_square": round(float(off.square().mean().sqrt() / wanted.square().mean().sqrt()), 5),
        "largest": round(float(off.abs().max() / wanted.abs().max()), 5),
        "least_cosine": round(float(torch.cosine_similarity(found.double(), wanted, dim=-1).min()), 5),
    }


@torch.no_grad()
def measure_streams(data: Path) -> Iterator[dict[str, Any]]:
    """Compare every layer's streams of the packaged teacher in each format with those in float32."""
    sentences = [row["sentence_A"] for row in read_table(find(data, "SICK_train.txt"))][:96]
    texts = sentences + read_squad(find(data, "v1.1-dev.json"), 40)[1][:48]
    tokenizer = load_tokenizer(TEACHER)
    batches = [
        dict(tokenizer(texts[at : at + 16], max_length=LENGTH, truncation=True, padding=True, return_tensors="pt"))
        for at in range(0, len(texts), 16)
    ]
    for batch in batches:
        batch.pop("token_type_ids", None)
    head = SentenceHead(sentence_pooling(TEACHER) or "mean")
    layers = depth(load_model(TEACHER).config)
    kinds = ("hidden", "query", "key", "value", "context")
    keys = [StreamKey(kind, layer) for kind in kinds for layer in range(1, layers + 1)]
    keys.append(StreamKey("vector", layers))

    def read(name: str) -> dict[StreamKey, Tensor]:
        teacher = reader(load_model(TEACHER), name, keys, head)
        streams: list[Streams] = [teacher.read(read_batch(batch)) for batch in batches]
        masks = [batch["attention_mask"].bool() for batch in batches]
        return {
            key: torch.cat([s[key] if key.kind == "vector" else s[key][m] for s, m in zip(streams, masks, strict=True)])
            for key in keys
        }

    exact = read("float32")
    for name in FORMATS:
        if name != "float32":
            found = read(name)
            for key in keys:
                kind = {"kind": "stream", "teacher": TEACHER, "format": name, "stream": key.kind, "layer": key.layer}
                yield kind | differences(found[key], exact[key])


# Students.


def sick(folder: str, rows: Sequence[Mapping[str, str]]) -> float:
    """Score a model on SICK's training split by Spearman's correlation of cosines with human relatedness."""
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(folder, device="cpu")
    texts = list(dict.fromkeys(text for row in rows for text in (row["sentence_A"], row["sentence_B"])))
    place = {text: number for number, text in enumerate(texts)}
    vectors = loaded.encode(texts, batch_size=64, convert_to_tensor=True, normalize_embeddings=True)
    first, second = (vectors[[place[row[f"sentence_{side}"]] for row in rows]] for side in "AB")
    return spearman((first * second).sum(-1), [float(row["relatedness_score"]) for row in rows])


def measure_students(data: Path, work: Path, text: str) -> Iterator[dict[str, Any]]:
    """Train and score what is missing, a seed in both formats before the next."""
    import limbeck

    rows = read_table(find(data, "SICK_train.txt"))
    done = {(row["text"], row["format"], row["seed"]) for row in read_rows(RESULTS) if row["kind"] == "student"}
    asked = {"bfloat16": ["teacher.dtype=bfloat16"], "int8": ["teacher.dtype=bfloat16", "teacher.precision=int8"]}
    for seed in SEEDS:
        for name, overrides in asked.items():
            if (Path(text).name, name, seed) in done:
                continue
            output = work / f"{name}-{seed}"
            made = limbeck.distill(recipe_of(Change(overrides), text, seed, STEPS, output), overwrite=True)
            stage = made.record["stages"][0]
            yield {
                "kind": "student", "text": Path(text).name, "format": name, "seed": seed, "steps": STEPS,
                "tokens": stage["tokens"], "seconds": stage["seconds"], "sick": sick(str(made.student), rows),
                "held_out": stage["held_out"],
            }  # fmt: skip
            shutil.rmtree(output)


# Results.


def table() -> Iterator[str]:
    """Lay the rows out."""
    rows = read_rows(RESULTS)
    yield "| map or forward | int8 ms | faster than bfloat16 | than float32 | by core time | |"
    yield "|---|---:|---:|---:|---:|---:|"
    for row in rows:
        if row["kind"] in ("product", "forward"):
            shape = row["teacher"] if row["kind"] == "forward" else f"{row['inputs']} to {row['outputs']}"
            keys = [f"{clock}faster_than_{name}" for clock in CLOCKS for name in ("bfloat16", "float32")]
            faster = ("{} ({} to {})".format(*row[key]) for key in keys)
            yield f"| {shape}, {row['tokens']} tokens | {row['milliseconds']['int8']} | {' | '.join(faster)} |"
    yield "\n| format | stream | root mean square | largest | least cosine |\n|---|---|---:|---:|---:|"
    streams = [row for row in rows if row["kind"] == "stream"]
    for name, stream in dict.fromkeys((row["format"], row["stream"]) for row in streams):
        own = [row for row in streams if (row["format"], row["stream"]) == (name, stream)]
        worst = [max(row[key] for row in own) for key in ("root_mean_square", "largest")]
        yield f"| {name} | {stream} | {worst[0]} | {worst[1]} | {min(row['least_cosine'] for row in own)} |"
    scores = {(row["format"], row["seed"]): 100 * row["sick"] for row in rows if row["kind"] == "student"}
    seeds = [seed for seed in SEEDS if {(name, seed) for name in ("bfloat16", "int8")} <= scores.keys()]
    off = [scores["int8", seed] - scores["bfloat16", seed] for seed in seeds]
    yield f"\nSICK, int8 minus bfloat16, seed by seed: {', '.join(f'{x:+.2f}' for x in off)}"
    if len(off) > 1:
        mean, error = statistics.fmean(off), statistics.stdev(off) / len(off) ** 0.5
        half = float(stats.t.ppf(0.975, len(off) - 1)) * error
        yield f"Mean {mean:+.2f}, 95 % interval {mean - half:+.2f} to {mean + half:+.2f} (t, {len(off)} seeds)"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true", help="measure products and forwards")
    parser.add_argument("--streams", action="store_true", help="compare streams")
    parser.add_argument("--students", action="store_true", help="train and score students")
    parser.add_argument("--data", type=Path, help="folder with SICK and SQuAD")
    parser.add_argument("--work", type=Path, help="folder for students")
    parser.add_argument("--text", default="installed-docs", help="source that students are trained on")
    parser.add_argument("--table", action="store_true", help="print the rows as tables")
    arguments = parser.parse_args()
    if arguments.table:
        print("\n".join(table()))
        return
    if (problem := int8_problem()) is not None:
        parser.error(f"nothing to measure: {problem}")
    if (arguments.streams or arguments.students) and arguments.data is None:
        parser.error("--streams and --students need --data")
    if arguments.students and arguments.work is None:
        parser.error("--students needs --work")
    made_with = {"commit": git_commit(), "hardware": hardware(), "versions": versions()}
    found: list[Iterator[dict[str, Any]]] = [
        *([measure_speed()] if arguments.speed else []),
        *([measure_streams(arguments.data)] if arguments.streams else []),
        *([measure_students(arguments.data, arguments.work, arguments.text)] if arguments.students else []),
    ]
    if arguments.speed or arguments.streams:
        anew = {*(("product", "forward") if arguments.speed else ()), *(("stream",) if arguments.streams else ())}
        kept = [row for row in read_rows(RESULTS) if row["kind"] not in anew]
        RESULTS.unlink(missing_ok=True)
        for row in kept:
            add_row(row, RESULTS)
    for rows in found:
        for row in rows:
            add_row(row | made_with, RESULTS)


if __name__ == "__main__":
    main()
