"""Installed distributions add methods and objectives; a broken one harms only a call that asks for its names."""

import importlib
import sys
from pathlib import Path

import pytest

import limbeck
from limbeck.core.registry import plugins_in_use
from limbeck.errors import PluginError
from limbeck.methods import METHODS
from limbeck.objectives import OBJECTIVES, register_as_objective

ITEMS = """
    from dataclasses import replace

    from limbeck.methods import METHODS
    from limbeck.objectives import OBJECTIVES

    absolute = replace(OBJECTIVES["hidden_mse"], name="absolute")
    absolutely = replace(METHODS["hidden_states"], name="absolutely", summary="Absolutely.", citation=None)
"""
DECORATED = """
    from limbeck.methods import register_as_method
    from limbeck.objectives import register_as_objective

    @register_as_objective(unit="token")
    def absolute(student, teacher):
        pass

    @register_as_method()
    def absolutely(options, pairing):
        "Absolutely."
        return []
"""
ENTRY_POINTS = """
    [limbeck.objectives]
    absolute = plugged:absolute
    [limbeck.methods]
    absolutely = plugged:absolutely
"""


@pytest.mark.parametrize("code", [ITEMS, DECORATED], ids=["items", "decorated"])
@pytest.mark.parametrize("imported_first", [False, True], ids=["asked for", "imported first"])
def test_names_are_known_before_anything_is_imported_and_are_not_given_twice(install, code, imported_first):
    install("plugged", code, ENTRY_POINTS)
    assert "absolutely" in METHODS
    assert list(METHODS)[-1] == "absolutely"
    assert "plugged" not in sys.modules
    if imported_first:
        importlib.import_module("plugged")
    assert METHODS["absolutely"].summary == "Absolutely."
    assert OBJECTIVES["absolute"].unit == "token"
    assert plugins_in_use() == [{"distribution": "plugged", "version": "1.2"}]
    assert dict(METHODS.items())["absolutely"] is METHODS["absolutely"]
    with pytest.raises(PluginError, match="'absolute' already exists"):
        register_as_objective(unit="token", name="absolute")(lambda student, teacher: None)


@pytest.mark.parametrize(
    ("code", "target", "said"),
    [
        ("import no_such_module_at_all", "METHOD", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("1 / 0", "METHOD", "ZeroDivisionError"),
        ("", "METHOD", "has no attribute 'METHOD'"),
        ("METHOD = 3", "METHOD", "'broken' is a int, no limbeck.methods.Method"),
        (ITEMS, "absolutely", "its own name is 'absolutely'"),
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
        assert said in message and "\n" not in message


def test_a_name_that_is_taken_is_refused(install):
    install("plugged", ITEMS, "[limbeck.methods]\nminilm = plugged:absolutely\n")
    with pytest.raises(PluginError, match=r"of the distribution plugged 1\.2 adds a method that there is already"):
        METHODS["minilmv2"]


def test_a_run_from_recipe_to_student(install, tiny_recipe):
    install("plugged", ITEMS, ENTRY_POINTS)
    tiny_recipe["stages"][0] |= {"method": {"name": "absolutely", "mapping": "last"}}
    result = limbeck.distill(tiny_recipe)
    assert result.record["stages"][0]["method"] == "absolutely"
    assert {"distribution": "plugged", "version": "1.2"} in result.record["plugins"]
    assert Path(tiny_recipe["output"], "student", "model.safetensors").is_file()
