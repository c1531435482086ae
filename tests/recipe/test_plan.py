"""Contradictions across fields are refused before any weight is loaded."""

import shutil
from pathlib import Path

import pytest
import yaml

from limbeck.corpus import Mix
from limbeck.errors import LimbeckError
from limbeck.recipe import load_recipe, plan_run
from tests.support.models import make_teacher


def plan(recipe, *overrides):
    return plan_run(load_recipe(recipe, overrides))


def test_sources_that_may_be_there_pass(tiny_recipe, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    for source in ("hub:someone/texts", "someone/texts", "installed-docs", f"{tmp_path}/*.txt", "https://host/a.jsonl"):
        assert plan(tiny_recipe | {"corpus": {"sources": [source], "length": 32}}).stages


@pytest.mark.parametrize("source", ["x" * 3000, "x" * 3000 + "*", "a/" * 2040], ids=lambda name: name[:9])
def test_names_that_no_file_can_have_are_not_there(tiny_recipe, source):
    with pytest.raises(LimbeckError, match="does not exist; give a file"):
        plan(tiny_recipe | {"corpus": {"sources": [source], "length": 32}})


def test_a_plan_needs_no_weights(tiny_recipe, bert_folder, tmp_path):
    folder = shutil.copytree(bert_folder, tmp_path / "config-only", ignore=shutil.ignore_patterns("*.safetensors"))
    found = plan(tiny_recipe, f"teacher.model={folder}")
    assert (found.student.layers, found.student.hidden, found.student.ffn) == (2, 24, 48)
    assert [term.name for term in found.stages[0].terms] == ["query_query", "key_key", "value_value"]


REFUSALS = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))
LONG = [
    ["5,000 characters", f"name={'x' * 5000}"],
    ["index from 0 to 0", f"stages.{'9' * 5000}.name=x"],
    ["nothing is that deep", f"stages.0.training.{'a.' * 60}b=1"],
    ["levels", f"stages.0.training.optim_args={'[' * 49}{']' * 49}"],
]


@pytest.mark.parametrize("case", [*REFUSALS, *LONG], ids=lambda case: case[-1][:60])
def test_values_that_cannot_be_meant(tiny_recipe, case):
    message, *overrides = case
    with pytest.raises(LimbeckError) as caught:
        plan(tiny_recipe, *overrides)
    assert message in str(caught.value)


def test_a_bare_no_is_a_strategy(tiny_recipe):
    plan(tiny_recipe, "stages.0.training.eval_strategy=no", "stages.0.training.save_strategy=no")


def test_sample_terms_are_planned_without_accumulation(tiny_recipe):
    plan(tiny_recipe, "stages.0.method={name: sentence_embedding, sample_relation_weight: 1.0}")


def test_a_checkpoint_of_another_vocabulary_is_refused(tiny_recipe, tmp_path):
    other = make_teacher(tmp_path / "other", "bert")
    vocabulary = (other / "tokenizer.json").read_text(encoding="utf-8")
    (other / "tokenizer.json").write_text(vocabulary.replace('"teacher"', '"pupil"'), encoding="utf-8")
    tiny_recipe["student"] = {"shape": {"layers": 4, "hidden": 48, "heads": 4, "ffn": 96}}
    with pytest.raises(LimbeckError, match="pupil|teacher"):
        plan(tiny_recipe, f"student.initialise.checkpoint={other}")


def test_a_checkpoint_of_another_shape_is_refused(tiny_recipe, bert_folder):
    with pytest.raises(LimbeckError, match="change one of them"):
        plan(tiny_recipe, f"student.initialise.checkpoint={bert_folder}")


def test_stage_text_wins_over_the_corpus(tiny_recipe):
    tiny_recipe["stages"][0]["text"] = {"unit": "sentence", "length": 16}
    settings = plan(tiny_recipe).stages[0].corpus
    assert (settings.unit, settings.length, settings.held_out) == ("sentence", 16, 0.2)


def test_streaming_and_mix_reach_the_corpus(tiny_recipe):
    def chosen(**changes):
        settings = plan(tiny_recipe | {"corpus": tiny_recipe["corpus"] | changes}).stages[0].corpus
        return settings.streaming, settings.shuffle_buffer, settings.mix

    sources = [*tiny_recipe["corpus"]["sources"], "https://example.org/more.jsonl.zst"]
    streamed = {"sources": sources, "streaming": True}
    assert chosen(**streamed, shuffle_buffer=77, mix={"weights": [1, 2]}) == (True, 77, Mix(weights=(1.0, 2.0)))
    assert chosen(**streamed, mix={"exponent": 0.3}) == (True, 10_000, Mix(exponent=0.3))
    assert chosen() == (False, 10_000, None)
