"""Installed distributions add methods and objectives; a broken one harms only a call that asks for its names."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

import limbeck
from limbeck.core.plugins import plugins_in_use
from limbeck.errors import PluginError
from limbeck.methods import METHODS
from limbeck.objectives import OBJECTIVES, register_as_objective
from tests.support.plugins import PAGE, PAGE_CODE

ITEMS = """
    from dataclasses import replace

    from limbeck.methods import METHODS
    from limbeck.objectives import OBJECTIVES

    summary = "Last hidden states under the absolute error, through a learned map."
    absolute_error = replace(OBJECTIVES["hidden_mse"], name="absolute_error")
    absolute_hidden_states = replace(
        METHODS["hidden_states"], name="absolute_hidden_states", summary=summary, citation=None
    )
"""
(TOML,) = (block.text for block in PAGE.blocks if block.language == "toml")
GROUPS = tomllib.loads(TOML)["project"]["entry-points"]
ENTRY_POINTS = "".join(
    f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in names.items()) for group, names in GROUPS.items()
)


@pytest.mark.parametrize("code", [ITEMS, PAGE_CODE], ids=["items", "the page's package"])
@pytest.mark.parametrize("imported_first", [False, True], ids=["asked for", "imported first"])
def test_names_are_known_before_anything_is_imported_and_are_not_given_twice(install, code, imported_first):
    install("my_distillation", code, ENTRY_POINTS)
    assert "absolute_hidden_states" in METHODS
    assert list(METHODS)[-1] == "absolute_hidden_states"
    assert "my_distillation" not in sys.modules
    if imported_first:
        importlib.import_module("my_distillation")
    assert METHODS["absolute_hidden_states"].summary.startswith("Last hidden states under the absolute error")
    assert OBJECTIVES["absolute_error"].unit == "token"
    assert plugins_in_use() == [{"distribution": "my_distillation", "version": "1.2"}]
    assert dict(METHODS.items())["absolute_hidden_states"] is METHODS["absolute_hidden_states"]
    with pytest.raises(PluginError, match="'absolute_error' already exists"):
        register_as_objective(unit="token", name="absolute_error")(lambda student, teacher: None)


@pytest.mark.parametrize(
    ("code", "target", "said"),
    [
        ("import no_such_module_at_all", "METHOD", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("1 / 0", "METHOD", "ZeroDivisionError"),
        ("", "METHOD", "has no attribute 'METHOD'"),
        ("METHOD = 3", "METHOD", "'broken' is a int, not limbeck.methods.composition.Method"),
        (ITEMS, "absolute_hidden_states", "its own name is 'absolute_hidden_states'"),
    ],
)
def test_a_broken_one_is_one_line_that_names_its_distribution(install, code, target, said):
    install("plugged", code, f"[limbeck.methods]\nbroken = plugged:{target}\n")
    assert METHODS["minilm"].name == "minilm"
    for read in (lambda: METHODS["broken"], lambda: dict(METHODS.items())):
        with pytest.raises(PluginError) as caught:
            read()
        message = str(caught.value)
        assert message.startswith("The entry point 'broken' (limbeck.methods) of the distribution plugged 1.2")
        assert said in message


def test_a_name_that_is_taken_is_refused(install):
    install("plugged", ITEMS, "[limbeck.methods]\nminilm = plugged:absolute_hidden_states\n")
    with pytest.raises(PluginError, match=r"of the distribution plugged 1\.2 adds a method that already exists"):
        METHODS["minilmv2"]


def test_a_run_from_recipe_to_student(install, tiny_recipe):
    install("my_distillation", ITEMS, ENTRY_POINTS)
    tiny_recipe["stages"][0] |= {"method": {"name": "absolute_hidden_states", "mapping": "last"}}
    result = limbeck.distill(tiny_recipe)
    assert result.record["stages"][0]["method"] == "absolute_hidden_states"
    assert {"distribution": "my_distillation", "version": "1.2"} in result.record["plugins"]
    assert Path(tiny_recipe["output"], "student", "model.safetensors").is_file()
