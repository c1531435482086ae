"""Shapes of students that no model can have."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import EQUAL, SILENT, Trial

from limbeck.api import validate
from limbeck.models.blueprint import StudentBlueprint, parse_blueprint
from limbeck.search.requests import parse_count


def _text(random: Random) -> str:
    number = random.randint(1, 9)
    return random.choice([
        "", " ", "x", "6x", "x384", "6*384", "6,384", "6 384", "-6x384", "6x-384", "0x384", "6x0", "6x384h0", "6x384h5",
        "6x384h", "6x384h-1", "6.5x384", "6x384.5", "1e3x384", "6x384x2", "384x6", "nan", "infxinf", f"{number}x7",
        f"{'9' * 5000}x384", f"6x{'9' * 5000}", f"6x384h{'9' * 4500}", f"{number}x{number * 13}", "６xｘ384", "²x³",
        "6x384\n7",
        "6x384; rm", "../6x384", garbage.word(random), garbage.control_text(random), garbage.markup_text(random),
        garbage.long_text(random), "minilm-6x385", "tinybert", "6x384e128", "257x384", "6x32769", "٦x٣٨٥", "6x384h385",
    ])  # fmt: skip


def by_text(random: Random, scene: Scene, folder: Path) -> Trial:
    text = _text(random)
    return Trial(f"shape {text[:40]!r}", partial(parse_blueprint, text), ("tudent", "heads"))


def in_a_recipe(random: Random, scene: Scene, folder: Path) -> Trial:
    recipe, text = scene.recipe(folder), _text(random)
    recipe["student"]["shape"] = text
    return Trial(f"student.shape {text[:40]!r}", partial(validate, recipe), ("tudent", "heads", "shape"))


def by_fields(random: Random, scene: Scene, folder: Path) -> Trial:
    fields: dict[str, Any] = {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48}
    key = random.choice([*fields, "embedding", "dropout"])
    value = random.choice([
        0, -1, garbage.HUGE, garbage.HEX, 1.5, "x", "", [], {}, [1], float("nan"), float("inf"), True, b"1",
        garbage.control_text(random), -garbage.HUGE, 1e308,
    ])  # fmt: skip
    if key == "dropout" and value == 0:
        value = 1.0
    what = f"{key} {garbage.shown(value)}"
    return Trial(what, partial(parse_blueprint, {**fields, key: value}), (key, "tudent"))


def of_fields(random: Random, scene: Scene, folder: Path) -> Trial:
    fields: Any = random.choice([
        {}, {"layers": 2}, {"hidden": 24}, {"layers": None, "hidden": 24}, {"layers": 2, "hidden": 24, "heads": 7},
        {"layers": 2, "hidden": 7}, {"layers": 2, "hidden": 24, garbage.word(random): 1},
        {"layers": 2, "hidden": 24, 1: 1},
        {"layers": 2, "hidden": 24, "heads": 25}, {"layers": 2, "hidden": 25, "heads": 12}, {"layers": 24, "hiden": 2},
    ])  # fmt: skip
    return Trial(f"fields {fields}", partial(parse_blueprint, fields), ("tudent", "heads", "hidden"))


def spelt_otherwise(random: Random, scene: Scene, folder: Path) -> Trial:
    """Legal ways to write a shape that is meant."""
    layers, heads = random.randint(1, 12), random.choice([1, 2, 3, 4, 6, 12])
    text = random.choice(
        [f"{layers}x24h{heads}", f" {layers} x 24h{heads} ", f"{layers}X24H{heads}", f"{layers}×24h{heads}"]
    )

    def same(found: StudentBlueprint) -> str:
        return EQUAL if (found.layers, found.hidden, found.heads, found.ffn) == (layers, 24, heads, 96) else SILENT

    return Trial(f"shape {text!r}", partial(parse_blueprint, text), accepted=same)


def number_of_parameters(random: Random, scene: Scene, folder: Path) -> Trial:
    """`--max-parameters 30M` of a search."""
    text = random.choice([
        "", "0", "-3M", "M", "30X", "1e9", "nan", "inf", "9" * 400, "9" * 5000, "3 0M", ".5M", "1.M", "0.0000001",
        garbage.word(random), garbage.control_text(random), "30MM", "30 m b", "٣", "½M", "0x10", "9" * 320 + ".5k",
    ])  # fmt: skip

    def same(found: int) -> str:
        return EQUAL if text in ("٣", "9" * 400) and found == int(text) else SILENT  # Large, and no limit at all.

    act = partial(parse_count, "--max-parameters", text)
    return Trial(f"--max-parameters {text[:40]!r}", act, ("--max-parameters",), same)


MAKERS = {
    maker.__name__: maker
    for maker in (by_text, in_a_recipe, by_fields, of_fields, spelt_otherwise, number_of_parameters)
}
