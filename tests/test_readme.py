"""What the README shows is so: its recipe loads, its commands and options exist, its links lead somewhere."""

import re
from pathlib import Path

import pytest

from limbeck.core.yaml import parse_yaml
from limbeck.models.families import families
from limbeck.recipe import load_recipe
from tests.support.command_tree import root

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_recipe_loads():
    for block in blocks("yaml"):
        assert load_recipe(parse_yaml(block, "README")).stages


def test_commands_and_options_exist():
    group = root()
    lines = "\n".join(blocks("sh")).replace("\\\n", " ").splitlines()
    used = [line.split("#")[0].split() for line in lines if line.startswith("limbeck ")]
    assert used
    for _, command, *arguments in used:
        known = {option for parameter in group.commands[command].params for option in parameter.opts}
        assert {argument for argument in arguments if argument.startswith("--")} <= known


def test_families_are_all_named():
    for name in families:
        assert name in README


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/results/quickstart.md"])
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
