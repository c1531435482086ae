"""Students with fewer pieces in their vocabulary: what a cut costs with training and without it.

    python benchmarks/trimmed_students.py --data DATA --work runs/trimmed
    python benchmarks/trimmed_students.py --table

all-MiniLM-L6-v2 has 30,522 pieces. Its vocabulary is cut to those that Wikipedia (`wikipedia-en` below DATA) uses most.
Each vocabulary has these models:

- `teacher`: all six layers, which `limbeck trim` cut and nobody trained;
- `copied`: three of these layers, which nobody trained;
- `vectors`: the student of a recipe with `vocabulary: {pieces: N}`, which learns sentence vectors from the uncut
  teacher;
- `vectors and layers`: the quickstart's student of the cut teacher. Both read the same tokens, so it learns hidden
  states too.

Students read what those of `own_figures.py` read: articles and everyday sentences. Scores are Spearman on SICK's test
split and MRR@10 on the articles of SQuAD's `v1.1-dev.json`, in percent, with 95 % intervals over rows. A *loss* is the
uncut model's score less that of the cut one, with an interval of paired rows. Tokens of a text are those of SQuAD's
paragraphs. Milliseconds are of a text of so many tokens, in batches; the uncut teacher took turns with each model, and
its milliseconds are in the same row.

A row is added as soon as it is measured; a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from embedding_ablation import TEACHER, add_row, find, read_rows
from harness import made_with, table
from own_figures import SENTENCES, sentence_stage, write_text

RESULTS = Path(__file__).parent / "results" / "trimmed_students.jsonl"
SEED = 1
STEPS = 340
"""Steps of 64 sentences, as many as the quickstart has."""
UNCUT = 30_522
PIECES = (UNCUT, 12_000, 8_000, 16_000)
SICK = "sick_cosine"
SQUAD = "squad_retrieval"
LENGTHS = {SICK: 256, SQUAD: 512}
"""Most tokens that a task reads of a text; a model's folder may say fewer."""
CUTOFF = 10
"""Ranks beyond this one count nothing in MRR@10."""
RESAMPLED = 1_000
TEXTS_AT_ONCE = 8
"""Texts of a batch whose time is measured."""
SECONDS = 20.0
"""Seconds of the measurement of time, for a model and the teacher together."""
FLOATS_NAME = "model.safetensors"
INT8_NAME = "onnx/model_quantized.onnx"


@dataclass(frozen=True)
class Making:
    """A way to make a model with a vocabulary of some size.

    Args:
        layers: The teacher's layers that it has; None for all, as the teacher is.
        method: The method that trains it; None for no training.
        cuts_itself: Whether the student cuts its vocabulary, so that its teacher reads the whole one.
    """

    layers: tuple[int, ...] | None = None
    method: Mapping[str, Any] | None = None
    cuts_itself: bool = False


QUICKSTART = {**SENTENCES, "layer_mapping": {1: 1, 2: 3}}
MAKINGS = {
    "teacher": Making(),
    "copied 1, 3, 6": Making(layers=(1, 3, 6)),
    "copied 1, 2, 6": Making(layers=(1, 2, 6)),
    "vectors": Making(
        layers=(1, 3, 6),
        method={"name": "sentence_embedding", "pooled_weight": 1.0, "hidden_weight": 0.0},
        cuts_itself=True,
    ),
    "vectors and layers": Making(layers=(1, 3, 6), method=QUICKSTART),
}
LABELS = {
    "teacher": "6 layers, not trained",
    "copied 1, 3, 6": "layers 1, 3, 6, not trained",
    "copied 1, 2, 6": "layers 1, 2, 6, not trained",
    "vectors": "3 layers, vectors",
    "vectors and layers": "3 layers, vectors and layers",
}
"""The names of makings in tables."""


@dataclass(frozen=True)
class Setting:
    """What all students share.

    Args:
        data: Folder with wikipedia-en, tatoeba, SICK and SQuAD.
        work: Folder for models.
        steps: Steps of a training.
    """

    data: Path
    work: Path
    steps: int

    @property
    def counted(self) -> str:
        """The text on which pieces are counted."""
        return str(find(self.data, "wikipedia-en"))

    def teacher(self, pieces: int) -> str:
        """Return the teacher with so many pieces, and cut it if it is not there yet."""
        import limbeck

        if pieces == UNCUT:
            return TEACHER
        folder = self.work / f"teacher-{pieces}"
        if not folder.is_dir():
            limbeck.trim(TEACHER, self.counted, pieces=pieces, output=folder)
        return str(folder)

    def make(self, making: Making, pieces: int, output: Path) -> str:
        """Make a model and return its folder."""
        import limbeck

        if making.layers is None:
            return self.teacher(pieces)
        student: dict[str, Any] = {
            "shape": len(making.layers),
            "initialise": {"layers": list(making.layers), "embeddings": "copied"},
            "dropout": 0.0,
        }
        teacher = TEACHER
        if not making.cuts_itself:
            teacher = self.teacher(pieces)
        elif pieces != UNCUT:
            student["vocabulary"] = {"pieces": pieces, "count": [self.counted]}
        recipe: dict[str, Any] = {
            "output": str(output),
            "seed": SEED,
            "teacher": {"model": teacher},
            "student": student,
            "stages": [],
            "evaluation": {"enabled": False},
        }
        if making.method is not None:
            recipe["corpus"] = {"sources": write_text(self.data, self.work / "text"), "held_out": 0.03}
            recipe["stages"] = [sentence_stage(making.method, steps=self.steps)]
        return str(limbeck.distill(recipe, overwrite=True).student)


@dataclass(frozen=True)
class Answers:
    """What a model answers to the rows of both tasks.

    Args:
        cosines: Cosines of SICK's pairs, `[pairs]`.
        labels: Relatedness of these pairs as people see it, `[pairs]`.
        reciprocal_ranks: For each question of SQuAD one over the rank of its paragraph, or 0 beyond rank 10.
    """

    cosines: NDArray[np.float64]
    labels: NDArray[np.float64]
    reciprocal_ranks: NDArray[np.float64]

    @classmethod
    def read(cls, path: Path) -> Answers:
        """Read the answers that were written to a file."""
        with np.load(path) as file:
            return cls(file["cosines"], file["labels"], file["reciprocal_ranks"])

    def write(self, path: Path) -> None:
        """Write the answers to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, cosines=self.cosines, labels=self.labels, reciprocal_ranks=self.reciprocal_ranks)

    def sick(self, rows: NDArray[np.int64] | None = None) -> float:
        """Return Spearman's correlation of cosines and labels in percent, of all pairs or of those of some numbers."""
        if rows is None:
            rows = np.arange(len(self.labels))
        return 100 * float(spearmanr(self.cosines[rows], self.labels[rows]).statistic)

    def squad(self, rows: NDArray[np.int64] | None = None) -> float:
        """Return MRR@10 in percent, of all questions or of those of some numbers."""
        if rows is None:
            rows = np.arange(len(self.reciprocal_ranks))
        return 100 * float(self.reciprocal_ranks[rows].mean())


def answers_of(model: str, data: Path) -> Answers:
    """Read both tasks with a model."""
    from limbeck.evaluation.evaluators.document_search import Search
    from limbeck.evaluation.evaluators.rows import load_rows
    from limbeck.evaluation.evaluators.sentence_vectors import TextReading, read_texts
    from limbeck.evaluation.retrieval import ROLES

    pairs = load_rows(SICK, data, training=False).splits["test"]
    firsts = [row.text for row in pairs]
    seconds = [row.pair for row in pairs]
    reading = TextReading(roles=None, length=LENGTHS[SICK], pooling=None, normalize=True)
    cosines = read_texts(model, firsts, seconds, reading).cosines().numpy().astype(np.float64)
    labels = np.array([float(row.label) for row in pairs])

    search = Search.of(load_rows(SQUAD, data, training=False).splits["validation"], SQUAD)
    reading = TextReading(roles=ROLES, length=LENGTHS[SQUAD], pooling=None, normalize=True)
    vectors = read_texts(model, search.queries, search.documents, reading)
    products = (vectors.first @ vectors.second.T).numpy()
    reciprocal_ranks = np.zeros(len(search.queries))
    for number, relevance in enumerate(search.relevance):
        # Several paragraphs may answer a question that was asked twice: the best one counts.
        best = products[number, list(relevance)].max()
        rank = int((products[number] >= best).sum())
        if rank <= CUTOFF:
            reciprocal_ranks[number] = 1 / rank
    return Answers(cosines, labels, reciprocal_ranks)


def scores_of(model: str, setting: Setting, name: str, uncut: Path | None) -> dict[str, Any]:
    """Score a model, and compare it with the uncut one if there is one.

    Args:
        model: The model.
        setting: Where the data is.
        name: Of the files with the scores.
        uncut: The answers of the uncut model; None of that model itself.
    """
    import limbeck

    output = setting.work / "scores" / name
    result = limbeck.evaluate(model, tasks=[SICK, SQUAD], data=setting.data, output=output)
    [evaluated] = result.evaluation.models
    answers = answers_of(model, setting.data)
    answers.write(setting.work / "answers" / f"{name}.npz")
    compared = None if uncut is None else Answers.read(uncut)

    scores: dict[str, Any] = {}
    generator = np.random.default_rng(SEED)
    measures = {
        "sick": (Answers.sick, SICK, "spearman", len(answers.labels)),
        "squad": (Answers.squad, SQUAD, "mrr_at_10", len(answers.reciprocal_ranks)),
    }
    for measure, (score, task, metric, count) in measures.items():
        score_of_evaluation = float(evaluated.columns[task].metrics[metric].mean or 0.0)
        # The answers are those of the evaluation, or its intervals would be of something else.
        assert abs(score(answers) - score_of_evaluation) < 0.05, (measure, score(answers), score_of_evaluation)
        draws = [generator.integers(count, size=count) for _ in range(RESAMPLED)]
        scores[measure] = round(score_of_evaluation, 3)
        scores[f"{measure}_interval"] = ends([score(answers, rows) for rows in draws])
        if compared is not None:
            scores[f"{measure}_loss"] = round(score(compared) - score(answers), 3)
            losses = [score(compared, rows) - score(answers, rows) for rows in draws]
            scores[f"{measure}_loss_interval"] = ends(losses)
    return scores


def ends(values: Sequence[float]) -> list[float]:
    """Return the ends of the middle 95 % of resampled values."""
    low, high = np.percentile(values, [2.5, 97.5])
    return [round(float(low), 3), round(float(high), 3)]


def sizes_of(model: str, output: Path) -> dict[str, Any]:
    """Return parameters, and megabytes of the weights in float32 and of an export in int8."""
    import limbeck
    from limbeck.evaluation.costs import count_parameters
    from limbeck.models.loading import load_model
    from limbeck.models.locating import resolve_model

    counts = count_parameters(load_model(model))
    export = limbeck.export(model, "onnx-int8", output=output, overwrite=True, seconds=1.0)
    return {
        "embedding_parameters": counts.embedding,
        "parameters": counts.total,
        "megabytes": round((Path(resolve_model(model)) / FLOATS_NAME).stat().st_size / 1e6, 2),
        "megabytes_int8": round(export.files[INT8_NAME] / 1e6, 2),
    }


def costs_of(model: str, data: Path) -> dict[str, Any]:
    """Return mean tokens of a text, and milliseconds of a text of so many tokens, beside those of the uncut teacher."""
    import torch

    from limbeck.core.timing import stopwatch, take_turns

    texts = paragraphs_of(data)
    cpu = torch.device("cpu")
    lengths = {}
    passes = {}
    with torch.inference_mode():
        for name, place in (("teacher", TEACHER), ("model", model)):
            lengths[name] = mean_tokens(place, texts)
            passes[name] = stopwatch(forward_pass(place, round(lengths[name])), cpu)
        seconds = take_turns(passes, seconds=SECONDS)
    milliseconds = {name: 1e3 * statistics.median(seconds[name]) / TEXTS_AT_ONCE for name in seconds}
    return {
        "tokens_a_text": round(lengths["model"], 1),
        "teacher_tokens_a_text": round(lengths["teacher"], 1),
        "milliseconds_a_text": round(milliseconds["model"], 2),
        "teacher_milliseconds_a_text": round(milliseconds["teacher"], 2),
    }


def paragraphs_of(data: Path) -> list[str]:
    """Return the distinct paragraphs of SQuAD."""
    from limbeck.evaluation.evaluators.rows import load_rows

    rows = load_rows(SQUAD, data, training=False).splits["validation"]
    return list(dict.fromkeys(row.pair for row in rows if row.pair))


def mean_tokens(model: str, texts: Sequence[str]) -> float:
    """Return the mean number of tokens of a text, special ones among them, without a limit of length."""
    from limbeck.models.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(model)
    return statistics.fmean(len(tokenizer(text, truncation=False, verbose=False)["input_ids"]) for text in texts)


def forward_pass(model: str, length: int) -> Any:
    """Return a callable that runs a model on a batch of random tokens.

    Args:
        model: The model.
        length: Tokens of each text; fewer where the model takes fewer.
    """
    import torch

    from limbeck.models.inference import encoder_of, longest_input
    from limbeck.models.loading import load_model

    encoder = encoder_of(load_model(model)).eval()
    length = min(length, longest_input(encoder) or length)
    generator = torch.Generator().manual_seed(SEED)
    token_ids = torch.randint(0, encoder.config.vocab_size, (TEXTS_AT_ONCE, length), generator=generator)
    return lambda: encoder(input_ids=token_ids, attention_mask=torch.ones_like(token_ids))


def measure(setting: Setting, minutes: float) -> None:
    """Make and score the models that have no row, until the minutes are over."""
    began = time.monotonic()
    measured = {(row["model"], row["pieces"]) for row in read_rows(RESULTS)}
    for pieces in PIECES:
        for name, making in MAKINGS.items():
            if (name, pieces) in measured:
                continue
            if time.monotonic() - began > 60 * minutes:
                print("The time is over; the same command goes on.", flush=True)
                return
            place = f"{name.replace(', ', '-').replace(' ', '-')}-{pieces}"
            model = setting.make(making, pieces, setting.work / place)
            uncut = None
            if pieces != UNCUT:
                uncut = setting.work / "answers" / f"{place.removesuffix(str(pieces))}{UNCUT}.npz"
            row = {
                "model": name,
                "pieces": pieces,
                "steps": setting.steps if making.method is not None else 0,
                **scores_of(model, setting, place, uncut),
                **sizes_of(model, setting.work / f"{place}-int8"),
                **costs_of(model, setting.data),
                "seed": SEED,
            }
            add_row(row | made_with(), RESULTS)


def sorted_rows() -> list[dict[str, Any]]:
    """Return the rows, those of a making together, its largest vocabulary first."""
    order = list(MAKINGS)
    return sorted(read_rows(RESULTS), key=lambda row: (order.index(row["model"]), -row["pieces"]))


def tables() -> Iterator[str]:
    """Go through the two tables: scores with what the cut loses, and costs."""
    rows = sorted_rows()
    lines = []
    for row in rows:
        line = [LABELS[row["model"]], f"{row['pieces']:,}"]
        for measure in ("sick", "squad"):
            line.append(f"{row[measure]:.1f} ({between(row[f'{measure}_interval'])})")
            loss = row.get(f"{measure}_loss")
            if loss is None:
                line.append("–")
            else:
                line.append(f"{loss:.1f} ({between(row[f'{measure}_loss_interval'])})")
        lines.append(line)
    yield table(["model", "pieces", "SICK", "SICK lost", "MRR@10", "MRR@10 lost"], lines)

    lines = []
    for row in rows:
        lines.append(
            [
                LABELS[row["model"]],
                f"{row['pieces']:,}",
                f"{row['parameters'] / 1e6:.1f} M",
                f"{row['megabytes']:.1f}",
                f"{row['megabytes_int8']:.1f}",
                f"{row['tokens_a_text']:.0f}",
                f"{row['milliseconds_a_text']:.1f}",
                f"{row['teacher_milliseconds_a_text'] / row['milliseconds_a_text']:.2f}",
            ]
        )
    costs = ["parameters", "MB, float32", "MB, int8", "tokens a text", "ms a text", "times faster than the teacher"]
    yield table(["model", "pieces", *costs], lines)


def between(interval: Sequence[float]) -> str:
    """Return an interval in words."""
    low, high = interval
    return f"{low:.1f} to {high:.1f}"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with wikipedia-en, tatoeba, SICK and SQuAD")
    parser.add_argument("--work", type=Path, help="folder for models")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin no model after so many")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a training")
    parser.add_argument("--table", action="store_true", help="print the tables of the rows")
    arguments = parser.parse_args()
    if arguments.table:
        print("\n\n".join(tables()))
    elif arguments.data is None or arguments.work is None:
        parser.error("a measurement needs --data and --work")
    else:
        measure(Setting(arguments.data, arguments.work, arguments.steps), arguments.minutes)


if __name__ == "__main__":
    main()
