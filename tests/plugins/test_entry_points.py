"""Installed distributions add methods and objectives; a broken one harms only who asks for what it adds."""

import sys
from pathlib import Path

import pytest

import limbeck
from limbeck.core.registry import plugins_in_use
from limbeck.errors import PluginError
from limbeck.methods import METHODS
from limbeck.objectives import OBJECTIVES

CODE = """
    import torch

    from limbeck.methods import Method, MethodOptions, Term
    from limbeck.models.streams import StreamKey
    from limbeck.objectives import LossTerm, Objective


    def absolute(student, teacher, *, valid=None):
        difference = (student[valid] - teacher[valid].detach()).abs()
        return LossTerm(difference.sum(), torch.tensor(float(difference.numel())))


    class Options(MethodOptions):
        weight: float = 2.0


    def compose(options, pairing):
        student, teacher = StreamKey("embedding", 0), StreamKey("embedding", 0)
        return [Term("absolute", "absolute_error", (student,), (teacher,), options.weight)]


    OBJECTIVE = Objective("absolute_error", absolute, 1, "token", takes_valid=True)
    METHOD = Method("absolute_embeddings", "Embeddings, by absolute error.", Options, compose)
    OTHER = Method("another_name", "Called otherwise.", Options, compose)
"""
ENTRY_POINTS = """
    [limbeck.objectives]
    absolute_error = {module}:OBJECTIVE

    [limbeck.methods]
    absolute_embeddings = {module}:METHOD
"""


def test_names_are_known_before_anything_is_imported(install):
    install("plugged_a", CODE, ENTRY_POINTS.format(module="plugged_a"))
    assert "absolute_embeddings" in METHODS
    assert list(METHODS)[-1] == "absolute_embeddings"
    assert "plugged_a" not in sys.modules
    assert METHODS["absolute_embeddings"].options().weight == 2.0
    assert OBJECTIVES["absolute_error"].unit == "token"
    assert plugins_in_use() == [{"distribution": "plugged_a", "version": "1.2"}]
    assert dict(METHODS.items())["absolute_embeddings"] is METHODS["absolute_embeddings"]


@pytest.mark.parametrize(
    ("code", "target", "said"),
    [
        ("import no_such_module_at_all", "METHOD", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("1 / 0", "METHOD", "ZeroDivisionError"),
        ("", "METHOD", "has no attribute 'METHOD'"),
        ("METHOD = 3", "METHOD", "'broken' is a int, no limbeck.methods.Method"),
        (CODE, "OTHER", "its own name is 'another_name'"),
    ],
)
def test_a_broken_one_is_one_line_that_names_its_distribution(install, code, target, said):
    install("plugged_b", code, f"[limbeck.methods]\nbroken = plugged_b:{target}\n")
    assert METHODS["minilm"].name == "minilm"
    for read in (lambda: METHODS["broken"], lambda: dict(METHODS.items())):
        with pytest.raises(PluginError) as caught:
            read()
        message = str(caught.value)
        assert message.startswith("The entry point 'broken' (limbeck.methods) of the distribution plugged_b 1.2")
        assert said in message
        assert "\n" not in message


def test_a_name_that_is_taken_is_refused(install):
    install("plugged_c", CODE, "[limbeck.methods]\nminilm = plugged_c:METHOD\n")
    with pytest.raises(PluginError, match=r"of the distribution plugged_c 1\.2 adds a method that there is already"):
        METHODS["minilmv2"]


def test_a_run_from_recipe_to_student(install, tiny_recipe):
    install("plugged_d", CODE, ENTRY_POINTS.format(module="plugged_d"))
    tiny_recipe["student"]["shape"] |= {"hidden": 48}
    tiny_recipe["evaluation"] = {"enabled": False}
    tiny_recipe["stages"][0] |= {"method": {"name": "absolute_embeddings", "weight": 3.0}}
    result = limbeck.distill(tiny_recipe)
    assert result.record["stages"][0]["method"] == "absolute_embeddings"
    assert Path(tiny_recipe["output"], "student", "model.safetensors").is_file()
