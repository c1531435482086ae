"""What `limbeck methods NAME --recipe` prints can be run as it is, once its names are one's own."""

import pytest
import yaml
from transformers import BertConfig

from limbeck.methods import METHODS
from limbeck.recipe import load_recipe, plan_run
from limbeck.recipe.method_recipe import method_recipe, method_terms, stages_of

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
    shape, composed = method_terms(name)
    assert written["student"]["shape"] == shape
    assert [[term.name for term in stage.terms] for stage in plan.stages] == [
        [term.name for term in terms] for _, terms in composed
    ]
    for stage, spec in zip(stages_of(METHODS[name]), written["stages"], strict=True):
        other = f"Stage {3 - stage['stage']}:" if "stage" in stage else None
        fields = METHODS[stage["name"]].options.model_fields.items()
        meant = {key for key, field in fields if other is None or not field.description.startswith(other)}
        assert set(spec["method"]) - {"name"} == meant
    rates = {stage["training"]["learning_rate"] for stage in written["stages"]}
    assert rates == ({5e-4} if METHODS[name].tasks[0] == "text" else {2e-5})
