"""Recipe files that are no YAML, or YAML that nobody writes by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import EQUAL, SILENT, Trial

from limbeck.api import validate
from limbeck.recipe import load_recipe
from limbeck.recipe.plan import RunPlan

_TAGS = (
    "!!python/object/apply:os.system [touch {}]",
    "!!python/object/new:pathlib.Path [{}]",
    "!!python/name:os.system",
    "!!python/module:os",
    "!!python/tuple [1, 2]",
    "!!binary aGVsbG8=",
    "!!set {{a, b}}",
    "!!omap [a: 1]",
    "!!timestamp 2020-01-01",
    "!!int '3'",
    "!!str 3",
    "!{} x",
    "!<tag:yaml.org,2002:python/object/apply:os.getpid> []",
)


def _written(folder: Path, content: str | bytes) -> Path:
    path = folder / "recipe.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return path


def _document(folder: Path, what: str, content: str | bytes, *names: str) -> Trial:
    path = _written(folder, content)
    return Trial(what, partial(validate, path), (str(path), *names))


def tag(random: Random, scene: Scene, folder: Path) -> Trial:
    chosen = random.choice(_TAGS).format(garbage.word(random))
    key = random.choice(["name", "seed", "teacher", "stages", "more"])
    return _document(folder, f"{key}: {chosen}", f"{scene.recipe_text(folder)}\n{key}2: {chosen}\n")


def bomb(random: Random, scene: Scene, folder: Path) -> Trial:
    """Ten lines whose aliases stand for billions of values."""
    width, levels = random.randint(5, 12), random.randint(8, 12)
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    key = random.choice(["seed", "name", "stages", "training"])
    return _document(folder, f"{width}^{levels} aliases", "\n".join([*lines, f"{key}: *a{levels - 1}"]))


def hidden_bomb(random: Random, scene: Scene, folder: Path) -> Trial:
    """The same, where any value may stand."""
    width, levels = random.randint(6, 12), random.randint(8, 11)
    lines = [f"  a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    content = scene.recipe_text(folder).replace("  training:\n", "  training:\n" + "".join(f"  {x}\n" for x in lines))
    return _document(folder, f"{width}^{levels} aliases in training", content)


def merge_bomb(random: Random, scene: Scene, folder: Path) -> Trial:
    levels = random.randint(10, 25)
    lines = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, levels)]
    return _document(folder, f"{levels} merges in each other", "\n".join(lines), "a0")


def loop(random: Random, scene: Scene, folder: Path) -> Trial:
    key = random.choice(["name", "teacher", "stages", "seed", "student", "corpus"])
    content = random.choice([f"{key}: &a [*a]", f"{key}: &a {{b: *a}}", f"&a {key}: *a", f"&a\n{key}: [x, *a]"])
    return _document(folder, f"{content!r} contains itself", content, key, "is missing")


def deep(random: Random, scene: Scene, folder: Path) -> Trial:
    depth = random.choice([60, 150, 300, 400, 600, 1000, 5000, 20_000])
    opening, closing = random.choice([("[", "]"), ("{a: ", "}")])
    key = random.choice(["name", "seed", "stages", "teacher"])
    return _document(folder, f"{depth} levels in {key}", f"{key}: {opening * depth}{closing * depth}")


def deep_training(random: Random, scene: Scene, folder: Path) -> Trial:
    depth = random.choice([60, 200, 300, 450, 900])
    bad = f"    optim_args: {'[' * depth}{']' * depth}\n"
    content = scene.recipe_text(folder).replace("  training:\n", f"  training:\n{bad}")
    return _document(folder, f"{depth} levels in training", content)


def broken(random: Random, scene: Scene, folder: Path) -> Trial:
    content = random.choice([
        "a: [1", "a: {b: 1", "a: 'x", 'a: "x', "a:\n\tb: 1", "a: b: c", "- a\nb: 1", "%YAML 9", "a: *b", "? : :",
        "a: &",
        "a: |\nb", "---\na: 1\n---\nb: 2", "@a: 1", "`a`: 1", "a: !", "{", "]", ": :", "a: 2020-13-45",
        "a: 0x", "? [a]\n: 1\n? {b: 1}\n: 2", "a: 1\n b: 2", '"\\x0', '"\\ud800": 1', "a: '\n\n---\n'",
    ])  # fmt: skip
    filler = "\n" * random.randint(0, 5)
    return _document(folder, repr(content), f"{filler}{content}\n", "line", "mapping", "key", "is missing")


def no_mapping(random: Random, scene: Scene, folder: Path) -> Trial:
    content = random.choice(
        ["", " ", "#", "null", "~", "3", "text", "[]", "- a", "true", "1.5", "---\n...", '""', "\n\n"]
    )
    return _document(folder, f"{content!r} alone", content)


def bytes_of_any_kind(random: Random, scene: Scene, folder: Path) -> Trial:
    good = scene.recipe_text(folder).encode()
    content = random.choice([
        garbage.noise(random), b"\xff\xfe" + garbage.noise(random), good + b"\xff", good.replace(b"a", b"\xe9", 1),
        b"\x7fELF" + bytes(60), b"\x1f\x8b" + garbage.noise(random), good.decode().encode("utf-16-le"),
        b"\xed\xa0\x80: 1", b"name: \xc0\xaf\n" + good,
    ])  # fmt: skip
    return _document(folder, f"bytes {content[:12]!r}", content, "mapping")


def unprintable(random: Random, scene: Scene, folder: Path) -> Trial:
    character = random.choice("\0\x01\x07\x08\x1b\x7f\x0b\ufffe")
    good = scene.recipe_text(folder)
    return _document(folder, f"character {character!r}", good.replace("tiny", f"ti{character}ny", 1))


def mark(random: Random, scene: Scene, folder: Path) -> Trial:
    """A byte order mark in front: legal in YAML, and no part of the first key."""
    path = _written(folder, b"\xef\xbb\xbf" + scene.recipe_text(folder).encode())
    wanted = load_recipe(scene.recipe(folder))

    def same(plan: RunPlan) -> str:
        return EQUAL if plan.recipe == wanted else SILENT

    return Trial("a byte order mark", partial(validate, path), accepted=same)


def key_twice(random: Random, scene: Scene, folder: Path) -> Trial:
    good = scene.recipe_text(folder)
    line, key = random.choice([
        ("seed: 7\n", "seed"), ("name: other\n", "name"), ("teacher: {model: x}\n", "teacher"),
        ("stages: []\n", "stages"), ("? seed\n: 8\n", "seed"), ('"seed": 9\n', "seed"),
    ])  # fmt: skip
    return _document(folder, f"{key} twice", good + line if random.random() < 0.5 else line + good, key)


def key_twice_below(random: Random, scene: Scene, folder: Path) -> Trial:
    key = random.choice(["max_steps", "learning_rate", "logging_steps"])
    content = scene.recipe_text(folder).replace("  training:\n", f"  training:\n    {key}: {random.randint(1, 9)}\n")
    return _document(folder, f"training.{key} twice", content, key)


def no_file(random: Random, scene: Scene, folder: Path) -> Trial:
    """Something that is no readable file under the name of a recipe."""
    way = random.choice(["folder", "missing", "loop", "long name", "nul", "control", "below a file", "empty", "markup"])
    path: str | Path = folder / "recipe.yaml"
    if way == "folder":
        Path(path).mkdir()
    elif way == "loop":
        Path(path).symlink_to(path)
    elif way == "below a file":
        Path(path).write_text("a: 1")
        path = Path(path, "recipe.yaml")
    elif way != "missing":
        text = {"long name": "n" * 5000, "nul": "a\0b", "empty": "", "markup": garbage.markup_text(random)}
        path = text.get(way, garbage.control_text(random))
        path = str(folder / path) if path else ""
    return Trial(f"recipe: {way}", partial(validate, path), ("Recipe",))


MAKERS = {
    maker.__name__: maker
    for maker in (
        tag, bomb, hidden_bomb, merge_bomb, loop, deep, deep_training, broken, no_mapping, bytes_of_any_kind,
        unprintable, mark, key_twice, key_twice_below, no_file,
    )
}  # fmt: skip
