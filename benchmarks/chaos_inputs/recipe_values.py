"""Recipes that are YAML, with a key or a value that cannot be meant."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import yaml
from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import Trial

from limbeck.api import validate

_T = "stages.0.training"
WHOLE = (
    "seed", "corpus.length", "corpus.minimum_tokens", "student.shape.layers", "student.shape.hidden",
    "student.shape.heads", "student.shape.ffn", "evaluation.length", "evaluation.pairs", "evaluation.retrieval_pairs",
    "corpus.max_documents", "stages.0.guard.skips_in_a_row", "stages.0.text.length", f"{_T}.max_steps",
    f"{_T}.per_device_train_batch_size", f"{_T}.gradient_accumulation_steps", f"{_T}.dataloader_num_workers",
    f"{_T}.save_total_limit", f"{_T}.per_device_eval_batch_size",
)  # fmt: skip
"""Keys of whole numbers, none of which may be 10^30 or less than 0."""
SHARES = (
    "corpus.held_out", "student.dropout", "stages.0.augment.mask_tokens", "stages.0.augment.replace_tokens",
    "corpus.mix.exponent",
)  # fmt: skip
NUMBERS = (
    *SHARES, "evaluation.latency_seconds", "stages.0.guard.explosion_factor", f"{_T}.learning_rate",
    f"{_T}.weight_decay", f"{_T}.max_grad_norm", f"{_T}.num_train_epochs", f"{_T}.warmup_steps", f"{_T}.adam_beta1",
    f"{_T}.adam_beta2", f"{_T}.adam_epsilon", f"{_T}.logging_steps", f"{_T}.eval_steps", f"{_T}.save_steps",
)  # fmt: skip
TEXTS = (
    "name", "output", "teacher.model", "teacher.name", "teacher.dtype", "teacher.revision", "corpus.text_column",
    "corpus.unit", "stages.0.name", "student.untrained", "student.initialise.layers", "student.initialise.embeddings",
    "student.initialise.checkpoint", "evaluation.pooling", "stages.0.guard.on_bad_loss", f"{_T}.optim",
    f"{_T}.lr_scheduler_type", f"{_T}.save_strategy", f"{_T}.report_to",
)  # fmt: skip
SWITCHES = ("evaluation.enabled", "evaluation.speed", "corpus.join", "corpus.streaming", f"{_T}.bf16", f"{_T}.fp16")
MAPPINGS = (
    "teacher", "student", "student.initialise", "corpus", "stages.0", "stages.0.method", _T, "stages.0.text",
    "stages.0.augment", "stages.0.guard", "evaluation", "corpus.task", "corpus.mix", "stages.0.teacher",
)  # fmt: skip


class _Dumper(yaml.SafeDumper):
    """Writes numbers that are too long for Python's decimals in sixteens."""

    def write_whole(self, data: int) -> yaml.Node:
        return self.represent_scalar("tag:yaml.org,2002:int", f"{data:#x}" if abs(data) > 10**300 else str(data))


_Dumper.add_representer(int, _Dumper.write_whole)


def _recipe(folder: Path, data: dict[str, Any]) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.dump(data, Dumper=_Dumper, allow_unicode=True), encoding="utf-8")
    return path


def _changed(scene: Scene, folder: Path, path: str, value: Any, *names: str) -> Trial:
    """The good recipe with one value changed; the refusal names the key or the value."""
    data = garbage.put(scene.recipe(folder), path, value)
    shown = f"{value:#x}"[:20] if isinstance(value, int) and abs(value) > 10**300 else str(value)
    what = f"{path} = {shown[:60]!r}"
    file = _recipe(folder, data)
    return Trial(what, partial(validate, file), (path, path.rsplit(".", 1)[-1], str(file), *names))


def unknown_key(random: Random, scene: Scene, folder: Path) -> Trial:
    parent = random.choice(["", *MAPPINGS[:11]])
    key = random.choice([
        garbage.word(random), garbage.control_text(random), garbage.markup_text(random), 1, 1.5, True, None, "", " ",
        "__class__", "seed ", "Seed", "x" * 100_000, "../..",
    ])  # fmt: skip
    data = scene.recipe(folder)
    node = garbage.put(data, f"{parent}.unused" if parent else "unused", 1)
    for part in filter(None, parent.split(".")):
        node = node[int(part)] if part.isdigit() else node[part]
    del node["unused"]
    node[key] = random.choice([1, "x", [], {}, None])
    return Trial(f"{parent}: key {str(key)[:40]!r}", partial(validate, _recipe(folder, data)))


def missing_key(random: Random, scene: Scene, folder: Path) -> Trial:
    data = scene.recipe(folder)
    path = random.choice([
        "teacher", "student", "corpus", "teacher.model", "student.shape", "corpus.sources", "stages.0.method",
        "student.shape.layers", "student.shape.hidden", "stages.0.method.name",
    ])  # fmt: skip
    node: Any = data
    *parents, last = path.split(".")
    for part in parents:
        node = node[int(part)] if part.isdigit() else node[part]
    if random.random() < 0.5:
        del node[last]
    else:
        node[last] = None
    return Trial(f"no {path}", partial(validate, _recipe(folder, data)), (last,))


def not_whole(random: Random, scene: Scene, folder: Path) -> Trial:
    path = random.choice(WHOLE)
    value = random.choice([garbage.no_number(random), garbage.no_finite_number(random), 2.5, -0.5, 1e308])
    if value is None and path in ("corpus.max_documents", "student.shape.heads", "student.shape.ffn", "corpus.length",
                                  "corpus.minimum_tokens", "stages.0.text.length",
                                  f"{_T}.save_total_limit"):  # fmt: skip
        value = "null and void"
    return _changed(scene, folder, path, value)


def too_small(random: Random, scene: Scene, folder: Path) -> Trial:
    path = random.choice(WHOLE)
    value = random.choice([-1, -random.randint(2, 10**6), -garbage.HUGE, -(2**63), -garbage.HEX])
    return _changed(scene, folder, path, -2 if path.endswith("max_steps") and value == -1 else value)


def too_large(random: Random, scene: Scene, folder: Path) -> Trial:
    value = random.choice([garbage.HUGE, 2**63, 2**64, 10**18, garbage.HEX])
    return _changed(scene, folder, random.choice(WHOLE), value)


def no_number(random: Random, scene: Scene, folder: Path) -> Trial:
    path = random.choice(NUMBERS)
    value = garbage.no_number(random)
    if value is None and path in ("student.dropout", "stages.0.augment.mask_tokens", "corpus.mix.exponent",
                                  "stages.0.guard.explosion_factor", f"{_T}.eval_steps"):  # fmt: skip
        value = "null and void"
    return _changed(scene, folder, path, value)


def absurd_number(random: Random, scene: Scene, folder: Path) -> Trial:
    path = random.choice(NUMBERS)
    value = random.choice([garbage.no_finite_number(random), -1.0, -1e308, 1e308, -1e-9, 10**40, 10**400])
    return _changed(scene, folder, path, value)


def share_out_of_range(random: Random, scene: Scene, folder: Path) -> Trial:
    return _changed(scene, folder, random.choice(SHARES), random.choice([1.0001, 2, 100, -0.01, 1e9]))


def no_text(random: Random, scene: Scene, folder: Path) -> Trial:
    path = random.choice(TEXTS)
    value = garbage.no_text(random)
    if path.endswith(("layers", "report_to")) and isinstance(value, list):
        value = {"a": 1}
    if path.endswith("save_strategy") and value is False:
        value = 1
    return _changed(scene, folder, path, value)


def absurd_text(random: Random, scene: Scene, folder: Path) -> Trial:
    path = random.choice(TEXTS)
    value = random.choice([
        "", " ", "\t\n", garbage.control_text(random), garbage.long_text(random), "a\0b", "\x1b[2J",
    ])  # fmt: skip
    return _changed(scene, folder, path, value)


def no_switch(random: Random, scene: Scene, folder: Path) -> Trial:
    value = random.choice([2, -1, 0.5, "maybe", [], {}, "", [True], "truee", garbage.control_text(random)])
    return _changed(scene, folder, random.choice(SWITCHES), value)


def no_mapping(random: Random, scene: Scene, folder: Path) -> Trial:
    path = random.choice(MAPPINGS)
    value = garbage.no_mapping(random)
    return _changed(scene, folder, path, value, "method" if path == "stages.0.method" else path)


def no_list(random: Random, scene: Scene, folder: Path) -> Trial:
    path, values = random.choice([
        ("stages", [1, "minilmv2", {"method": "minilmv2"}, [1], [[]], ["minilmv2"], [None], True, ""]),
        ("corpus.sources", [1, [], {}, [1], [None], [[]], True, [""], "", [" "], ["a\0b"]]),
        ("stages.0.freeze", ["embeddings", [1], ["layers"], {}, True, [None]]),
        ("evaluation.batch_sizes", [[], [0], [-1], [1.5], ["x"], [True], "1", [garbage.HUGE], {}, [None]]),
        ("corpus.mix.weights", [[], [0], [-1], [float("nan")], [float("inf")], ["x"], [1, 2], {}, [True], 1]),
        ("student.initialise.layers", [[], [0, 1], [1, 9], [-1, 1], ["x", 1], [1.5, 2], [True, 2], {}, [1], [1, 2, 3]]),
    ])  # fmt: skip
    return _changed(scene, folder, path, random.choice(values))


def no_name_of_a_folder(random: Random, scene: Scene, folder: Path) -> Trial:
    value = random.choice([
        garbage.outside(random), "..", ".", "/", "a/b", "a\\b", "-x", ".hidden", "a b", "a\n", "é", "a\0", "~", "$HOME",
        "_x", "a:b", "con\u202e",
    ])  # fmt: skip
    return _changed(scene, folder, "stages.0.name", value)


def contradiction(random: Random, scene: Scene, folder: Path) -> Trial:
    data, stage = scene.recipe(folder), "stages.0"
    what, changes = random.choice([
        ("a stage twice", {"stages": data["stages"] * 2}),
        ("streaming without steps", {"corpus.streaming": True, f"{_T}.max_steps": -1}),
        ("shuffle_buffer without streaming", {"corpus.shuffle_buffer": 100}),
        ("max_documents of a stream", {"corpus.streaming": True, "corpus.max_documents": 5}),
        ("weights and exponent", {"corpus.mix": {"weights": [1], "exponent": 0.5}}),
        ("neither weights nor exponent", {"corpus.mix": {}}),
        ("length beyond the positions", {"corpus.length": 129}),
        ("heads that do not divide", {"student.shape.heads": 5}),
        ("a teacher of a stage that is not there", {f"{stage}.teacher": {"stage": garbage.word(random)}}),
        ("teacher by model and stage", {f"{stage}.teacher": {"model": "x", "stage": "y"}}),
        ("labels and streaming", {"corpus.task": {"kind": "classification"}, "corpus.streaming": True}),
        ("labels and units", {"corpus.task": {"kind": "classification"}, "corpus.unit": "sentence"}),
        ("text is the label", {"corpus.task": {"kind": "classification", "label_column": "text"}}),
        ("deeper than its start", {"student.shape.layers": 9, "student.initialise": {"layers": "first"}}),
        ("coupled terms, accumulated", {f"{stage}.method": {"name": "mlkd_bert", "stage": 2}}),
        ("bf16 and fp16", {f"{_T}.bf16": True, f"{_T}.fp16": True}),
        ("both ends of masking", {f"{stage}.method": "mlm", f"{stage}.augment.mask_tokens": 0}),
        ("an own stage only", {f"{stage}.student": data["student"]}),
        ("managed by limbeck", {f"{_T}.output_dir": "x"}),
        ("managed seed", {f"{_T}.seed": 3}),
        ("next to no masking", {f"{stage}.augment.mask_tokens": 1e-9}),
    ])  # fmt: skip
    for path, value in changes.items():
        garbage.put(data, path, value)
    return Trial(what, partial(validate, _recipe(folder, data)))


def no_such_thing(random: Random, scene: Scene, folder: Path) -> Trial:
    name = garbage.word(random)
    path, value = random.choice([
        ("teacher.model", f"/{name}/{name}"), ("teacher.model", f"package:{name}"), ("teacher.model", "package:"),
        ("teacher.model", "package:../.."), ("teacher.model", f"{name}/../{name}"), ("teacher.model", f"~{name}/x"),
        ("teacher.model", "package:os.path"), ("corpus.sources", [f"/{name}.txt"]),
        ("corpus.sources", [f"./{name}.zst"]),
        ("stages.0.method", name), ("stages.0.method", {"name": name}), ("student.shape", name),
        ("student.shape", "6 by 384"), (f"{_T}.optim", name), (f"{_T}.lr_scheduler_type", name),
        (f"{_T}.report_to", name), (f"{_T}.{name}", 1), ("student.initialise.checkpoint", f"/{name}"),
    ])  # fmt: skip
    return _changed(scene, folder, path, value, str(value)[:20], name)


MAKERS = {
    maker.__name__: maker
    for maker in (
        unknown_key, missing_key, not_whole, too_small, too_large, no_number, absurd_number, share_out_of_range,
        no_text, absurd_text, no_switch, no_mapping, no_list, no_name_of_a_folder, contradiction, no_such_thing,
    )
}  # fmt: skip
