"""Students of one embedding model by three tools, for the same minutes, from the same start and on the same text.

    pip install --no-deps --target PEERS model2vec skeletoken       # its own pins would change other packages
    PYTHONPATH=PEERS python benchmarks/embedding_students.py --data DATA --work runs/embedding --minutes 15
    python benchmarks/embedding_students.py --table

all-MiniLM-L6-v2 (6x384) becomes 3x384 and 3x192, on Wikipedia (`wikipedia-en` below DATA) and one fifth questions
of SQuAD 1.1's part `v1.1-train.json`. `--minutes` are of training; probes say how many steps they are.
Tools can be measured side by side, each with one thread (OMP_NUM_THREADS=1) and twice the minutes.

- limbeck: `aligned_embedding`, with and without hidden states below, and at the teacher's width `sentence_embedding`.
- sentence-transformers: `EmbedDistillLoss` on the teacher's vectors, which are computed before within the same minutes;
  at another width with `projection_dim`. The loss keeps that projection to itself; here it is put behind the student,
  which is what it was trained for, and the student without it is scored too. Rates: limbeck's, and a tenth of it.
- model2vec: its static model of the same teacher, by its defaults and at the teacher's full width; seconds, no text.

All models are loaded and run by sentence-transformers. Scores: Spearman on SICK's test split; SQuAD's development
questions among its paragraphs by nDCG@10, MRR@10 and recall@10, by the student alone and with the teacher's vectors of
the paragraphs, where widths agree; milliseconds of one sentence alone and of one in a batch of 32.
A row is added as soon as it is measured; a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import torch
from torch import Tensor

from embedding_ablation import TEACHER, add_row, find, read_rows, read_squad, read_table, spearman
from harness import made_with

RESULTS = Path(__file__).parent / "results" / "embedding_students.jsonl"
SEEDS = (1, 2, 3)
SHAPES: dict[str, dict[str, int]] = {
    "3x192": {"layers": 3, "hidden": 192, "heads": 12},
    "3x384": {"layers": 3, "hidden": 384, "heads": 12},
}
TEACHER_WIDTH = 384
START = "activations"
"""By which narrower students are cut from the teacher; rows without it are of students cut by its weights."""
BATCH, RATE, LENGTH, QUESTIONS = 64, 1e-3, 64, 0.2
"""Rows of a step, peak learning rate, most tokens of a row, share of questions."""
PROBES = (30, 30, 150)
"""Steps of three runs: the first loads and compiles, the others tell the rate of training and what a run takes once."""
LAYERS = {"hidden_weight": 30.0, "layer_mapping": {1: 1, 2: 3}, "layer_weight": 9.0}
LIMBECK: dict[str, dict[str, Any]] = {
    "limbeck: vectors": {"name": "aligned_embedding"},
    "limbeck: vectors and layers": {"name": "aligned_embedding", **LAYERS},
    "limbeck: sentence_embedding": {"name": "sentence_embedding", "pooled_weight": 1.0, **LAYERS},
}
PEERS = {"sentence-transformers": RATE, "sentence-transformers, a tenth of the rate": RATE / 10}
STATIC: dict[str, dict[str, Any]] = {"model2vec": {}, "model2vec, full width": {"pca_dims": None}}


def cells() -> Iterator[tuple[str, str, int]]:
    """Go through shape, tool and seed, the first seed of everything before the second."""
    yield "6x384", "teacher", 0
    for tool in STATIC:
        yield "static", tool, 0
    for seed in SEEDS:
        for shape in SHAPES:
            for tool in (*LIMBECK, *PEERS):
                # At another width its map is not kept: what is saved would lie in no space of the teacher.
                if tool != "limbeck: sentence_embedding" or shape == "3x384":
                    yield shape, tool, seed


# Text and starts, the same for all.


class Inputs:
    """What students are made from.

    Args:
        data: Folder with `wikipedia-en`, SICK and SQuAD.
        work: Where models and files are made.
    """

    def __init__(self, data: Path, work: Path) -> None:
        from limbeck.models.locating import resolve_model

        self.work, self.wikipedia = work, find(data, "wikipedia-en")
        self.questions = work / "questions.txt"
        work.mkdir(parents=True, exist_ok=True)
        asked, _, _ = read_squad(find(data, "v1.1-train.json"))
        self.questions.write_text("\n".join(" ".join(text.split()) for text in asked) + "\n", encoding="utf-8")
        self.teacher = str(resolve_model(TEACHER))

    def recipe(self, method: dict[str, Any], shape: str, seed: int, output: Path, **training: Any) -> dict[str, Any]:
        """Make limbeck's recipe of a student."""
        stage: dict[str, Any] = {
            "method": method,
            "text": {"unit": "sentence", "length": LENGTH},
            "freeze": ["embeddings"] if SHAPES[shape]["hidden"] == TEACHER_WIDTH else [],
            "training": {
                "per_device_train_batch_size": BATCH,
                "learning_rate": RATE,
                "warmup_steps": 0.05,
                "weight_decay": 0.01,
                "eval_strategy": "no",
                "save_strategy": "no",
                **training,
            },
        }
        return {
            "output": str(output),
            "seed": seed,
            "teacher": {"model": TEACHER},
            "student": {
                "shape": SHAPES[shape],
                "initialise": {"layers": "ends", "narrow_by": START},
                "dropout": 0.0,
            },
            "corpus": {
                "sources": [str(self.wikipedia), str(self.questions)],
                "mix": {"weights": [1 - QUESTIONS, QUESTIONS]},
                "held_out": 0.0,
            },
            "stages": [stage],
            "evaluation": {"enabled": False},
        }

    def start(self, shape: str, seed: int) -> Path:
        """Make the student that no tool has trained yet: a step of limbeck at a rate that changes no weight."""
        import limbeck

        output = self.work / f"start-{shape}-{seed}"
        method = {"name": "sentence_embedding"}
        return limbeck.distill(
            self.recipe(method, shape, seed, output, max_steps=1, learning_rate=1e-30), resume=True
        ).student

    def sentences(self, count: int, seed: int) -> list[str]:
        """Draw the text of a peer: Wikipedia's sentences, and questions for their share."""
        draw = random.Random(seed)
        asked = self.questions.read_text(encoding="utf-8").splitlines()
        draw.shuffle(asked)
        chosen = [asked[number % len(asked)] for number in range(round(count * QUESTIONS))]
        chosen += islice(self._wikipedia(draw), count - len(chosen))
        draw.shuffle(chosen)
        return chosen

    def _wikipedia(self, draw: random.Random) -> Iterator[str]:
        from limbeck.corpus.text.pieces import UNITS

        files = sorted(self.wikipedia.glob("*.txt"))
        found = [text for file in files for text in UNITS["sentence"](file.read_text(encoding="utf-8"))]
        while True:
            draw.shuffle(found)
            yield from found


# Students by each tool: a folder that sentence-transformers loads, and facts of the row.


def by_limbeck(inputs: Inputs, shape: str, tool: str, seed: int, minutes: float) -> tuple[Path, dict[str, Any]]:
    """Distil by limbeck."""
    import limbeck

    method, output = LIMBECK[tool], inputs.work / "limbeck"
    probes = [
        limbeck.distill(inputs.recipe(method, shape, seed, output, max_steps=steps), overwrite=True) for steps in PROBES
    ]
    steps = steps_of(minutes, *(probe.record["stages"][0]["seconds"] for probe in probes[1:]))
    made = limbeck.distill(inputs.recipe(method, shape, seed, output, max_steps=steps), overwrite=True)
    stage = made.record["stages"][0]
    return made.student, {"steps": steps, "seconds": stage["seconds"], "precision": stage["precision"]}


def by_sentence_transformers(
    inputs: Inputs, shape: str, tool: str, seed: int, minutes: float
) -> tuple[Path, dict[str, Any]]:
    """Distil by sentence-transformers: the teacher's vectors first, then its trainer, within the same minutes."""
    from sentence_transformers import SentenceTransformer

    from limbeck.core.devices import bf16_is_fast

    start, teacher = str(inputs.start(shape, seed)), SentenceTransformer(inputs.teacher, device="cpu")
    teacher.max_seq_length = LENGTH
    probes = [inputs.sentences(steps * BATCH, seed) for steps in PROBES]
    seconds = [train_peer(start, teacher, texts, seed, PEERS[tool])[1] for texts in probes]
    steps = steps_of(minutes, *seconds[1:])
    student, taken = train_peer(start, teacher, inputs.sentences(steps * BATCH, seed), seed, PEERS[tool])
    output = inputs.work / "sentence-transformers"
    shutil.rmtree(output, ignore_errors=True)
    student.save(str(output))
    # limbeck chooses its precision by the same rule.
    precision = "bfloat16" if bf16_is_fast() else "float32"
    return output, {"steps": steps, "seconds": round(taken, 1), "precision": precision}


def train_peer(start: str, teacher: Any, texts: Sequence[str], seed: int, rate: float) -> tuple[Any, float]:
    """Train a student on some texts by `EmbedDistillLoss`; return it with its projection, and the seconds."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import EmbedDistillLoss
    from sentence_transformers.models import Dense, Normalize

    from limbeck.core.devices import bf16_is_fast

    torch.manual_seed(seed)
    student = SentenceTransformer(start, device="cpu")
    student.max_seq_length = LENGTH
    width, wanted = student.get_sentence_embedding_dimension(), teacher.get_sentence_embedding_dimension()
    began = time.monotonic()
    labels = teacher.encode(list(texts), batch_size=BATCH, show_progress_bar=False)
    rows = Dataset.from_dict({"sentence": list(texts), "label": labels})
    loss = EmbedDistillLoss(student, projection_dim=wanted if width != wanted else None)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=f"{start}-trainer", max_steps=len(texts) // BATCH, per_device_train_batch_size=BATCH,
        learning_rate=rate, warmup_steps=0.05, weight_decay=0.01, bf16=bf16_is_fast(), use_cpu=True, seed=seed,
        save_strategy="no", report_to="none", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    SentenceTransformerTrainer(model=student, args=arguments, train_dataset=rows, loss=loss).train()
    seconds = time.monotonic() - began
    if loss.projection is not None:
        dense = Dense(width, wanted, bias=loss.projection.bias is not None, activation_function=torch.nn.Identity())
        dense.linear.load_state_dict(loss.projection.state_dict())
        student = SentenceTransformer(modules=[*student, dense, Normalize()], device="cpu")
    return student, seconds


def by_model2vec(inputs: Inputs, tool: str) -> tuple[Path, dict[str, Any]]:
    """Make model2vec's static model of the teacher."""
    from model2vec.distill import distill
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding

    output, began = inputs.work / "model2vec", time.monotonic()
    shutil.rmtree(output, ignore_errors=True)
    distill(model_name=inputs.teacher, **STATIC[tool]).save_pretrained(str(output / "static"))
    seconds = time.monotonic() - began
    static = StaticEmbedding.from_model2vec(str(output / "static"))
    SentenceTransformer(modules=[static], device="cpu").save(str(output / "model"))
    return output / "model", {"seconds": round(seconds, 1)}


def steps_of(minutes: float, first: float, second: float) -> int:
    """Return how many steps fit into the minutes, by the seconds of the probes."""
    _, short, long = PROBES
    each = max((second - first) / (long - short), 1e-3)
    return max(short + round((60 * minutes - first) / each), short)


# Scores.


class Scores:
    """Scores of models that sentence-transformers loads, and of their queries among the teacher's documents.

    Args:
        data: Folder with SICK and SQuAD.
        teacher: The teacher's folder.
    """

    def __init__(self, data: Path, teacher: str) -> None:
        self._pairs = read_table(find(data, "SICK_test_annotated.txt"))
        self.questions, self.paragraphs, self._of = read_squad(find(data, "v1.1-dev.json"))
        self._documents = self._encode(self._load(teacher), self.paragraphs)

    def of(self, folder: str, *, length: int = 256) -> dict[str, Any]:
        """Score a model."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Transformer

        model = self._load(folder)
        if isinstance(model[0], Transformer):  # A static model has no length.
            model.max_seq_length = length
        left, right = (self._encode(model, [row[f"sentence_{side}"] for row in self._pairs]) for side in "AB")
        questions, paragraphs = self._encode(model, self.questions), self._encode(model, self.paragraphs)
        scores: dict[str, Any] = {
            "width": questions.shape[1],
            "megabytes": round(sum(p.numel() * p.element_size() for p in model.parameters()) / 1e6, 1),
            "sick": spearman((left * right).sum(-1), [float(row["relatedness_score"]) for row in self._pairs]),
            "symmetric": retrieval(questions, paragraphs, self._of),
        }
        if questions.shape[1] == self._documents.shape[1]:
            scores["asymmetric"] = retrieval(questions, self._documents, self._of)
        if dense := [place for place, module in enumerate(model) if type(module).__name__ == "Dense"]:
            pooled = SentenceTransformer(modules=list(model)[: dense[0]], device="cpu")
            cut = [self._encode(pooled, texts) for texts in (self.questions, self.paragraphs)]
            scores["without_map"] = retrieval(*cut, self._of)
        return scores | self._time(model)

    def _time(self, model: Any) -> dict[str, float]:
        texts = [row["sentence_A"] for row in self._pairs[:512]]
        return {
            "ms_alone": median_ms(lambda: [model.encode(text) for text in texts[:64]], 64),
            "ms_in_batches": median_ms(lambda: model.encode(texts, batch_size=32), len(texts)),
        }

    @staticmethod
    def _load(folder: str) -> Any:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(folder, device="cpu")

    @staticmethod
    def _encode(model: Any, texts: Sequence[str]) -> Tensor:
        vectors = model.encode(list(texts), batch_size=64, convert_to_tensor=True, normalize_embeddings=True)
        return vectors.float().cpu()


def retrieval(questions: Tensor, documents: Tensor, of: Sequence[int]) -> dict[str, float]:
    """nDCG, MRR and recall at 10 of each question's one document; ties stand before it."""
    similar = questions @ documents.T
    own = similar[torch.arange(len(of)), torch.tensor(of)]
    ranks = [rank for rank in (similar >= own[:, None]).sum(1).tolist() if rank <= 10]
    sums = {
        "ndcg_at_10": sum(1 / math.log2(rank + 1) for rank in ranks),
        "mrr_at_10": sum(1 / rank for rank in ranks),
        "recall_at_10": float(len(ranks)),
    }
    return {name: round(total / len(of), 4) for name, total in sums.items()}


def median_ms(run: Callable[[], Any], texts: int, rounds: int = 5) -> float:
    """Return the median milliseconds of a text over a few rounds, the first left out."""
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return round(1000 * statistics.median(times[1:]) / texts, 3)


# The measurement.


def measure(arguments: argparse.Namespace) -> None:
    """Measure what is missing, until the hours are over."""

    inputs, began = Inputs(arguments.data, arguments.work), time.monotonic()
    scores = Scores(arguments.data, inputs.teacher)
    libraries = {name: installed_version(name) for name in ("sentence-transformers", "model2vec")}
    machine = made_with()
    machine["versions"] |= libraries
    done = {(row["shape"], row["tool"], row["seed"], row["minutes"], row.get("start")) for row in read_rows(RESULTS)}
    for shape, tool, seed in cells():
        minutes = arguments.minutes if seed else 0.0
        wanted = not arguments.only or any(
            part in (shape, tool, f"{shape} {tool}") for part in arguments.only.split(";")
        )
        start = START if shape in SHAPES and SHAPES[shape]["hidden"] < TEACHER_WIDTH else None
        if (shape, tool, seed, minutes, start) in done or not wanted or seed > arguments.seeds:
            continue
        if arguments.hours and time.monotonic() - began > 3600 * arguments.hours:
            print("The time is over; the same command goes on.", flush=True)
            return
        facts: dict[str, Any] = {}
        folder = Path(inputs.teacher)
        if tool in LIMBECK:
            folder, facts = by_limbeck(inputs, shape, tool, seed, minutes)
        elif tool in PEERS:
            folder, facts = by_sentence_transformers(inputs, shape, tool, seed, minutes)
        elif tool in STATIC:
            folder, facts = by_model2vec(inputs, tool)
        row = {
            "shape": shape,
            "tool": tool,
            "seed": seed,
            "minutes": minutes,
            "start": start,
            **facts,
            **scores.of(str(folder)),
        }
        add_row(row | machine, RESULTS)


def installed_version(name: str) -> str | None:
    """Return the version of a package, or `None` where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "s": lambda row: row.get("seconds"),
    "SICK": lambda row: row["sick"],
    "MRR@10": lambda row: row["symmetric"]["mrr_at_10"],
    "nDCG@10": lambda row: row["symmetric"]["ndcg_at_10"],
    "MRR@10, teacher's documents": lambda row: row.get("asymmetric", {}).get("mrr_at_10"),
    "ms alone": lambda row: row["ms_alone"],
    "ms in batches": lambda row: row["ms_in_batches"],
}


def means() -> Iterator[tuple[str, str, int, dict[str, float | None]]]:
    """Go through shapes and tools with the means of their rows."""
    rows = read_rows(RESULTS)
    keys = [(row["shape"], row["tool"], row["minutes"], row.get("start")) for row in rows]
    for shape, tool, minutes, start in dict.fromkeys(keys):
        runs = [row for row, key in zip(rows, keys, strict=True) if key == (shape, tool, minutes, start)]
        found: dict[str, float | None] = {}
        for name, of in COLUMNS.items():
            known = [value for run in runs if (value := of(run)) is not None]
            found[name] = statistics.fmean(known) if known else None
        parts = [tool, f"{minutes:g} min" if minutes else "", f"by {start}" if start else ""]
        yield shape, ", ".join(part for part in parts if part), len(runs), found


def table() -> Iterator[str]:
    """Lay the rows out, means over seeds."""
    yield f"| student | made by | seeds | {' | '.join(COLUMNS)} |"
    yield f"|---|---|---:|{'---:|' * len(COLUMNS)}"
    for shape, tool, seeds, found in means():
        written = [_written(value) for value in found.values()]
        yield f"| {shape} | {tool} | {seeds} | {' | '.join(written)} |"


def _written(value: float | None) -> str:
    """Write a figure with as many digits as it has."""
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with wikipedia-en, SICK and SQuAD")
    parser.add_argument("--work", type=Path, help="folder for models")
    parser.add_argument("--minutes", type=float, default=15.0, help="of training, for every student")
    parser.add_argument("--only", help="shapes, tools or both (`3x192 sentence-transformers`), between semicolons")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    parser.add_argument("--hours", type=float, help="begin no student after so many")
    parser.add_argument("--table", action="store_true", help="print the rows as a table")
    arguments = parser.parse_args()
    if arguments.table:
        print("\n".join(table()))
    elif arguments.data is None or arguments.work is None:
        parser.error("a measurement needs --data and --work")
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
