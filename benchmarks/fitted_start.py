"""Students that are fitted to their teacher in closed form and not trained: which text, which ridge, how much text.

    python benchmarks/fitted_start.py --data DATA --work runs/fitted
    python benchmarks/fitted_start.py --table

all-MiniLM-L6-v2 (6x384) becomes 3x384. Text is Wikipedia (`wikipedia-en` below DATA), everyday sentences
(`tatoeba/english.txt`), equal parts of both, or docstrings of installed packages. Settings are compared by Spearman on
SICK's training and trial splits; the test split is only reported. A row is added as soon as it is measured; a stopped
run goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from embedding_ablation import TEACHER, add_row, find, read_rows, read_table, spearman
from harness import made_with, table

RESULTS = Path(__file__).parent / "results" / "fitted_start.jsonl"
SEED = 1
SENTENCES = 40_000
"""Most sentences of a kind of text, in the order of their files; a fit takes rows from all parts of them."""
CHOICE_FILES = ("SICK_train.txt", "SICK_trial.txt")
"""Splits that settings are compared by."""
REPORTED_FILE = "SICK_test_annotated.txt"


@dataclass(frozen=True)
class Setting:
    """A start.

    Args:
        text: The kind of text; None fits nothing.
        layers: The teacher's layers that are copied.
        ridge: As in a recipe.
        tokens: As in a recipe.
        pooled: As in a recipe.
    """

    text: str | None
    layers: tuple[int, ...] = (1, 2, 6)
    ridge: float | None = None
    tokens: int | None = None
    pooled: float | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells settings apart, as rows hold it."""
        return (self.text, list(self.layers), self.ridge, self.tokens, self.pooled)


def fitted(text: str, ridge: float, *, tokens: int = 100_000, pooled: float = 0.0, layers: Sequence[int] = (1, 2, 6)):
    """A setting with a fit."""
    return Setting(text, tuple(layers), ridge, tokens, pooled)


SETTINGS = (
    Setting(None, (1, 2, 3)),
    Setting(None, (1, 3, 6)),
    Setting(None, (1, 2, 6)),
    fitted("everyday", 0.01),
    fitted("wikipedia", 0.01),
    fitted("both", 0.01),
    fitted("everyday", 0.1),
    fitted("docstrings", 0.01),
    fitted("both", 0.01, pooled=1.0),
    fitted("both", 0.01, tokens=20_000),
    fitted("docstrings", 1.0),
    fitted("both", 0.1, pooled=1.0),
    fitted("both", 0.01, layers=(1, 3, 6)),
    fitted("everyday", 0.01, pooled=1.0),
    fitted("everyday", 0.01, layers=(1, 3, 6)),
    fitted("everyday", 0.01, tokens=20_000),
    fitted("everyday", 0.001),
)
"""What is measured, in this order."""


class Inputs:
    """Text and pairs of sentences.

    Args:
        data: Folder with `wikipedia-en`, `tatoeba` and SICK.
        work: Where models and files are made.
    """

    def __init__(self, data: Path, work: Path) -> None:
        self._data = data
        self.work = work
        work.mkdir(parents=True, exist_ok=True)
        self.chosen_by = [row for name in CHOICE_FILES for row in read_table(find(data, name))]
        self.reported = read_table(find(data, REPORTED_FILE))

    def sources(self, text: str) -> list[str]:
        """The sources of a kind of text."""
        if text == "docstrings":
            return ["installed-docs"]
        kinds = ("wikipedia", "everyday") if text == "both" else (text,)
        return [str(self._file(kind, SENTENCES // len(kinds))) for kind in kinds]

    def _file(self, kind: str, count: int) -> Path:
        """A file with some sentences of a kind, one document each."""
        path = self.work / f"{kind}-{count}.txt"
        if not path.is_file():
            sentences = islice(self._sentences(kind), count)
            path.write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
        return path

    def _sentences(self, kind: str) -> Iterator[str]:
        """Go through the sentences of a kind: of Wikipedia one in ten, so that many articles are read."""
        from limbeck.corpus.text.pieces import UNITS

        if kind == "everyday":
            yield from find(self._data, "english.txt").read_text(encoding="utf-8").splitlines()
            return
        number = 0
        for file in sorted(find(self._data, "wikipedia-en").glob("*.txt")):
            for sentence in UNITS["sentence"](file.read_text(encoding="utf-8")):
                number += 1
                if number % 10 == 0:
                    yield " ".join(sentence.split())


def make(inputs: Inputs, setting: Setting) -> tuple[Path, dict[str, Any]]:
    """Make a student; return its folder, and what its start was."""
    import limbeck

    start: dict[str, Any] = {"layers": list(setting.layers)}
    corpus = None
    if setting.text is not None:
        start["fit"] = {"tokens": setting.tokens, "ridge": setting.ridge, "pooled": setting.pooled}
        corpus = {"sources": inputs.sources(setting.text), "unit": "sentence", "length": 64}
    began = time.monotonic()
    result = limbeck.distill(
        {
            "output": str(inputs.work / "student"),
            "seed": SEED,
            "teacher": {"model": TEACHER},
            "student": {"shape": len(setting.layers), "initialise": start},
            "corpus": corpus,
            "stages": [],
            "evaluation": {"enabled": False},
        },
        overwrite=True,
    )
    seconds = round(time.monotonic() - began, 1)
    record = result.record
    facts: dict[str, Any] = {"seconds": seconds, "seconds_of_start": record["timings"].get("models")}
    fit = record["student"]["initialisation"].get("fit")
    if fit is not None:
        facts["fit"] = fit
    return Path(result.student), facts


def score(inputs: Inputs, folder: str) -> dict[str, float]:
    """Spearman of a model's cosines with the relatedness of SICK's pairs."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    scores = {}
    for name, pairs in (("sick_train_trial", inputs.chosen_by), ("sick_test", inputs.reported)):
        first = model.encode([row["sentence_A"] for row in pairs], convert_to_tensor=True, normalize_embeddings=True)
        second = model.encode([row["sentence_B"] for row in pairs], convert_to_tensor=True, normalize_embeddings=True)
        scores[name] = spearman((first * second).sum(-1), [float(row["relatedness_score"]) for row in pairs])
    return scores


def measure(data: Path, work: Path, minutes: float) -> None:
    """Measure what is missing, until the minutes are over."""
    from limbeck.models.locating import resolve_model

    inputs = Inputs(data, work)
    machine = made_with()
    rows = read_rows(RESULTS)
    measured = [(row["text"], row["layers"], row["ridge"], row["tokens"], row["pooled"]) for row in rows]
    if not any(row["student"] == "teacher" for row in rows):
        row = {"student": "teacher", **asdict(Setting(None, (1, 2, 3, 4, 5, 6)))}
        add_row(row | score(inputs, str(resolve_model(TEACHER))) | machine, RESULTS)
    began = time.monotonic()
    for setting in SETTINGS:
        if setting.key in measured:
            continue
        if time.monotonic() - began > 60 * minutes:
            print("The time is over; the same command goes on.", flush=True)
            return
        folder, facts = make(inputs, setting)
        row = {"student": "3x384", **asdict(setting), **facts, **score(inputs, str(folder)), "seed": SEED}
        add_row(row | machine, RESULTS)


def rows_of_table() -> Iterator[list[str]]:
    """Go through the rows as a table shows them."""
    for row in read_rows(RESULTS):
        layers = ", ".join(map(str, row["layers"]))
        if row["student"] == "teacher":
            yield ["the teacher", "", "", "", "", f"{row['sick_train_trial']:.3f}", f"{row['sick_test']:.3f}"]
        elif row["text"] is None:
            scores = [f"{row['sick_train_trial']:.3f}", f"{row['sick_test']:.3f}"]
            yield [f"layers {layers} as they are", "", "", "", "", *scores]
        else:
            name = f"layers {layers}, fitted to {row['text']}"
            if row["pooled"]:
                name += f", pooled {row['pooled']:g}"
            fit = row["fit"]
            yield [
                name,
                f"{row['ridge']:g}",
                f"{fit['tokens']:,}",
                f"{fit['error_as_copied']:.3f} to {fit['error']:.3f}",
                f"{row['seconds_of_start']:.0f}",
                f"{row['sick_train_trial']:.3f}",
                f"{row['sick_test']:.3f}",
            ]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with wikipedia-en, tatoeba and SICK")
    parser.add_argument("--work", type=Path, help="folder for models")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin no student after so many")
    parser.add_argument("--table", action="store_true", help="print the rows as a table")
    arguments = parser.parse_args()
    if arguments.table:
        headings = ["student", "ridge", "tokens", "held-out error", "seconds", "SICK train and trial", "SICK test"]
        print(table(headings, rows_of_table()))
    elif arguments.data is None or arguments.work is None:
        parser.error("a measurement needs --data and --work")
    else:
        measure(arguments.data, arguments.work, arguments.minutes)


if __name__ == "__main__":
    main()
