"""What pages and headers say is what tables print and recipes do."""

import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from recipes.generator.collection import all_recipes

from limbeck.api.requests.fields import options_of
from limbeck.api.requests.search import MappingRequest
from limbeck.evaluation.protocols.published import read_rows
from limbeck.methods import METHODS
from limbeck.objectives import OBJECTIVES
from tests.objectives import reference

ROOT = Path(__file__).parents[2]
RECIPES = [recipe for section in all_recipes().values() for recipe in section]


def page(name):
    return re.sub(r"\s+", " ", (ROOT / "docs" / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def columns():
    """The comparative study's table 3: (multilingual, figure, shape) to method to mapping or layer to value."""
    found = defaultdict(lambda: defaultdict(dict))
    for row in read_rows("comparative_study"):
        if row.table == "3" and row.teacher:
            method, _, choice = row.model.partition(", ")
            figures = {"GLUE": row.average_without_cola, "XNLI": row.scores.get(("xnli", "accuracy"))}
            for figure, value in figures.items():
                if value is not None:
                    found[row.multilingual, figure, row.shape][method][choice] = value
    assert len(found) == 12
    return found


def test_how_often_a_mapping_is_best(columns):
    states = [methods["hidden states"] for methods in columns.values()]
    best = sum(max(found.values()) == found["uniform and last"] for found in states)
    near = sum(max(found.values()) - found["uniform and last"] < 0.201 for found in states)
    assert re.search(r"in (\d+) of 12 comparisons", page("guides/choosing.md"))[1] == str(best)
    assert re.search(r"within 0\.2 of the best, in (\d+) of its 12", page("methods/hidden_states.md"))[1] == str(near)


def test_the_lead_of_relations_over_hidden_states(columns):
    leads = defaultdict(list)
    for (multilingual, figure, _), methods in columns.items():
        lead = max(methods["MiniLMv2"].values()) - max(methods["hidden states"].values())
        leads[figure if figure == "XNLI" else ("English", "multilingual")[multilingual] + " GLUE"].append(lead)
    for name, found in leads.items():
        row = re.search(rf"\| {name}[^|]* \| (-?\d+\.\d) \| (-?\d+\.\d) \|", page("guides/choosing.md"))
        assert [float(one) for one in row.groups()] == pytest.approx([min(found), max(found)]), name


def test_soft_labels_after_hidden_states_and_layers_below_the_last(columns):
    """'Did not help … in most columns', and the last but one or the one before 'a little better'."""
    helped = [max(one["output distribution"].values()) - max(one["hidden states"].values()) for one in columns.values()]
    assert sum(gain > 0 for gain in helped) < len(helped) / 2
    below = [max(found["layer 11"], found["layer 10"]) >= found["layer 12"] for found in
             (one["MiniLMv2"] for one in columns.values())]  # fmt: skip
    assert all(below)


def test_a_header_says_a_random_start_only_where_it_is_one():
    for recipe in RECIPES:
        students = [recipe.body["student"], *(stage.get("student") or {} for stage in recipe.body.get("stages", ()))]
        is_random = any(one.get("initialise", {}).get("layers") == "random" for one in students)
        assert is_random or not any("random start" in line for line in recipe.chosen), recipe.name


def test_the_masked_words_that_appendix_e_does_not_list_are_said():
    recipes = [recipe for recipe in RECIPES if recipe.name.startswith("comparative-distilbert")]
    assert recipes
    for recipe in recipes:
        (method,) = [stage["method"] for stage in recipe.body["stages"] if stage["method"]["name"] == "distilbert"]
        weight = method.get("hard_label_weight", METHODS["distilbert"].options().hard_label_weight)
        kept = f"masked-language-modelling term of the published script is kept with weight {float(weight):g}"
        assert any(kept in line for line in recipe.differs), recipe.name


def test_headers_say_how_many_runs_and_which_figures_as_the_tables_do():
    """MiniLMv2 says four runs of tables 1 and 3 alone; STS-B is a correlation, of QQP and MRPC's test sets F1 is."""
    tables = ROOT / "src" / "limbeck" / "evaluation" / "data" / "published" / "minilmv2.yaml"
    runs = {one["table"]: one.get("runs") for one in yaml.safe_load(tables.read_text(encoding="utf-8"))["tables"]}
    recipes = [recipe for recipe in RECIPES if recipe.paper.startswith("MiniLMv2")]
    for recipe in recipes:
        table = re.match(r"table (\d+)", recipe.row)[1]
        assert ("mean of 4 runs" in recipe.measure) is (runs[table] == 4), recipe.name
        assert ("correlation for STS-B" in recipe.measure) is ("STS" in recipe.published), recipe.name
        assert ("QQP and MRPC" in recipe.measure) is ("test sets" in recipe.measure), recipe.name
    assert {re.match(r"table (\d+)", recipe.row)[1] for recipe in recipes} == {"1", "3", "4", "5", "7", "8", "9", "10"}


def test_the_default_teacher_layer_of_each_method_is_named():
    said = page("guides/choosing.md")
    assert (
        METHODS["minilmv2"].options().teacher_layer == "auto" and METHODS["direct_minilm"].options().teacher_layer == -2
    )
    assert "| `direct_minilm` | any | the last but one |" in said


def test_every_objective_has_a_plain_transcription():
    assert {name for name in OBJECTIVES if not callable(getattr(reference, name, None))} == set()


def test_headers_of_task_students_say_what_values_and_pickled_starts_need():
    needs = {"squared error, since it has no distribution": [], "--read-pickled": []}
    value, pickled = needs.values()
    for recipe in RECIPES:
        head = re.sub(r"\n#\s+", " ", recipe.text.partition("\n\n")[0])
        if recipe.body.get("corpus", {}).get("task", {}).get("kind") == "regression":
            value.append((recipe.name, head))
        if "checkpoint" in recipe.body["student"].get("initialise", {}):
            pickled.append((recipe.name, head))
    assert len(value) == 7 and len(pickled) > 50
    missing = [name for words, found in needs.items() for name, head in found if words not in head]
    assert not missing


def test_a_row_of_elm_has_one_figure_of_mnli():
    found = [recipe for recipe in RECIPES if recipe.name.startswith("tinybert-4l-mnli-elm")]
    assert [recipe.published["MNLI"] for recipe in found] == ["82.8", "82.9"]


def test_the_search_of_elm_is_fine_tuned_as_the_paper_has_it():
    readme = (ROOT / "recipes" / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"limbeck search mapping recipes.*", readme)
    given = {name: option.default for name, option in options_of(MappingRequest).items()}
    assert given["preset"] == "quick" and "--preset elm " in command
    rates = ("crossover", "exchange", "mutation", "flip")
    assert (given["share"], given["generations"], *(given[rate] for rate in rates)) == (0.1, 5, 0.2, 0.2, 0.8, 0.05)
