"""Recipes made to break readers: refused in one line, at once, whatever they would have become."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from limbeck.core.yaml import DEEPEST, MOST_CHARACTERS, dump_yaml, parse_yaml
from limbeck.errors import RecipeError
from limbeck.recipe import load_recipe

ALIASES = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
)
MERGES = "\n".join(["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 30)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object/apply:os.system [ls]", "line 1: tags"),
        ("a: 1\nb: !own x", "line 2: tags"),
        ("a: !!binary aGVsbG8=", "tags"),
        (ALIASES, "more than 50,000 values"),
        (MERGES, "more than 50,000 values"),
        ("a: &a [*a]", "contains itself"),
        ("a: &a {b: *a}", "contains itself"),
        ("a: 1\na: 2", "line 2: the key 'a' stands twice"),
        ("a: {b: 1, b: 1}", "the key 'b' stands twice"),
        ("? 1\n: a\n? 0x1\n: b", "the key '1' stands twice"),
        ("a: " + "[" * 51 + "]" * 51, "more than 50 levels"),
        ("a: " + "[" * 100_000, "more than 50 levels"),
        ("a: " + "9" * 301, "more than 300 digits"),
        ("a: 0x" + "f" * 5000, "more than 300 digits"),
        ("a: " + "x" * MOST_CHARACTERS, "more than 1,048,576 characters"),
        ("a: \x1b[2J", "not valid YAML"),
        ("a: [", "not valid YAML at line"),
    ],
)
def test_yaml_that_nobody_writes(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        parse_yaml(text, "Text")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4), ("-.5", -0.5), ("0x1f", 31), ("1_000", 1000), (".inf", float("inf")), ("1:30", "1:30"),
        ("2026-01-02", "2026-01-02"), ("007", "007"), ("0b1", "0b1"), ("1_", "1_"), ("no", False), ("~", None),
        ("&a [1, 2]", [1, 2]), ("{a: &x [1], b: *x}", {"a": [1], "b": [1]}), ("{<<: {a: 1}, b: 2}", {"a": 1, "b": 2}),
    ],
)  # fmt: skip
def test_yaml_as_people_mean_it(text: str, value: Any) -> None:
    assert parse_yaml(text, "Text") == value
    assert parse_yaml(dump_yaml({"a": value}), "a dump") == {"a": value}


@pytest.mark.parametrize(
    "text", ["1e5", "1:30", "2026-01-02", "0x1f", "no", "~", "1_000", ".inf", "-", "a: b", "1.", ""]
)
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    assert parse_yaml(dump_yaml({"a": text}), "a dump") == {"a": text}


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop", "nul", "long"])
def test_what_is_no_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("a\0b" if kind == "nul" else "n" * 5000 if kind == "long" else "recipe.yaml")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe(path)


def test_data_that_only_python_can_give(tiny_recipe: dict[str, Any]) -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (endless, 10**5000, float("nan"), "\ud800"):
        with pytest.raises(RecipeError) as caught:
            load_recipe({**tiny_recipe, "name": value})
        assert len(str(caught.value)) < 300
    assert DEEPEST < 100
