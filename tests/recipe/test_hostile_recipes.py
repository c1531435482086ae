"""Recipes made to break readers: refused in one line, at once, whatever they would have become."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from limbeck.core.yaml import MOST_CHARACTERS, dump_yaml, parse_yaml
from limbeck.errors import RecipeError
from limbeck.recipe import load_recipe

TEXTS = yaml.safe_load((Path(__file__).parent / "yaml_texts.yaml").read_text(encoding="utf-8"))
ALIASES = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
ALIASES += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
MERGES = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 30)]
LONG = [
    ("\n".join(ALIASES), "more than 50,000 values"),
    ("\n".join(MERGES), "more than 50,000 values"),
    ("a: " + "[" * 51 + "]" * 51, "more than 50 levels"),
    ("a: " + "[" * 100_000, "more than 50 levels"),
    ("a: " + "9" * 301, "more than 300 digits"),
    ("a: 0x" + "f" * 5000, "more than 300 digits"),
    ("a: " + "x" * MOST_CHARACTERS, "more than 1,048,576 characters"),
]


@pytest.mark.parametrize(("text", "message"), [*TEXTS["refused"], *LONG])
def test_yaml_that_nobody_writes(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        parse_yaml(text, "Text")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("text", "value"), TEXTS["values"])
def test_yaml_as_people_mean_it(text: str, value: Any) -> None:
    assert parse_yaml(text, "Text") == value
    assert parse_yaml(dump_yaml({"a": value}), "a dump") == {"a": value}


@pytest.mark.parametrize("text", TEXTS["texts"])
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    assert parse_yaml(dump_yaml({"a": text}), "a dump") == {"a": text}


@pytest.mark.parametrize("content", [b"- a\n- b\n", b""])
def test_files_that_are_no_recipes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "recipe.yaml").write_bytes(content)
    with pytest.raises(RecipeError, match="must be a mapping"):
        load_recipe(tmp_path / "recipe.yaml")


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="recipe --example"):
        load_recipe(tmp_path / "none.yaml")


@pytest.mark.parametrize("kind", ["bytes", "pipe", "device", "folder", "loop", "nul", "long"])
def test_what_is_no_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("a\0b" if kind == "nul" else "n" * 5000 if kind == "long" else "recipe.yaml")
    if kind == "bytes":
        path.write_bytes(b"\xff\xfe\x00")
    elif kind == "pipe":
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
