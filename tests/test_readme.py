"""The README shows a recipe that loads as it is, and names every family of models."""

import re
from pathlib import Path

from limbeck.core.yaml import parse_yaml
from limbeck.models.family_table import families
from limbeck.recipe import load_recipe

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_recipe_loads():
    for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL):
        assert load_recipe(parse_yaml(block, "README")).stages


def test_families_are_all_named():
    assert [name for name in families if name not in README] == []
