"""Layer mappings and layer lists, as recipes and options write them; the teacher has 4 layers, the student 2."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import EQUAL, SILENT, Trial

from limbeck.api import validate
from limbeck.api.inspecting import read_heads, read_layers
from limbeck.core.lists import parse_layers, parse_numbers
from limbeck.models.loading import load_config
from limbeck.recipe.plan import RunPlan

METHODS = ("hidden_states", "minilm", "tinybert", "elm", "mlkd_bert", "distilbert", "bert_pkd")


def _mapping(scene: Scene, folder: Path, value: Any, what: str) -> Trial:
    recipe = scene.recipe(folder)
    recipe["stages"][0]["method"]["mapping"] = value
    return Trial(f"mapping {what}", partial(validate, recipe), ("mapping", "stages.0.method"))


def by_name(random: Random, scene: Scene, folder: Path) -> Trial:
    name = random.choice([
        "unifrom", "", " ", "Uniform", "uniform ", "uniform,last", garbage.word(random), garbage.control_text(random),
        garbage.markup_text(random), garbage.long_text(random), "../uniform", "[0, 4]", "{1: 2}", "1:2", "0,4", "none",
        "searched", "auto", "uniform\n", "ｕniform",
    ])  # fmt: skip
    return _mapping(scene, folder, name, repr(name[:40]))


def by_list(random: Random, scene: Scene, folder: Path) -> Trial:
    value = random.choice([
        [], [0], [0, 0], [1], [1, 2, 3], [5, 1], [0, 5], [-1, 4], [0, -4], [garbage.HUGE, 1], [1, garbage.HEX],
        [1.5, 2],
        [True, 2], [None, 4], ["1", "2"], [[1], [2]], [{}, 4], [1, float("nan")], [float("inf"), 1], [0] * 5000,
        list(range(100_000)), [1, "last"], [1, [2, 3]], [0, 2**63],
    ])  # fmt: skip
    return _mapping(scene, folder, value, f"{len(value)} entries {garbage.shown(value)}")


def by_layer(random: Random, scene: Scene, folder: Path) -> Trial:
    value = random.choice([
        {}, {0: 1}, {3: 1}, {-1: 1}, {1: 0}, {1: 5}, {1: -1}, {1: []}, {1: [1, 1]}, {1: [1, 5]}, {1: None}, {"1": 2},
        {"a": 1}, {1: "a"}, {1: {2: 3}}, {1.5: 2}, {True: 1}, {None: 1}, {1: 1.0}, {1: True}, {garbage.HUGE: 1},
        {1: garbage.HUGE}, {1: [[2]]}, {2: []}, {1: [], 2: []}, {(1, 2): 3}, {1: (1, 2)}, {1: float("nan")},
        {1: 2, "mapping": 3}, {1: garbage.HEX},
    ])  # fmt: skip
    return _mapping(scene, folder, value, garbage.shown(value))


def of_another_type(random: Random, scene: Scene, folder: Path) -> Trial:
    value = random.choice([1, 0, -1, 1.5, True, False, None, float("nan"), b"uniform", garbage.HUGE, (1, 2), {1, 2}])
    return _mapping(scene, folder, value, repr(value))


def for_another_method(random: Random, scene: Scene, folder: Path) -> Trial:
    """The option of a method that has none, or a layer that is not there."""
    recipe = scene.recipe(folder)
    method = random.choice([
        {"name": "mlm", "mapping": "last"}, {"name": "output_distribution", "mapping": "uniform"},
        {"name": "minilmv2", "mapping": "uniform"}, {"name": "minilmv2", "teacher_layer": 5},
        {"name": "minilmv2", "teacher_layer": 0}, {"name": "minilmv2", "teacher_layer": -5},
        {"name": "minilmv2", "teacher_layer": "first"}, {"name": "minilmv2", "teacher_layer": 1.5},
        {"name": "minilmv2", "teacher_layer": [1]}, {"name": "minilmv2", "teacher_layer": garbage.HUGE},
        {"name": "minilmv2", "teacher_layer": True}, {"name": "minilmv2", "relation_heads": 0},
        {"name": "minilmv2", "relation_heads": -4}, {"name": "minilmv2", "relation_heads": 7},
        {"name": "minilmv2", "relation_heads": garbage.HUGE}, {"name": "minilmv2", "relation_heads": "many"},
        {"name": "direct_minilm", "teacher_layer": 9}, {"name": "elm", "mapping": [0, 0, 5, 10]},
        {"name": "mlkd_bert", "mha_splits": 0}, {"name": "mlkd_bert", "mha_splits": 5},
        {"name": "bert_emd", "mapping": 3},
        {"name": random.choice(METHODS), "mapping": garbage.word(random)},
        {"name": random.choice(METHODS), garbage.word(random): 1},
        {"name": "distilbert", "temperature": random.choice([0, -1, float("nan"), "hot", None, [], 1e999])},
        {"name": "tinybert", "hidden_weight": random.choice([-1, float("inf"), "x", None, {}, -1e-9])},
    ])  # fmt: skip
    recipe["stages"][0]["method"] = method
    return Trial(garbage.shown(method), partial(validate, recipe), ("stages.0",))


def written_out(random: Random, scene: Scene, folder: Path) -> Trial:
    """Legal mappings in the three forms, which have to mean the same."""
    first, second = random.randint(1, 4), random.randint(1, 4)
    text = random.choice([f"[{first}, {second}]", f"{{1: {first}, 2: {second}}}", f"{{2: [{second}], 1: {first}}}"])
    trial = validate(scene.recipe(folder), [f"stages.0.method.mapping=[{first}, {second}]"])

    def same(plan: RunPlan) -> str:
        return EQUAL if plan.stages[0].terms == trial.stages[0].terms else SILENT

    act = partial(validate, scene.recipe(folder), [f"stages.0.method.mapping={text}"])
    return Trial(f"mapping {text}", act, accepted=same)


def _bad_list(random: Random) -> str:
    return random.choice([
        "", ",", "x", "0", "1,,2", "1-", "-1", "1-2-3", "3-1", "1..3", "1:2:3", "²", "٣", "1.5", "1e3", "all,x", " ",
        "a-b",
        "1" * 5000, f"1-{'9' * 30}", garbage.control_text(random), garbage.markup_text(random), "0x1", "+", "１", "1 2",
        ":", "1:", ":1", "1:x", "-", "--", "1-\n", "½", "5-x", "none", "all-", "1;2",
    ])  # fmt: skip


def option_of_layers(random: Random, scene: Scene, folder: Path) -> Trial:
    """`--teacher-layers 1-8,10` of a search."""
    text = _bad_list(random)

    def same(found: list[int]) -> str:
        return EQUAL if text == "0" and found == [0] else SILENT  # Whether the teacher has it is asked next.

    return Trial(f"--layers {text[:40]!r}", partial(parse_layers, "--layers", text), ("--layers",), same)


def option_of_numbers(random: Random, scene: Scene, folder: Path) -> Trial:
    """`--lengths 128,512` of a benchmark."""
    text = _bad_list(random)
    return Trial(f"--lengths {text[:40]!r}", partial(parse_numbers, "--lengths", text), ("--lengths",))


def option_of_pairs(random: Random, scene: Scene, folder: Path) -> Trial:
    """`--layers 3:6,6:12` and `--heads` of an inspection."""
    text = _bad_list(random)
    config = load_config(scene.teacher)
    subject: Any = SimpleNamespace(layers=4, model=SimpleNamespace(config=config))
    if random.random() < 0.5:
        return Trial(f"--heads {text[:40]!r}", partial(read_heads, text, [subject]), ("--heads",))
    return Trial(f"--layers {text[:40]!r}", partial(read_layers, text, [subject]), ("layer",))


MAKERS = {
    maker.__name__: maker
    for maker in (
        by_name, by_list, by_layer, of_another_type, for_another_method, written_out, option_of_layers,
        option_of_numbers, option_of_pairs,
    )
}  # fmt: skip
