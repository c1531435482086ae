"""What `limbeck methods NAME --recipe` prints can be run as it is, once its names are one's own."""

import re

import pytest
import yaml
from transformers import BertConfig

from limbeck.core.yaml import parse_yaml
from limbeck.methods import METHODS
from limbeck.methods.cards import read_card
from limbeck.recipe import load_recipe, plan_run
from limbeck.recipe.method_recipe import compose_example, method_recipe, stages_of

_OF_TEXTS = "BertForSequenceClassification"
_SAVED_BY = {"text": "BertForMaskedLM", "classification": _OF_TEXTS, "ranking": _OF_TEXTS}
_ROWS = "sentence1\tsentence2\tlabel\na text\tanother\t0\na text\ta third\t1\n"
_RANKED_ROWS = "query\tpositive\tnegatives\nwhat\tthis\tthat\nwho\tshe\tit\n"


@pytest.mark.parametrize("name", METHODS)
def test_the_recipe_of_a_method_can_be_planned(name, tmp_path):
    written = yaml.safe_load(method_recipe(name))
    config = BertConfig(num_labels=1 if METHODS[name].tasks[0] == "ranking" else 3)
    config.architectures = [_SAVED_BY[METHODS[name].tasks[0]]]
    config.save_pretrained(tmp_path / "teacher")
    rows = _RANKED_ROWS if METHODS[name].tasks[0] == "ranking" else _ROWS
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    written["teacher"]["model"] = str(tmp_path / "teacher")
    if METHODS[name].tasks[0] != "text":
        written["corpus"]["sources"] = [str(tmp_path / "train.tsv")]
    plan = plan_run(load_recipe(written))
    _, composed = compose_example(name)
    assert len(plan.stages) == len(composed)
    assert all(stage.terms for stage in plan.stages)
    for stage, spec in zip(stages_of(METHODS[name]), written["stages"], strict=True):
        other = f"Stage {3 - stage['stage']}:" if "stage" in stage else None
        fields = METHODS[stage["name"]].options.model_fields.items()
        meant = {key for key, field in fields if other is None or not field.description.startswith(other)}
        assert set(spec["method"]) - {"name"} == meant
    for stage, said in zip(written["stages"], recommended(name)["stages"], strict=True):
        for part in ("method", "training"):
            assert stage[part] == stage[part] | said[part], "what the card recommends"
    if name != "mlm":  # Taught by no teacher, so it starts from none.
        assert load_recipe(written).student.initialise.layers != "random"


def recommended(name):
    [block] = re.findall(r"## Recipe\n\n```yaml\n(.*?)```", read_card(name), re.DOTALL)
    return parse_yaml(block, name)


@pytest.mark.parametrize("name", [name for name in METHODS if "package:" in method_recipe(name)])
def test_the_recipe_fits_the_packaged_teacher(name, tmp_path):
    config = BertConfig(num_hidden_layers=6, hidden_size=384, intermediate_size=1536)
    config.architectures = ["BertModel"]
    config.save_pretrained(tmp_path / "teacher")
    written = yaml.safe_load(method_recipe(name))
    written["teacher"]["model"] = str(tmp_path / "teacher")
    assert plan_run(load_recipe(written)).stages
