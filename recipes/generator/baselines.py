"""Baselines: those of MLKD-BERT's tables 1 and 2 (arXiv 2407.02775), ELM's table 6 (arXiv 2012.06153), and small BERTs.

Most are distilled on the task, from a teacher that was fine-tuned on it. The papers give no settings of their
baselines: those of the methods' first papers are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recipes.generator import distilbert, elm, minilm, mlkd_bert
from recipes.generator.document import Inline, Noted, PaperRecipe
from recipes.generator.mlkd_bert import TASKS, Task
from recipes.generator.settings import (
    BERT_BASE,
    DUMP,
    NO_NEXT_SENTENCE,
    RANDOM,
    adam,
    batch,
    cadence,
    columns,
    english,
    shape,
    tokens,
)

ORDER = ("mnli", "qqp", "qnli", "sst-2", "cola", "sts-b", "mrpc", "rte")  # Columns of table 1.
SQUADS = ("squad-1.1", "squad-2.0")  # Columns of table 2.
SCORES = {
    "BERT4-PKD": "79.9/79.3 70.2 85.1 89.4 24.8 79.8 82.6 62.3 79.5 64.6",
    "BERT6-PKD": "81.5/81.0 70.7 89.0 92.0 43.5 81.6 85.0 65.5 85.3 69.8",
    "BERT-EMD4": "82.1/80.6 69.3 87.2 91.0 25.6 82.3 87.6 66.2",
    "TinyBERT4": "81.4/80.4 69.9 85.9 91.9 35.2 81.5 85.4 62.1 81.0 68.2",
    "TinyBERT6": "83.9/83.4 72.0 89.9 93.7 46.7 83.3 85.7 66.6 88.0 76.1",
}
SETTINGS = "the settings of"
LARGE = ("mnli", "qqp", "qnli")
HELD_OUT = "one row in a hundred is held out of training, to watch the run"


def recipes() -> Iterator[PaperRecipe]:
    """Give every baseline."""
    for depth in (4, 6):
        for name, score in _scores(f"BERT{depth}-PKD"):
            yield _patient(depth, name, score)
        for name, score in _scores(f"TinyBERT{depth}"):
            yield _tinybert(depth, name, score)
    for name, score in _scores("BERT-EMD4"):
        yield _earth_mover(name, score)
    yield _distilbert()
    yield from _pre_trained()
    yield from _elm()


def _scores(label: str) -> Iterator[tuple[str, str]]:
    numbers = SCORES[label].split()
    yield from zip((*ORDER, *SQUADS)[: len(numbers)], numbers, strict=True)


def _glue(numbers: str) -> dict[str, str]:
    return columns(" ".join(TASKS[name].title for name in ORDER), numbers)


def _stage(method: dict[str, Any], task: Task, epochs: Any, rate: Any) -> dict[str, Any]:
    return {"method": method, "training": mlkd_bert.training(task, epochs, rate)}


def _task_recipe(
    name: str, task_name: str, row: str, published: dict[str, str], student: dict[str, Any],
    stages: list[dict[str, Any]], **notes: Any,
) -> PaperRecipe:  # fmt: skip
    task = TASKS[task_name]
    teacher = Noted(f"runs/bert-base-{task_name}", "BERT-base fine-tuned on the task; recipes/README.md says how")
    epochs = sum(float(stage["training"]["num_train_epochs"]) for stage in stages)
    paper = notes.pop("paper", mlkd_bert.PAPER)
    measure = notes.pop("measure", mlkd_bert.SQUAD if task.kind == "question_answering" else mlkd_bert.GLUE)
    corpus = mlkd_bert.corpus(task)
    if augment := notes.pop("augment", None):
        corpus["augment"] = augment
    run = {"teacher": {"model": teacher}, "student": student, "corpus": corpus, "stages": stages}
    cost = f"{task.rows:g}k rows x {epochs:g} epochs" + (" x 21 with copies" if augment else "")
    differs = (HELD_OUT, *notes.pop("differs", ()))
    chosen = (*notes.pop("chosen"), *([mlkd_bert.REGRESSION] if task.kind == "regression" else ()))
    score = next(iter(published.values()))
    return PaperRecipe(name, paper, row, measure, published, score, cost, run, chosen=chosen, differs=differs, **notes)


def _row(label: str, task: str) -> str:
    return f"table {2 if task in SQUADS else 1}, {label}, {TASKS[task].title}"


def _published(task: str, score: str) -> dict[str, str]:
    return {TASKS[task].title: score, "the teacher's": TASKS[task].scores[2]}


def _patient(depth: int, name: str, score: str) -> PaperRecipe:
    method = {
        "name": "bert_pkd",
        "mapping": Noted("uniform", "PKD-Skip"),
        "soft_label_share": Noted(0.5, "alpha, of 0.2, 0.5, 0.7"),
        "patient_weight": Noted(100, "beta, of 10, 100, 500, 1000"),
        "temperature": Noted(10, "of 5, 10, 20"),
    }
    if TASKS[name].kind == "regression":
        method["temperature"] = 1
    student = {"shape": shape(depth, 768), "initialise": Inline(layers="first", embeddings="copied")}
    return _task_recipe(
        f"bert-pkd-{depth}l-{name}", name, _row(f"BERT_{depth}-PKD", name), _published(name, score), student,
        [_stage(method, TASKS[name], 4, "2e-5")],
        chosen=(
            f"{SETTINGS} BERT-PKD (arXiv 1908.09355, section 4.2): 4 epochs, batch 32, and of the values that it tried "
            "(rate 1e-5, 2e-5, 5e-5) those in the middle",
            "a tenth of the steps as warm-up, linear decay, weight decay 0.01, the teacher's dropout",
        ),
        differs=("the first layers are the fine-tuned teacher's, where BERT-PKD begins with those of BERT-base",),
    )  # fmt: skip


def _tinybert_start(depth: int) -> dict[str, Any]:
    student = mlkd_bert.STUDENTS[depth]
    released = Noted(mlkd_bert.STARTS[depth], f"or runs/papers/tinybert-{depth}x{student['hidden']}-bert-base/student")
    return {"shape": student, "initialise": {"checkpoint": released}}


def _tinybert_stages(name: str, mapping: Any = "uniform") -> list[dict[str, Any]]:
    task = TASKS[name]
    layers = {"name": "tinybert", "mapping": mapping}
    labels = {"name": "output_distribution", "temperature": Noted(1.0, "t of equation 10")}
    if task.kind == "question_answering":
        return [
            {"name": "layers", **_stage(layers, task, 4, "3e-5")},
            {"name": "prediction", **_stage(labels, task, 3, "3e-5")},
        ]
    epochs = 50 if name == "cola" else 10 if name in LARGE else 20
    return [
        {"name": "layers", **_stage(layers, task, epochs, "5e-5")},
        {"name": "prediction", **_stage(labels, task, 3, Noted("2e-5", "of 1e-5, 2e-5, 3e-5"))},
    ]


_COPIES = {
    "sst-2": Noted(20, "N_a"),
    "mnli": Noted(10, "of each text, so N_a = 20 of each pair, as the authors' code has them"),
}
_AUGMENT = {
    "probability": Noted(0.4, "p_t"),
    "candidates": Noted(15, "K"),
    "masked_lm": BERT_BASE,
    "word_vectors": Noted("data/glove.42B.300d.txt", "https://nlp.stanford.edu/projects/glove"),
}
COPIES_OF_THE_CODE = (
    "the copies are those of the authors' code and not of algorithm 1 (docs/corpora.md has the differences), but keep "
    "upper case, accents and spaces of their rows"
)
NO_ANSWERS_AUGMENTED = (
    "no augmentation: TinyBERT does not say how it changes passages and keeps their answers; `corpus.augment` changes "
    "the questions alone"
)
TINYBERT = (
    "TinyBERT (arXiv 1909.10351, section 4.2): its layers for 20 epochs at rate 5e-5, 10 on MNLI, QQP and QNLI, 50 on "
    "CoLA, then its prediction for 3; on SQuAD epochs and rates of MLKD-BERT's table 9",
    "a tenth of the steps as warm-up, linear decay, weight decay 0.01, the teacher's dropout",
)


def _tinybert(depth: int, name: str, score: str) -> PaperRecipe:
    return _task_recipe(
        f"tinybert-{depth}l-{name}", name, _row(f"TinyBERT_{depth}", name), _published(name, score),
        _tinybert_start(depth), _tinybert_stages(name),
        also=("'All experiments are done without data augmentation' (section 4.3).", mlkd_bert.PICKLED),
        chosen=(f"{SETTINGS} {TINYBERT[0]}", TINYBERT[1]),
    )  # fmt: skip


def _earth_mover(name: str, score: str) -> PaperRecipe:
    task = TASKS[name]
    method = {"name": "bert_emd", "soft_label_weight": 1.0, "hard_label_weight": 0.0}
    return _task_recipe(
        f"bert-emd-4l-{name}", name, _row("BERT-EMD_4", name), _published(name, score), _tinybert_start(4),
        [_stage(method, task, sum(task.epochs), task.rate)],
        also=("'All experiments are done without data augmentation' (section 4.3).", mlkd_bert.PICKLED),
        chosen=(
            "epochs, batch, length and rate of the paper's own students (table 9), both stages' epochs in the one "
            "stage of BERT-EMD",
            "weight 1 for every term, and limbeck's temperature of the cost attention",
            TINYBERT[1],
        ),
    )  # fmt: skip


def _distilbert() -> PaperRecipe:
    (published_six,) = (recipe for recipe in distilbert.recipes() if recipe.name == "distilbert-6x768-bert-base")
    run = {
        **published_six.body,
        "student": {
            "shape": shape(4, 768),
            "initialise": {
                "layers": Noted([1, 4, 8, 12], "evenly, with the first and the last"),
                "embeddings": "copied",
            },
            "dropout": 0.1,
        },
    }
    published = _glue("78.9/78.0 68.5 85.2 91.4 32.8 76.1 82.4 54.1")
    return PaperRecipe(
        "distilbert-4x768-bert-base", mlkd_bert.PAPER, "tables 1 and 2, DistilBERT_4", mlkd_bert.GLUE,
        published | {"average": "71.9", "SQuAD 1.1 F1": "81.2", "SQuAD 2.0 F1": "64.1"}, "71.9",
        published_six.cost, run,
        chosen=(f"{SETTINGS} DistilBERT's published script, as in distilbert-6x768-bert-base", distilbert.WEIGHTS),
        differs=published_six.differs,
    )  # fmt: skip


def _pre_trained() -> Iterator[PaperRecipe]:
    tiny = _glue("75.4/74.9 66.5 84.8 87.6 19.5 77.1 83.2 62.6") | {"average": "70.2"}
    small = columns(minilm.TABLE_2, "73.2 81.8 91.2 89.8 53.5 67.9 84.9 90.6 79.1")
    four = columns(elm.TABLE_3, "52.2M 3.0x 33.9 78.4 86.0 82.3 87.1 58.2 87.2 78.4 73.9")
    six = "ELM's table 3 has 79.3 on GLUE of a model of this shape pre-trained by others (Fine-tuning, 6 layers)."
    rows = (
        (mlkd_bert.PAPER, "bert-tiny-4x312", mlkd_bert.STUDENTS[4], "table 1, BERT_TINY", mlkd_bert.GLUE, tiny, ()),
        (minilm.PAPER, "bert-small-6x768", shape(6, 768), "table 2, BERT_SMALL", minilm.DEV, small, (six,)),
        (elm.PAPER, "bert-4x768", shape(4, 768), "table 3, 4 layers, Fine-tuning", elm.MEASURE_3, four, ()),
    )
    for paper, name, student, row, measure, published, also in rows:
        training = {"max_steps": 1_000_000, **batch(32, 8), **adam("1e-4", 10_000), **cadence(10_000)}
        run = {
            "teacher": {"model": Noted(BERT_BASE, "for its vocabulary alone")},
            "student": {"shape": student, "initialise": RANDOM, "dropout": 0.1},
            "corpus": english(512, pairs=True),
            "stages": [{"method": {"name": "mlm"}, "augment": Inline(mask_tokens=0.15), "training": training}],
        }
        average = published.get("average") or published.get("Average") or published["Avg"]
        yield PaperRecipe(
            name, paper, row, measure, published, average, tokens(256, 512, 1_000_000), run,
            also=("Pre-trained without a teacher, then fine-tuned.", *also),
            chosen=("BERT's 1,000,000 steps of batch 256, rate 1e-4, 10,000 steps of warm-up, decay and 15 % of masked "
                    "tokens",),
            differs=("all blocks are of length 512", NO_NEXT_SENTENCE, DUMP),
        )  # fmt: skip


def _elm() -> Iterator[PaperRecipe]:
    rows = {
        "uniform": ("TinyBERT", elm.UNIFORM[4], ("92.7", "82.8", "72.7/82.1")),
        "searched": ("TinyBERT+ELM", elm.SEARCHED[4], ("92.8", "82.9", "74.9/83.9")),
    }
    teachers = ("93.1", "84.2", "80.7/88.4")
    for suffix, (label, mapping, scores) in rows.items():
        for name, score, teacher in zip(("sst-2", "mnli", "squad-1.1"), scores, teachers, strict=True):
            title = TASKS[name].title.removesuffix("-m/-mm")  # ELM has one figure of MNLI.
            yield _task_recipe(
                f"tinybert-4l-{name}-elm-{suffix}", name, f"table 6, {label}, {title}",
                {title: score, "the teacher's": teacher}, _tinybert_start(4),
                _tinybert_stages(name, mapping), paper=elm.PAPER, measure="dev sets; accuracy, EM/F1 for SQuAD",
                also=(mlkd_bert.PICKLED,),
                chosen=("TinyBERT's general student as the start of both mappings", f"{SETTINGS} {TINYBERT[0]}",
                        TINYBERT[1]),
                differs=(NO_ANSWERS_AUGMENTED if name == "squad-1.1" else COPIES_OF_THE_CODE,),
                augment=None if name == "squad-1.1" else {"method": "tinybert", "copies": _COPIES[name], **_AUGMENT},
            )  # fmt: skip
