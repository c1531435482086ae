"""Paper recipes made small: the same depths, heads, methods and options, on models an eighth as wide."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel

from limbeck.models.blueprint import parse_blueprint
from limbeck.models.heads import model_class
from limbeck.models.students import build_student, student_config
from limbeck.recipe.load import read_recipe
from tests.support.methods import TRAINING
from tests.support.models import save_folder, tiny_config, tiny_tokenizer
from tests.support.streams import write_packed, write_texts

ROOT = Path(__file__).parents[2] / "recipes"
PAPERS = sorted((ROOT / "papers").glob("*.yaml"))
NARROWER = 8
#: Hub name to family, layers, hidden width and heads; the feed-forward width is four times the hidden one.
PUBLISHED = {
    "google-bert/bert-base-uncased": ("bert", 12, 768, 12),
    "google-bert/bert-base-chinese": ("bert", 12, 768, 12),
    "google-bert/bert-large-uncased": ("bert", 24, 1024, 16),
    "google-bert/bert-large-uncased-whole-word-masking": ("bert", 24, 1024, 16),
    "FacebookAI/roberta-base": ("roberta", 12, 768, 12),
    "FacebookAI/roberta-large": ("roberta", 24, 1024, 16),
    "FacebookAI/xlm-roberta-base": ("xlm-roberta", 12, 768, 12),
    "FacebookAI/xlm-roberta-large": ("xlm-roberta", 24, 1024, 16),
}
LABELS = {"classification": 3, "regression": 1}


@cache
def recipe_of(path: Path) -> dict[str, Any]:
    """Read a recipe as it is, not to be changed."""
    return read_recipe(path)


def task_of(recipe: Mapping[str, Any]) -> str:
    """What the corpus is labelled with; `masked_lm` for text."""
    return recipe.get("corpus", {}).get("task", {}).get("kind", "masked_lm")


def is_multilingual(recipe: Mapping[str, Any]) -> bool:
    """Whether a pattern of file names gives the languages that it reads."""
    return "by" in recipe.get("corpus", {}).get("mix", {})


def published_teacher(recipe: Mapping[str, Any]) -> tuple[str, int, int, int]:
    """Family, layers, width and heads of a recipe's teacher; a folder holds a fine-tuned BERT-base."""
    return PUBLISHED.get(recipe["teacher"]["model"], PUBLISHED["google-bert/bert-base-uncased"])


def composition(recipe: Mapping[str, Any], *, in_full: bool = True) -> tuple[str, ...]:
    """What decides how a recipe trains, whatever the widths, the family and the training arguments.

    First what holds for the whole run: depth and heads of teacher and student, factorised embeddings, the start, the
    task, languages. Then a part for each stage: its method and options, its own student (an assistant), masking.

    Args:
        recipe: As read.
        in_full: Whether the student's depth and the options of methods are part of it.
    """
    _, layers, _, heads = published_teacher(recipe)
    stages = [
        [
            stage["method"] if in_full else stage["method"]["name"],
            _build(stage["student"]) if "student" in stage else None,
            stage.get("augment"),
        ]
        for stage in recipe.get("stages", [])
    ]
    whole = [layers, heads, _build(recipe["student"])[0 if in_full else 1 :], task_of(recipe), is_multilingual(recipe)]
    return tuple(json.dumps(part, sort_keys=True) for part in (whole, *stages))


def representatives(paths: Sequence[Path]) -> dict[Path, bool]:
    """The first file of every composition, without those whose stages are the first stages of another's.

    Returns:
        File to whether its composition differs from an earlier one's in the student's depth and options alone.
    """
    first = {composition(recipe_of(path)): path for path in reversed(paths)}
    begun = {key[:end] for key in first for end in range(2, len(key))}
    found: dict[Path, bool] = {}
    known: set[tuple[str, ...]] = set()
    for path in sorted(path for key, path in first.items() if key not in begun):
        alike = composition(recipe_of(path), in_full=False)
        found[path] = alike in known
        known.add(alike)
    return found


def _build(student: Mapping[str, Any]) -> list[Any]:
    shape, start = student["shape"], student["initialise"]
    return [shape["layers"], shape["heads"], "embedding" in shape, start.get("layers"), "checkpoint" in start]


def write_configuration(
    parent: Path, family: str, layers: int, hidden: int, heads: int, task: str, ffn: int = 0
) -> Path:
    """Write a folder with the configuration of a published model, a tokenizer, and no weights."""
    folder = parent / f"{family}-{layers}-{hidden}-{heads}-{task}"
    if not folder.exists():
        changes = {"num_labels": LABELS[task]} if task in LABELS else {}
        positions = 512 if family == "bert" else 514
        sizes = {"layers": layers, "hidden": hidden, "heads": heads, "ffn": ffn or 4 * hidden}
        config = tiny_config(family, **sizes, max_position_embeddings=positions, **changes)
        config.architectures = [model_class(config, task).__name__]  # type: ignore[arg-type]
        config.save_pretrained(folder)
        tiny_tokenizer(family).save_pretrained(folder)
    return folder


def at_full_size(recipe: Mapping[str, Any], parent: Path) -> dict[str, Any]:
    """Return the recipe with its models' configurations in place of their Hub names."""
    found = copy.deepcopy(dict(recipe))
    found["teacher"]["model"] = str(write_configuration(parent, *published_teacher(recipe), task_of(recipe)))
    if is_multilingual(recipe):
        found["corpus"]["mix"]["by"] = write_languages(parent, recipe["corpus"]["mix"]["by"], ["texts", "text"])
    if "augment" in found.get("corpus", {}):
        vectors = write_packed(parent / "vectors.txt", "word 1 0\n")
        model = write_configuration(parent, *published_teacher(recipe), "masked_lm")
        found["corpus"]["augment"] |= {"masked_lm": str(model), "word_vectors": str(vectors)}
    if "checkpoint" in found["student"]["initialise"]:
        shape = found["student"]["shape"]
        numbers = "bert", shape["layers"], shape["hidden"], shape["heads"]
        start = write_configuration(parent / "starts", *numbers, "masked_lm", shape["ffn"])
        found["student"]["initialise"]["checkpoint"] = str(start)
    return found


def narrow(width: int, heads: int) -> int:
    """An eighth of the width, in whole heads."""
    return heads * max(1, width // heads // NARROWER)


@torch.no_grad()
def tiny_teacher(parent: Path, recipe: Mapping[str, Any]) -> Path:
    """Write a random teacher of the published depth and heads, with the head of the recipe's task.

    Its weights are drawn wide enough for layers to differ, and not so wide that the many layers make all tokens alike.
    """
    family, layers, hidden, heads = published_teacher(recipe)
    task = task_of(recipe)
    folder = parent / f"{family}-{layers}-{task}"
    if not folder.exists():
        width = narrow(hidden, heads)
        changes = {"num_labels": LABELS[task]} if task in LABELS else {}
        config = tiny_config(family, layers=layers, hidden=width, heads=heads, ffn=4 * width, **changes)
        model = build_student(config, seed=0, head=task)  # type: ignore[arg-type]
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
        save_folder(model, folder, family)
    return folder


def write_languages(parent: Path, pattern: str, texts: Sequence[str]) -> str:
    """Write a file a language, with half of the texts each, and return the pattern below the folder."""
    placed = str(parent / pattern)
    for language, part in (("de", texts[::2]), ("sw", texts[1::2])):
        write_texts(Path(placed.replace("{language}", language)), part)
    return placed


def at_toy_size(
    recipe: Mapping[str, Any], parent: Path, corpus: Mapping[str, Any], output: Path, texts: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the recipe on a tiny teacher and text, training for a few steps.

    A mix of languages is read as the recipe reads it, from files of the same kind, and the window that is shuffled is a
    batch.

    Relation heads become the largest number, not above the recipe's, that divides both narrow widths.
    """
    found = copy.deepcopy(dict(recipe))
    teacher = tiny_teacher(parent, recipe)
    found |= {"teacher": {"model": str(teacher)}, "output": str(output), "evaluation": {"enabled": False}, "seed": 3}
    _, _, width, heads = published_teacher(recipe)
    widths = [narrow(width, heads)]
    students = [found["student"], *(stage["student"] for stage in found.get("stages", []) if "student" in stage)]
    for student in students:
        shape = student["shape"]
        hidden = narrow(shape["hidden"], shape["heads"])
        shape |= {"hidden": hidden, "ffn": max(8, hidden * shape["ffn"] // shape["hidden"])}
        if "embedding" in shape:
            shape["embedding"] //= NARROWER
        widths.append(hidden)
        student["dropout"] = 0.0
    if "checkpoint" in found["student"]["initialise"]:
        found["student"]["initialise"] = {"checkpoint": str(_tiny_start(parent, found["student"]["shape"], teacher))}
    if is_multilingual(recipe):
        by = write_languages(parent, recipe["corpus"]["mix"]["by"], texts)
        found["corpus"]["mix"]["by"] = by
        found["corpus"] |= {"length": 32, "held_out": 0.0, "join": False, "shuffle_buffer": len(texts)}
    elif "corpus" in found:
        found["corpus"] = dict(corpus)
    for index, stage in enumerate(found.get("stages", [])):
        stage.pop("text", None)
        stage["training"] = TRAINING | {
            "max_steps": 5,
            "per_device_train_batch_size": 4,
            "learning_rate": 2e-3,
            "lr_scheduler_type": "constant",
        }
        if index > 0 and task_of(recipe) != "masked_lm":
            stage["training"]["learning_rate"] = 2e-4  # The first stage and the teacher's head leave little to learn.
        if "relation_heads" in stage["method"]:
            wanted, common = stage["method"]["relation_heads"], math.gcd(*widths)
            stage["method"]["relation_heads"] = max(n for n in range(1, wanted + 1) if common % n == 0)
    return found


def _tiny_start(parent: Path, shape: Mapping[str, Any], teacher: Path) -> Path:
    """Write an earlier student of this shape, with a pooler as saved students have, to start from."""
    folder = parent / f"start-{shape['layers']}-{shape['hidden']}"
    if not folder.exists():
        config = student_config(parse_blueprint(shape), tiny_config("bert"))
        torch.manual_seed(1)
        save_folder(AutoModel.from_config(config), folder, "bert")
    return folder
