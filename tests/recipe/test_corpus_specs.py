"""Streams and mixes in a recipe: what they come to, and what is refused."""

from __future__ import annotations

import pytest

from limbeck.corpus import Mix
from limbeck.errors import RecipeError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run


def settings_of(recipe):
    return plan_run(load_recipe(recipe)).stages[0].corpus


def test_streaming_and_mix_reach_the_corpus(tiny_recipe):
    sources = [*tiny_recipe["corpus"]["sources"], "https://example.org/more.jsonl.zst"]
    tiny_recipe["corpus"] |= {"sources": sources, "streaming": True, "shuffle_buffer": 77, "mix": {"weights": [1, 2]}}
    settings = settings_of(tiny_recipe)
    assert (settings.streaming, settings.shuffle_buffer, settings.mix) == (True, 77, Mix(weights=(1.0, 2.0)))
    tiny_recipe["corpus"] |= {"mix": {"exponent": 0.3}}
    del tiny_recipe["corpus"]["shuffle_buffer"]
    settings = settings_of(tiny_recipe)
    assert (settings.shuffle_buffer, settings.mix) == (10_000, Mix(exponent=0.3))


def test_a_corpus_is_built_unless_said_otherwise(tiny_recipe):
    settings = settings_of(tiny_recipe)
    assert not settings.streaming
    assert settings.mix is None


@pytest.mark.parametrize("steps", [None, -1, 0])
def test_a_stream_needs_a_number_of_steps(tiny_recipe, steps):
    tiny_recipe["corpus"]["streaming"] = True
    training = tiny_recipe["stages"][0]["training"]
    del training["max_steps"]
    if steps is not None:
        training["max_steps"] = steps
    with pytest.raises(RecipeError, match=r"stages\.0\.training\.max_steps is"):
        plan_run(load_recipe(tiny_recipe))
