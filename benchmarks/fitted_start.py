"""Students that are fitted to their teacher in closed form: which text, beside which other methods, before training.

    python benchmarks/fitted_start.py --data DATA --work runs/fitted
    python benchmarks/fitted_start.py --data DATA --work runs/fitted --only relative,trained --minutes 30
    python benchmarks/fitted_start.py --table

all-MiniLM-L6-v2 (6x384) becomes 3x384, and 3x192. Text is Wikipedia (`wikipedia-en` below DATA), everyday sentences
(`tatoeba/english.txt`), equal parts of both, WordNet's, or docstrings of installed packages. Kinds of rows:

- `start`: texts, ridges and amounts of text;
- `relative`: published methods on the same text, see `linear_relatives.py`, with SQuAD;
- `trained`: the starts after a training with sentence vectors;
- `narrow`: students of half the width;
- `mpnet`, where `--mpnet` names its folder: students of a 12-layer teacher, on fewer pairs;
- `classifier`: a 3-layer start of a teacher that was fine-tuned on SST-2, through its head, by accuracy;
- `reranker`: the same of a teacher that was fine-tuned on questions and paragraphs of SQuAD, by MRR@10.

Settings are compared by Spearman on SICK's training and trial splits; its test split and MRR@10 on SQuAD's development
articles are only reported. A row is added as soon as it is measured; a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from embedding_ablation import BASE, TEACHER, add_row, find, read_rows, read_squad, read_table, spearman
from harness import made_with, table
from linear_relatives import Sums, ghosted_layers, replace_me
from task_students import write_rerank

RESULTS = Path(__file__).parent / "results" / "fitted_start.jsonl"
SEED = 1
SENTENCES = 40_000
"""Most sentences of a kind of text, in the order of their files; a fit takes rows from all parts of them."""
CHOICE_FILES = ("SICK_train.txt", "SICK_trial.txt")
"""Splits that settings are compared by."""
REPORTED_FILE = "SICK_test_annotated.txt"
LAYERS = (1, 2, 6)
KEPT, DROPPED = 2, 5
"""Of layers 1, 2, 6: the last layer before the dropped ones, and the last dropped one."""
KINDS = ("start", "relative", "trained", "narrow", "mpnet", "classifier", "reranker")
RATES = (1e-3, 3e-4)
STEPS = (170, 340)
"""Of trainings; both rates are tried with the fewer steps, and the better one goes on."""


@dataclass(frozen=True)
class TeacherTask:
    """The task of a teacher that is fine-tuned for a kind of rows.

    Args:
        text: Its name as the text of a fit.
        rows: Training rows of the teacher.
        length: Tokens of a row at most.
        metric: The measure of its development rows.
        heading: The measure's name in a table.
    """

    text: str
    rows: int
    length: int
    metric: str
    heading: str


TASKS = {
    "classifier": TeacherTask("sst2", 3_000, 64, "accuracy", "SST-2 accuracy"),
    "reranker": TeacherTask("paragraphs", 4_000, 192, "mrr_at_10", "MRR@10"),
}


@dataclass(frozen=True)
class Setting:
    """A student, as rows hold it.

    Args:
        text: The kind of text of the fit; None fits nothing.
        layers: The teacher's layers that are copied.
        ridge: As in a recipe.
        tokens: As in a recipe.
        pooled: As in a recipe.
        kind: The kind of row.
        method: The closed form; None copies layers alone.
        shape: The student's, or `teacher`.
        narrow_by: As in a recipe.
        steps: Steps of training after the start.
        rate: Learning rate of the training.
    """

    text: str | None
    layers: tuple[int, ...] = LAYERS
    ridge: float | None = None
    tokens: int | None = None
    pooled: float | None = None
    kind: str = "start"
    method: str | None = None
    shape: str = "3x384"
    narrow_by: str | None = None
    steps: int = 0
    rate: float | None = None

    @classmethod
    def of(cls, row: dict[str, Any]) -> Setting:
        """The setting of a row; rows of an earlier time lack fields that have a default."""
        values = {field.name: row[field.name] for field in fields(cls) if field.name in row}
        return cls(**values | {"layers": tuple(row["layers"])})

    @property
    def name(self) -> str:
        """A name for files and for rows of differences."""
        text = "" if self.text is None else f" to {self.tokens} tokens of {self.text}, ridge {self.ridge:g}"
        method = self.method or ("copied" if self.text is None else "fitted")
        narrow = "" if self.narrow_by is None else f" by {self.narrow_by}"
        training = f", {self.steps} steps at {self.rate:g}" if self.steps else ""
        return f"{self.kind}: {self.shape}{narrow}, layers {self.layers}, {method}{text}{training}"


def fitted(text: str, ridge: float, *, tokens: int = 100_000, pooled: float = 0.0, layers: Sequence[int] = LAYERS):
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
    fitted("wordnet", 0.01),
)
"""Kinds of text, ridges and amounts of text."""

COPIED = Setting(None, kind="relative")
FITTED = replace(fitted("everyday", 0.01), kind="relative", method="limbeck")
RIDGES = (1e-6, 0.01, 0.1)
PUBLISHED = [
    replace(FITTED, pooled=None, method=method, ridge=ridge)
    for method in ("ReplaceMe", "Ghosted Layers")
    for ridge in RIDGES
]
RELATIVES = (
    Setting(None, (1, 2, 3, 4, 5, 6), kind="relative", shape="teacher"),
    COPIED,
    FITTED,
    replace(FITTED, method="limbeck, layer 2 alone"),
    *PUBLISHED,
)
"""Published methods, and what they are compared with."""

STARTS = (Setting(None, (1, 3, 6), kind="trained"), Setting(None, kind="trained"), replace(FITTED, kind="trained"))
"""What is trained. A layer is held to the teacher's layer that it is a copy of, or is fitted to."""
HELD_TO = {(1, 3, 6): 3, LAYERS: 2}
"""The teacher's layer that the second layer of a copied start is held to."""

NARROW_COPIES = [
    Setting(None, kind="narrow", shape="3x192", narrow_by=narrow_by) for narrow_by in ("weights", "activations")
]
NARROW = (
    *NARROW_COPIES,
    *(replace(copy, text="everyday", ridge=0.01, tokens=60_000, pooled=0.0) for copy in NARROW_COPIES),
)

MPNET_COPY = Setting(None, (1, 2, 12), kind="mpnet", shape="3x768")
MPNET = (
    replace(MPNET_COPY, layers=tuple(range(1, 13)), shape="teacher"),
    MPNET_COPY,
    replace(MPNET_COPY, text="everyday", ridge=0.1, tokens=15_000, pooled=0.0),
)
PAIRS_OF_MPNET = 1_000
"""Of each side of SICK."""

CLASSIFIER_COPY = Setting(None, kind="classifier")
CLASSIFIER = (
    replace(CLASSIFIER_COPY, layers=(1, 2, 3, 4, 5, 6), shape="teacher"),
    CLASSIFIER_COPY,
    replace(CLASSIFIER_COPY, text="sst2", ridge=0.01, tokens=60_000, pooled=0.0),
)

RERANKER = tuple(
    replace(setting, kind="reranker", text=TASKS["reranker"].text if setting.text else None) for setting in CLASSIFIER
)

COMPARED = [
    (FITTED, COPIED),
    (FITTED, replace(FITTED, method="limbeck, layer 2 alone")),
    *((FITTED, published) for published in PUBLISHED),
    *((NARROW[2], NARROW[0]), (NARROW[3], NARROW[1])),
]
"""Pairs of settings whose differences have rows, with their intervals; those of trainings come with them."""


class Inputs:
    """Text, pairs of sentences, and questions.

    Args:
        data: Folder with `wikipedia-en`, `tatoeba`, SICK, SQuAD and, for the classifier, SST-2.
        work: Where models and files are made.
    """

    def __init__(self, data: Path, work: Path) -> None:
        self.data = data
        self.work = work
        work.mkdir(parents=True, exist_ok=True)
        self.chosen_by = [row for name in CHOICE_FILES for row in read_table(find(data, name))]
        self.reported = read_table(find(data, REPORTED_FILE))
        self.questions, self.paragraphs, self.paragraph_of_question = read_squad(find(data, "v1.1-dev.json"))
        self.mpnet: Path | None = None

    def sources(self, text: str) -> list[str]:
        """The sources of a kind of text."""
        if text == "docstrings":
            return ["installed-docs"]
        if text == "wordnet":
            return ["wordnet"]
        kinds = ("wikipedia", "everyday") if text == "both" else (text,)
        return [str(self._file(kind, SENTENCES // len(kinds))) for kind in kinds]

    def task(self, task: TeacherTask) -> tuple[str, Path]:
        """The name or the file of a teacher's task, and the folder of its rows."""
        if task.text != "paragraphs":
            return task.text, self.data
        folder = self.work / "paragraphs"
        file = folder / "rerank.yaml"
        if not file.is_file():
            folder.mkdir(exist_ok=True)
            write_rerank(self.data, folder)
        return str(file), folder

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
            yield from find(self.data, "english.txt").read_text(encoding="utf-8").splitlines()
            return
        number = 0
        for file in sorted(find(self.data, "wikipedia-en").glob("*.txt")):
            for sentence in UNITS["sentence"](file.read_text(encoding="utf-8")):
                number += 1
                if number % 10 == 0:
                    yield " ".join(sentence.split())


@dataclass(frozen=True)
class Student:
    """A student that was made.

    Args:
        model: It, ready to give sentence vectors.
        facts: What its row says of it.
    """

    model: SentenceTransformer
    facts: dict[str, Any]


@dataclass(frozen=True)
class Scored:
    """Scores of a model, and what they were made of.

    Args:
        figures: As in a row.
        cosines: Of the reported pairs, in their order.
        reciprocal_ranks: Of SQuAD's questions; empty where they were not asked.
    """

    figures: dict[str, float]
    cosines: np.ndarray
    reciprocal_ranks: np.ndarray


class Makers:
    """Makes the students of settings.

    Args:
        inputs: Text and pairs.
    """

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._work = inputs.work

    def make(self, setting: Setting) -> Student:
        """Make a student of a setting; of a teacher, load it."""
        if setting.shape == "teacher":
            return Student(_loaded(self._teacher_of(setting)), {})
        if setting.method in ("ReplaceMe", "Ghosted Layers"):
            return self._published(setting)
        if setting.method == "limbeck, layer 2 alone":
            return self._second_layer_alone(setting)
        if setting.steps:
            return self._trained(setting)
        folder, facts = self.start(setting)
        return Student(_loaded(str(folder)), facts)

    def start(self, setting: Setting) -> tuple[Path, dict[str, Any]]:
        """Make a student that is not trained, once; return its folder, and what its start was."""
        # Kinds of one teacher share their starts.
        kind = setting.kind if setting.kind in ("mpnet", "classifier", "reranker") else "start"
        folder = self._work / _slug(replace(setting, kind=kind, method=None, steps=0, rate=None))
        facts_file = folder / "facts.json"
        if facts_file.is_file():
            return folder / "student", json.loads(facts_file.read_text(encoding="utf-8"))
        initialise: dict[str, Any] = {"layers": list(setting.layers)}
        if setting.narrow_by is not None:
            initialise["narrow_by"] = setting.narrow_by
        corpus = None
        if setting.text is not None:
            initialise["fit"] = {"tokens": setting.tokens, "ridge": setting.ridge, "pooled": setting.pooled}
            corpus = self._corpus(setting.text)
        elif setting.kind in TASKS:
            # The rows of the task give the student the teacher's head, also where nothing is fitted to them.
            corpus = self._corpus(TASKS[setting.kind].text)
        record, seconds = self._distil(setting, folder, initialise, corpus)
        facts: dict[str, Any] = {"seconds": seconds, "seconds_of_start": record["timings"].get("models")}
        fit = record["student"]["initialisation"].get("fit")
        if fit is not None:
            facts["fit"] = fit
        facts_file.write_text(json.dumps(facts), encoding="utf-8")
        return folder / "student", facts

    def _distil(
        self, setting: Setting, folder: Path, initialise: dict[str, Any], corpus: dict[str, Any] | None, **more: Any
    ) -> tuple[dict[str, Any], float]:
        """Run a recipe; return its record and its seconds."""
        import limbeck

        layers, hidden = map(int, setting.shape.split("x"))
        recipe = {
            "output": str(folder),
            "seed": SEED,
            "teacher": {"model": self._teacher_of(setting)},
            "student": {"shape": {"layers": layers, "hidden": hidden, "heads": 12}, "initialise": initialise},
            "corpus": corpus,
            "stages": [],
            "evaluation": {"enabled": False},
        }
        began = time.monotonic()
        result = limbeck.distill(recipe | more, overwrite=True)
        return result.record, round(time.monotonic() - began, 1)

    def _teacher_of(self, setting: Setting) -> str:
        """The teacher's place."""
        if setting.kind == "mpnet":
            return str(self._inputs.mpnet)
        if setting.kind in TASKS:
            return str(self._work / setting.kind / "model")
        return TEACHER

    def _corpus(self, text: str) -> dict[str, Any]:
        """The corpus of a fit."""
        for task in TASKS.values():
            if text == task.text:
                name, folder = self._inputs.task(task)
                return {"task": name, "data": str(folder), "length": task.length}
        return {"sources": self._inputs.sources(text), "unit": "sentence", "length": 64}

    def _second_layer_alone(self, setting: Setting) -> Student:
        """A fitted student whose last layer is the copied one again, as published methods leave it."""
        folder, _ = self.start(setting)
        copy, _ = self.start(COPIED)
        model = _loaded(str(folder))
        last = _loaded(str(copy))[0].auto_model.encoder.layer[-1]
        model[0].auto_model.encoder.layer[-1].load_state_dict(last.state_dict())
        return Student(model, {})

    def _published(self, setting: Setting) -> Student:
        """A student by a published method."""
        sums, seconds = self._sums(setting)
        folder, _ = self.start(COPIED)
        model = _loaded(str(folder))
        student = model[0].auto_model
        assert setting.ridge is not None
        if setting.method == "ReplaceMe":
            from limbeck.models.locating import resolve_model

            teacher = _loaded(str(resolve_model(TEACHER)))[0].auto_model
            replace_me(student, teacher, sums, setting.ridge, layer=KEPT, dropped=DROPPED)
        else:
            ghosted_layers(student, sums, setting.ridge, layer=KEPT)
        return Student(model, {"fit": {"tokens": int(sums["tokens"])}, "seconds_of_start": seconds})

    def _sums(self, setting: Setting) -> tuple[Sums, float]:
        """The sums that published methods follow from, made once, and the seconds that they took."""
        folder = self._work / f"sums-{setting.text}-{setting.tokens}"
        file, facts_file = folder.with_suffix(".pt"), folder.with_suffix(".json")
        if not facts_file.is_file():
            options = {"kept": KEPT, "dropped": DROPPED, "tokens": setting.tokens, "file": str(file)}
            assert setting.text is not None
            initialise = {"layers": list(setting.layers), "steps": {"linear_sums": options}}
            record, _ = self._distil(setting, folder, initialise, self._corpus(setting.text))
            facts_file.write_text(json.dumps(record["timings"].get("models")), encoding="utf-8")
        return torch.load(file), json.loads(facts_file.read_text(encoding="utf-8"))

    def _trained(self, setting: Setting) -> Student:
        """A start that is trained by the quickstart's recipe, on everyday sentences."""
        start, facts = self.start(setting)
        held_to = HELD_TO[setting.layers] if setting.text is None else DROPPED
        stage = BASE["stages"][0]
        stage = stage | {
            "method": stage["method"] | {"layer_mapping": {1: 1, 2: held_to}},
            "training": stage["training"] | {"max_steps": setting.steps, "learning_rate": setting.rate},
        }
        folder = self._work / "trained"
        record, seconds = self._distil(
            setting,
            folder,
            {"checkpoint": str(start)},
            BASE["corpus"] | {"sources": self._inputs.sources("everyday")},
            stages=[stage],
            student={"shape": "3x384", "initialise": {"checkpoint": str(start)}, "dropout": 0.0},
        )
        model = _loaded(str(folder / "student"))
        training = record["stages"][0]
        more = {"seconds": seconds, "trained_on": "everyday", "tokens_of_training": training["tokens"]}
        return Student(model, facts | more)


def _loaded(folder: str) -> SentenceTransformer:
    """A model that gives sentence vectors."""
    from limbeck.models.locating import resolve_model

    return SentenceTransformer(str(resolve_model(folder)), device="cpu")


def _slug(setting: Setting) -> str:
    """A name of files."""
    return "".join(letter if letter.isalnum() else "-" for letter in setting.name)


def score(inputs: Inputs, model: SentenceTransformer, *, pairs: int | None = None, squad: bool = True) -> Scored:
    """Score the vectors of a model.

    Args:
        inputs: Pairs and questions.
        model: The model.
        pairs: Of each side of SICK, the first so many; None takes all.
        squad: Whether SQuAD is searched.

    Returns:
        Spearman of cosines with the relatedness of SICK's pairs, and the mean reciprocal rank within the first ten of
        each question's paragraph among all of SQuAD's development articles.
    """
    chosen_by = inputs.chosen_by[:pairs]
    reported = inputs.reported[:pairs]
    texts = [row[side] for row in chosen_by + reported for side in ("sentence_A", "sentence_B")]
    if squad:
        texts += inputs.questions + inputs.paragraphs
    texts = list(dict.fromkeys(texts))
    vectors = model.encode(texts, batch_size=64, convert_to_tensor=True, normalize_embeddings=True)
    place = {text: number for number, text in enumerate(texts)}

    def vectors_of(chosen: Sequence[str]) -> torch.Tensor:
        return vectors[[place[text] for text in chosen]]

    figures = {}
    for name, rows in (("sick_train_trial", chosen_by), ("sick_test", reported)):
        first = vectors_of([row["sentence_A"] for row in rows])
        second = vectors_of([row["sentence_B"] for row in rows])
        cosines = (first * second).sum(-1)
        figures[name] = spearman(cosines, [float(row["relatedness_score"]) for row in rows])
    reciprocal_ranks = torch.zeros(0)
    if squad:
        similarities = vectors_of(inputs.questions) @ vectors_of(inputs.paragraphs).T
        right = similarities.gather(1, torch.tensor(inputs.paragraph_of_question)[:, None])
        # Ties stand before the right paragraph.
        ranks = (similarities >= right).sum(1).double()
        reciprocal_ranks = torch.where(ranks <= 10, 1 / ranks, 0.0)
        figures["squad_dev"] = round(float(reciprocal_ranks.mean()), 4)
    return Scored(figures, cosines.numpy(), reciprocal_ranks.numpy())


class Measurement:
    """Measures what is missing in the rows, until the minutes are over.

    Args:
        inputs: Text and pairs.
        minutes: No student is begun after so many.
    """

    def __init__(self, inputs: Inputs, minutes: float) -> None:
        self._inputs = inputs
        self._makers = Makers(inputs)
        self._ends = time.monotonic() + 60 * minutes
        self._machine = made_with()

    def measure(self, setting: Setting) -> dict[str, Any]:
        """The row of a setting, measured where there is none.

        Raises:
            TimeoutError: where there is no row and no time.
        """
        for row in _students():
            if Setting.of(row) == setting:
                return row
        if time.monotonic() > self._ends:
            raise TimeoutError
        if setting.kind in TASKS:
            facts = self._of_task(setting)
        else:
            student = self._makers.make(setting)
            is_mpnet = setting.kind == "mpnet"
            scored = score(self._inputs, student.model, pairs=PAIRS_OF_MPNET if is_mpnet else None, squad=not is_mpnet)
            file = self._inputs.work / f"{_slug(setting)}.npz"
            np.savez(file, cosines=scored.cosines, reciprocal_ranks=scored.reciprocal_ranks)
            facts = student.facts | scored.figures
            if is_mpnet:
                facts["pairs"] = PAIRS_OF_MPNET
        row = {"student": setting.shape, **asdict(setting), **facts, "seed": SEED} | self._machine
        add_row(row, RESULTS)
        return row

    def _of_task(self, setting: Setting) -> dict[str, Any]:
        """A model's facts, and its score on the development rows of its teacher's task."""
        import limbeck

        task = TASKS[setting.kind]
        name, data = self._inputs.task(task)
        if setting.shape == "teacher":
            settings = {"epochs": 1, "batch_size": 32, "learning_rates": 1e-4, "length": task.length}
            settings["max_train_rows"] = task.rows
            overrides = [f"{key}={value}" for key, value in settings.items()]
            output = self._inputs.work / setting.kind
            limbeck.finetune(TEACHER, name, output=output, data=data, preset="quick", overrides=overrides)
            folder, facts = output / "model", {"rows_of_training": task.rows}
        else:
            folder, facts = self._makers.start(setting)
        scores = self._inputs.work / f"scores-of-{setting.kind}"
        shutil.rmtree(scores, ignore_errors=True)
        overrides = [f"length={task.length}"]
        result = limbeck.evaluate([folder], name, output=scores, data=data, as_is=True, overrides=overrides)
        [column] = result.summary["models"][0]["columns"].values()
        return facts | {task.metric: round(column["metrics"][task.metric]["mean"], 2)}

    def trainings(self) -> Iterator[Setting]:
        """Measure trainings: each start with both rates, and with the better one for longer."""
        chosen = []
        for start in STARTS:
            short = [replace(start, steps=STEPS[0], rate=rate) for rate in RATES]
            rows = [self.measure(setting) for setting in short]
            best = max(rows, key=lambda row: row["sick_train_trial"])
            chosen.append(replace(start, steps=STEPS[1], rate=best["rate"]))
        for setting in chosen:
            self.measure(setting)
            yield setting

    def difference(self, first: Setting, second: Setting) -> None:
        """Add the row of a difference on what is only reported, where both models were scored here."""
        from limbeck.core.intervals import of_resampled

        measured = [(row["first"], row["second"]) for row in read_rows(RESULTS) if row["student"] == "difference"]
        if (first.name, second.name) in measured:
            return
        files = [self._inputs.work / f"{_slug(setting)}.npz" for setting in (first, second)]
        if not all(file.is_file() for file in files):
            return
        [ours, theirs] = [np.load(file) for file in files]
        relatedness = np.array([float(row["relatedness_score"]) for row in self._inputs.reported])

        def sick(rows: Sequence[int]) -> float:
            values = [spearmanr(side["cosines"][rows], relatedness[rows]).statistic for side in sides]
            return float(values[0] - values[1])

        sides = [{"cosines": side["cosines"]} for side in (ours, theirs)]
        gains = ours["reciprocal_ranks"] - theirs["reciprocal_ranks"]
        row: dict[str, Any] = {"student": "difference", "kind": "difference"}
        row |= {"first": first.name, "second": second.name}
        measures: list[tuple[str, Callable[[Sequence[int]], float], int]] = [
            ("sick_test", sick, len(relatedness)),
            ("squad_dev", lambda rows: float(gains[rows].mean()), len(gains)),
        ]
        for name, measure_rows, count in measures:
            ends = of_resampled(measure_rows, count)
            # Two models never differ by the same amount in all draws.
            assert ends is not None
            low, high = ends
            difference = measure_rows(np.arange(count).tolist())
            row[name] = {"difference": round(difference, 4), "low": round(low, 4), "high": round(high, 4)}
        add_row(row | self._machine, RESULTS)


def _students() -> list[dict[str, Any]]:
    """The rows of models."""
    return [row for row in read_rows(RESULTS) if row["student"] != "difference"]


def measure_kinds(measurement: Measurement, kinds: Sequence[str], *, has_mpnet: bool) -> None:
    """Measure kinds of rows, and then the differences of what was measured."""
    settings = {"start": SETTINGS, "relative": RELATIVES, "narrow": NARROW}
    settings |= {"classifier": CLASSIFIER, "reranker": RERANKER}
    if has_mpnet:
        settings["mpnet"] = MPNET
    compared = list(COMPARED)
    try:
        for kind in kinds:
            for setting in settings.get(kind, ()):
                measurement.measure(setting)
            if kind == "trained":
                [second_fourth, copied, fitted_first] = measurement.trainings()
                compared += [(fitted_first, second_fourth), (fitted_first, copied)]
    except TimeoutError:
        print("The time is over; the same command goes on.", flush=True)
    for first, second in compared:
        measurement.difference(first, second)


def _scores_of(row: dict[str, Any]) -> list[str]:
    """The cells of a row's scores on SICK."""
    return [f"{row['sick_train_trial']:.3f}", f"{row['sick_test']:.3f}"]


def _label(row: dict[str, Any]) -> str:
    """What a row of a table is called."""
    setting = Setting.of(row)
    if row["student"] == "teacher":
        return "the teacher"
    label = f"layers {', '.join(map(str, setting.layers))}"
    if setting.method is not None:
        label += f", {setting.method}"
    if setting.text is None:
        label += " as they are"
    else:
        label += f", fitted to {setting.text}"
    if setting.pooled:
        label += f", pooled {setting.pooled:g}"
    if setting.narrow_by is not None:
        label += f", narrowed by {setting.narrow_by}"
    return label


def _fit_cells(row: dict[str, Any]) -> list[str]:
    """The cells of a row's fit: ridge, tokens, held-out error and seconds; empty where nothing is fitted."""
    fit = row.get("fit")
    if fit is None:
        return ["", "", "", ""]
    error = ""
    if "error" in fit:
        error = f"{fit['error_as_copied']:.3f} to {fit['error']:.3f}"
    return [f"{row['ridge']:g}", f"{fit['tokens']:,}", error, f"{row['seconds_of_start']:.0f}"]


def print_tables() -> None:
    """Print the rows of each kind as a table."""
    rows_by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(RESULTS):
        rows_by_kind.setdefault(row.get("kind", "start"), []).append(row)
    fits = ["ridge", "tokens", "held-out error", "seconds"]
    sick = ["SICK train and trial", "SICK test"]
    for kind in ("start", "relative", "narrow", "mpnet"):
        rows = rows_by_kind.get(kind, [])
        if not rows:
            continue
        has_squad = "squad_dev" in rows[0]
        cells = []
        for row in rows:
            squad = [f"{row['squad_dev']:.3f}"] if has_squad else []
            cells.append([_label(row), *_fit_cells(row), *_scores_of(row), *squad])
        print(f"\n{kind}\n" + table(["student", *fits, *sick, *(["SQuAD dev"] if has_squad else [])], cells))
    for kind, task in TASKS.items():
        if kind in rows_by_kind:
            cells = [[_label(row), *_fit_cells(row), f"{row[task.metric]:.1f}"] for row in rows_by_kind[kind]]
            print(f"\n{kind}\n" + table(["student", *fits, task.heading], cells))
    if "trained" in rows_by_kind:
        cells = []
        for row in rows_by_kind["trained"]:
            training = [str(row["steps"]), f"{row['rate']:g}"]
            cells.append([_label(row), *training, *_scores_of(row), f"{row['squad_dev']:.3f}"])
        print("\ntrained\n" + table(["start", "steps", "rate", *sick, "SQuAD dev"], cells))
    if "difference" in rows_by_kind:
        cells = []
        for row in rows_by_kind["difference"]:
            scores = []
            for measure in ("sick_test", "squad_dev"):
                interval = row[measure]
                scores.append(f"{interval['difference']:+.3f} ({interval['low']:+.3f} to {interval['high']:+.3f})")
            cells.append([row["first"], row["second"], *scores])
        print("\ndifference\n" + table(["first", "less second", "SICK test", "SQuAD dev"], cells))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with wikipedia-en, tatoeba, SICK, SQuAD and SST-2")
    parser.add_argument("--work", type=Path, help="folder for models")
    parser.add_argument("--mpnet", type=Path, help="folder of all-mpnet-base-v2")
    parser.add_argument("--only", help="kinds of rows, in this order, with commas; default: all")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin no student after so many")
    parser.add_argument("--table", action="store_true", help="print the rows as tables")
    arguments = parser.parse_args()
    if arguments.table:
        print_tables()
        return
    if arguments.data is None or arguments.work is None:
        parser.error("a measurement needs --data and --work")
    kinds = list(KINDS)
    if arguments.only is not None:
        kinds = arguments.only.split(",")
    unknown = set(kinds) - set(KINDS)
    if unknown:
        parser.error(f"--only has {', '.join(sorted(unknown))}; the kinds are {', '.join(KINDS)}")
    inputs = Inputs(arguments.data, arguments.work)
    inputs.mpnet = arguments.mpnet
    measure_kinds(Measurement(inputs, arguments.minutes), kinds, has_mpnet=arguments.mpnet is not None)


if __name__ == "__main__":
    main()
