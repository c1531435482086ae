"""What is unfinished or damaged is reported as far as it goes; what is nothing of ours is refused in a line."""

import copy
import json
import shutil
from random import Random
from types import SimpleNamespace

import pytest

from limbeck.core.blocks import Table
from limbeck.core.records import PlannedStage, Stage
from limbeck.errors import OutputError
from limbeck.report.collect import collect
from limbeck.report.figures import course_figures
from limbeck.report.findings import Curve, StageFound, StageLog
from limbeck.report.page import build_page, render_html
from tests.golden.committed import FOLDERS


def sections(page):
    return [section.title for part in page.parts for section in part.sections]


def figures_of(page):
    return {figure.title: figure for figure in page.figures()}


def table_of(page, caption):
    """The cells of the rows of a table."""
    blocks = (block for part in page.parts for section in part.sections for block in section.blocks)
    table = next(block for block in blocks if isinstance(block, Table) and block.caption == caption)
    return [tuple(map(str, row)) for row in table.rows]


@pytest.mark.parametrize(
    ("taken", "held"),
    [
        ((), "they hold the values that they were started with."),
        (("a.b.c", "d.e.f"), "they hold the teacher's values."),
        (("d.e.f",), "1 holds the teacher's values, the others the values that they were started with."),
    ],
)
def test_parameters_that_nothing_trained_are_a_warning(copied, page_of, taken, held):
    def spoil(record):
        record["untrained"] = {"names": ["a.b.c", "d.e.f"], "from_teacher": list(taken)}
        record["stages"][0] |= {"skipped_steps": 3, "rows_of_a_piece": 4}

    warnings = page_of(copied(edit=spoil), render=False).warnings()
    assert any(line.endswith(f"(a, d): {held}") for line in warnings)
    assert "skipped 3 steps" in " ".join(warnings) and "pieces of 4 rows" in " ".join(warnings)


def test_agreement_is_no_share_of_the_teachers(copied, change, page_of):
    models = {"teacher": {"retrieval": {"mrr_at_10": 0.8}}, "student": {"retrieval": {"mrr_at_10": 0.6}}}
    found = {"agreement": {"spearman": 0.926}}
    folder = copied(edit={"evaluation": found | models})
    assert "; retrieval MRR@10, held out 0.600 (75.0% of the" in page_of(folder, render=False).parts[0].subtitle
    change(folder, {"evaluation": found})
    subtitle = page_of(folder, render=False).parts[0].subtitle
    assert subtitle.endswith("agreement with the teacher (Spearman) 0.926")


def test_the_loss_at_the_end_is_that_of_the_record_else_of_the_log(copied, change, page_of):
    folder = copied()
    for edit in ({}, lambda record: [stage.pop("final_loss") for stage in record["stages"]]):  # As older versions.
        rows = table_of(page_of(change(folder, edit), render=False), "Terms of the loss")
        assert [row[2] for row in rows if row[1] == "loss (weighted sum)"] == ["0.046029", "2.0017"]


@pytest.mark.parametrize("name", ["run", "", None])
def test_what_nobody_named_is_called_by_its_folder(copied, page_of, name):
    assert page_of(copied(name="mine", edit={"name": name}), render=False).title == "mine: run"


@pytest.mark.parametrize("text", [None, '{"name": "a', "[1]", ""], ids=["removed", "torn", "list", "empty"])
def test_a_run_without_its_record_is_shown_by_its_stages(copied, page_of, text):
    folder = copied()
    (folder / "run.json").unlink()
    if text is not None:
        (folder / "run.json").write_text(text)
    page = page_of(folder)
    assert "missing or damaged" in page.warnings()[0]
    assert "Stage 'hidden_states': Loss" in figures_of(page) and "Recipe" in sections(page)
    assert table_of(page, "Stages")[0][1] == "minilmv2", "the method is in stage.json"


JUNK = ["text", -1, None, [], [None, 3], {"a": {"b": "c"}}, float("nan"), 10**400, True]


def spoiled(record, random):
    """Put junk, or nothing, into the place of any value of a record, at any depth."""
    whole = copy.deepcopy(record)
    place, key = None, None
    below = whole
    while isinstance(below, dict | list) and below and (place is None or random.random() < 0.8):
        place, key = below, random.choice(list(below) if isinstance(below, dict) else range(len(below)))
        below = place[key]
    if random.random() < 0.2:
        del place[key]
    else:
        place[key] = random.choice(JUNK)
    return whole


RECORDS = {
    "finished": "run.json",
    "comparison-with-costs": "comparison.json",
    "search-mapping": "search.json",
    "large-search-architecture": "search.json",
    "search-teacher-layer": "search.json",
    "large-evaluation": "evaluation_table.json",
    "inspections": "attention.json",
}


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_records_with_anything_anywhere_never_stop_a_report(copied, rounds):
    """Every round spoils and draws a folder of every kind."""
    random = Random(rounds)
    places = [copied(kind, kind) / name for kind, name in RECORDS.items()]
    wholes = [json.loads(place.read_text()) for place in places]
    for _ in range(rounds):
        for place, whole in zip(places, wholes, strict=True):
            place.write_text(json.dumps(spoiled(whole, random)))
            render_html(build_page(collect([place.parent])))


def test_what_was_built_before_the_damage_is_kept(copied, change, page_of):
    folder = copied("search-mapping", edit=lambda record: record.pop("cost"))
    page = page_of(folder)
    assert "Evolution of the fitness" in figures_of(page)
    assert any("incomplete or damaged (TypeError" in line for line in page.warnings())
    change(folder, {"candidates": [3]})
    assert "'search.json': candidates.0 is damaged" in " ".join(page_of(folder).warnings())


def test_a_comparison_that_is_not_finished_says_how_its_runs_stand(copied, change, page_of):
    folder = copied("comparison-with-costs", edit={"status": "running", "summary": None})
    last = folder / json.loads((folder / "comparison.json").read_text())["cells"][-1]["folder"]
    change(last, {"status": "running", "name": "last"})
    beat = {"activity": "training", "stage": "a", "stage_number": 1, "stages": 1, "step": 3, "steps": 40, "loss": 2.5}
    (last / "heartbeat.json").write_text(json.dumps(beat))
    rows = table_of(page_of(folder), "Runs that are not finished")
    assert [row[:6] for row in rows] == [("last", "dead", "a (1 of 1)", "3 of 40", "2.5", "–")]
    assert not collect([change(folder, {"status": "finished"})])[0].unfinished


def test_a_comparison_names_no_files_outside_of_it(copied):
    copied(name="other")
    folder = copied(
        "comparison-with-costs", edit=lambda record: [cell.update(folder="../other") for cell in record["cells"]]
    )
    assert collect([folder])[0].runs == ()


def layers_of(page, stage):
    return figures_of(page).get(f"Stage '{stage}': which layers learn from which")


def test_a_stage_taught_by_an_assistant_joins_the_assistants_layers(copied, change, page_of):
    def teach(record):
        record["recipe"]["stages"][0]["student"] = {"shape": "3x48"}
        record["recipe"]["stages"][1]["teacher"] = {"stage": "minilmv2", "model": None}
        record["stages"][0]["student"] = {"shape": "bert 3x48, 4 heads, FFN 96"}
        record["stages"][1]["teacher"] = "the student of stage minilmv2"
        for stage in record["stages"]:
            del stage["layers"]  # As records of old are.

    folder = copied(edit=teach)
    page = page_of(folder)
    assert layers_of(page, "minilmv2").description.startswith("Student of 3 layers, teacher of 3.")
    assert layers_of(page, "hidden_states").description.startswith("Student of 2 layers, teacher of 3.")
    change(folder, lambda record: record["recipe"]["stages"][1].update(teacher={"model": "another/one"}))
    page = page_of(folder)
    assert layers_of(page, "hidden_states") is None
    assert "Of 'hidden_states' the layers cannot be drawn" in str(page.parts)


def test_the_layers_of_a_stage_with_another_teacher_are_those_of_its_record(copied, change, page_of):
    def teach(record):
        record["recipe"]["stages"][1]["teacher"] = {"model": "another/one"}
        record["stages"][1]["layers"] = [{"student": [2], "teacher": [7], "terms": ["key_key", "value_value"]}]

    folder = copied(edit=teach)
    figure = layers_of(page_of(folder), "hidden_states")
    assert figure.description == "Student of 2 layers, teacher of 7 or more. key_key: 2 from 7. value_value: 2 from 7."
    assert figure.data.rows == (("key_key", "2", "7"), ("value_value", "2", "7"))
    assert "layers above the highest that takes part are not drawn" in figure.caption
    change(folder, lambda record: record["recipe"]["stages"][1].update(teacher=None))
    figure = layers_of(page_of(folder), "hidden_states")
    assert figure.description.startswith("Student of 2 layers, teacher of 7. "), "the record counts, not the recipe"


@pytest.mark.parametrize(
    "layers",
    [None, 3, [3], [{"student": [1]}], [{"student": [-1], "teacher": [10**9], "terms": ["a"]}],
     [{"student": "1", "teacher": [True], "terms": "a"}], [{"student": [1], "teacher": [2], "terms": []}]],
    ids=repr,
)  # fmt: skip
def test_recorded_layers_that_are_none_are_not_drawn(copied, page_of, layers):
    folder = copied(edit=lambda record: record["stages"][0].update(layers=layers))
    figure = layers_of(page_of(folder, render=False), "minilmv2")
    assert figure.description.startswith("Student of 2 layers, teacher of 3. relation_kl (query): 2 from 3.")


def test_an_evaluation_without_a_table_shows_its_cells(tmp_path, page_of):
    (tmp_path / "evaluation.json").write_text('{"preset": "quick", "set": ["epochs=1"]}')
    (tmp_path / "results.jsonl").write_text(
        '{"id": "1", "status": "finished", "model": "m/a", "task": "rte", "seed": 1, "seconds": 3, '
        '"scores": {"validation": {"accuracy": 0.625, "f1": NaN}}}\n'
        '{"id": "2", "status": "failed", "model": "m/a", "task": "cola", "seed": 1, "error": "no memory"}\n{torn'
    )
    page = page_of(tmp_path)
    assert table_of(page, "Cells") == [
        ("m/a", "rte", "1", "finished", "accuracy 62.5", "3"),
        ("m/a", "cola", "1", "failed", "no memory", "–"),
    ]
    assert "not finished" in page.warnings()[0] and "m/a on cola: no memory" in page.warnings()[1]


def test_what_lies_in_a_runs_folder_is_part_of_it(copied, page_of):
    folder = copied()
    shutil.copytree(FOLDERS["inspections"], folder / "look")
    shutil.copytree(FOLDERS["search-mapping"], folder / "before")
    (folder / "look" / "similarity.json").write_text("{")
    page = page_of(folder)
    titles = sections(page)
    assert "Attention (look)" in titles and "Evolution (mapping)" in titles
    assert titles.index("Attention (look)") < titles.index("Recipe")
    assert any("'similarity.json' cannot be read as an inspection" in line for line in page.warnings())


def test_folders_side_by_side_are_told_apart(copied, page_of):
    folders = [copied(name=name) for name in ("one", "two")]
    page = page_of(*folders, FOLDERS["search-mapping"], folders[0])
    assert [part.title for part in page.parts] == ["Side by side", "shipped (one)", "shipped (two)", "search-mapping"]
    owners = {line.split(": ")[0] for line in page.warnings()}
    assert owners == {"shipped (one)", "shipped (two)"}, "a warning says whose it is"
    names = [figure.name for figure in page.figures()]
    assert len(names) == len(set(names))


def run_with(label, method, losses):
    """A run of one stage that logged these losses."""
    points = tuple((float(step), loss) for step, loss in enumerate(losses, start=1))
    log = StageLog("log.jsonl", {"loss": Curve(points, (), len(points))} if points else {}, lines=len(points))
    return label, SimpleNamespace(stages=(StageFound("stage", Stage(method=method), PlannedStage(), log),))


def test_losses_of_different_methods_are_shares_of_their_start():
    runs = [run_with("a", "elm", [8.0, 4.0, 2.0]), run_with("b", "mlm", [3.0, 1.5])]
    alike, shares = course_figures([*runs, run_with("c", "mlm", []), run_with("d", "mlm", [0.0, 1.0])])
    assert alike.title == "Stage 'stage' (mlm) of the runs" and "on no common scale" in shares.caption
    assert shares.data.headings == ("step", "a", "b"), "a share of nothing is nothing"
    assert shares.data.rows == (("1", "1", "1"), ("2", "0.5", "0.5"), ("3", "0.25", "–"))


def test_many_runs_are_drawn_in_figures_whose_lines_are_told_apart():
    figures = list(course_figures([run_with(f"run {n}", "elm", [2.0, 1.0 + n]) for n in range(13)]))
    assert [len(figure.data.headings) - 1 for figure in figures] == [5, 5, 3]
    assert figures[2].title.endswith("(3 of 3)") and figures[2].data.headings[-1] == "run 12"


def test_what_is_nothing_of_ours_is_refused_with_what_would_be_right(tmp_path):
    (tmp_path / "notes.txt").write_text("no run")
    shipped = FOLDERS["finished"].parent
    for path, parts in (
        (tmp_path, ("run.json", "comparison.json", "search.json", "attention.json")),
        (tmp_path / "missing", ("does not exist",)),
        (tmp_path / "notes.txt", ("a file of no inspection",)),
        (shipped, ("there are some in it", str(shipped / "comparison"))),
    ):
        with pytest.raises(OutputError) as error:
            collect([path])
        assert "\n" not in str(error.value) and all(part in str(error.value) for part in (str(path), *parts))


def test_the_file_of_an_inspection_will_do(page_of):
    assert sections(page_of(FOLDERS["inspections"] / "similarity.json")) == ["Similarity of layers"]
