"""What is unfinished or damaged is reported as far as it goes; what is nothing of ours is refused in a line."""

import copy
import json
import shutil
from random import Random
from types import SimpleNamespace

import pytest

from limbeck.core.blocks import Figure, Table
from limbeck.core.records import PlannedStage, Stage
from limbeck.errors import OutputError
from limbeck.report.collect import collect
from limbeck.report.figures import course_figures
from limbeck.report.findings import Curve, StageFound, StageLog
from limbeck.report.html import render_html
from limbeck.report.page import build_page
from tests.support.page_document import Document


def page_of(*folders):
    page = build_page(collect(folders))
    Document(render_html(page))
    return page


def sections(page):
    return [section.title for part in page.parts for section in part.sections]


def figures_of(page):
    return [figure.title for figure in page.figures()]


def test_a_finished_run_has_all_of_its_sections(run_folder):
    page = page_of(run_folder)
    assert sections(page) == [
        "What was done", "Teacher beside student", "Layers", "Training", "Recipe", "Provenance", "Sources",
    ]  # fmt: skip
    titles = figures_of(page)
    assert "Stage 'layers': which layers learn from which" in titles
    assert "Stage 'relations': Term query_query" in titles and "Stage 'layers': Loss" in titles
    assert not any("damaged" in line for line in page.warnings())


def test_parameters_that_nothing_trained_are_a_warning(copied_run, change_record):
    folder = copied_run()
    change_record(
        folder / "run.json",
        lambda record: record.update(
            untrained={
                "names": ["encoder.layer.1.output.dense.weight", "pooler.dense.bias"],
                "from_teacher": ["pooler.dense.bias"],
            }
        ),
    )
    change_record(folder / "run.json", lambda record: record["stages"][0].update(skipped_steps=3, rows_of_a_piece=4))
    (folder / "student").mkdir(exist_ok=True)
    warnings = " ".join(page_of(folder).warnings())
    assert (
        "2 tensors of the student were trained by no stage (encoder.layer.1.output, pooler): 1 holds the teacher's "
        in warnings
    )
    assert "values, the others the values that they were started with." in warnings
    assert "skipped 3 steps" in warnings and "pieces of 4 rows" in warnings


@pytest.mark.parametrize(("taken", "held"), [((), "they hold the values that they were started with."),
                                               (("a.b.c", "d.e.f"), "they hold the teacher's values.")])  # fmt: skip
def test_what_untrained_parameters_hold_is_a_sentence(copied_run, change_record, taken, held):
    folder = copied_run()
    untrained = {"names": ["a.b.c", "d.e.f"], "from_teacher": list(taken)}
    change_record(folder / "run.json", lambda record: record.update(untrained=untrained))
    assert any(line.endswith(f"(a, d): {held}") for line in page_of(folder).warnings())


def test_agreement_is_no_share_of_the_teachers(copied_run, change_record):
    folder = copied_run()
    models = {"teacher": {"retrieval": {"mrr_at_10": 0.8}}, "student": {"retrieval": {"mrr_at_10": 0.6}}}
    found = {"agreement": {"spearman": 0.926}, **models}
    change_record(folder / "run.json", lambda record: record.update(evaluation=found))
    said = render_html(page_of(folder))
    assert "retrieval MRR@10, held out 0.600 (75.0% of the teacher&#39;s)" in said and "75.0% kept" in said
    change_record(folder / "run.json", lambda record: record.update(evaluation={"agreement": {"spearman": 0.926}}))
    said = render_html(page_of(folder))
    assert "agreement with the teacher (Spearman) 0.926" in said
    assert "92.6%" not in said


def test_the_loss_at_the_end_is_that_of_the_record_else_of_the_log(copied_run, change_record):
    folder = copied_run()

    def last_loss():
        (table,) = [block for part in page_of(folder).parts for section in part.sections for block in section.blocks
                    if isinstance(block, Table) and block.caption == "Terms of the loss"]  # fmt: skip
        return [row[2] for row in table.rows if row[:2] == ("layers", "loss (weighted sum)")]

    (recorded,) = last_loss()
    assert float(recorded) > 0
    change_record(folder / "run.json", lambda record: record["stages"][0].pop("final_loss"))
    assert last_loss() == [recorded], "of a run of an earlier version"


@pytest.mark.parametrize("name", ["run", "", None])
def test_what_nobody_named_is_called_by_its_folder(copied_run, change_record, name):
    folder = copied_run("mine")
    change_record(folder / "run.json", lambda record: record.update(name=name))
    assert page_of(folder).title == "mine: run"


def test_a_run_that_was_killed_shows_its_checkpoint(copied_run, change_record):
    folder = copied_run()
    second = folder / "stages" / "2-relations"
    history = [json.loads(line) for line in (second / "log.jsonl").read_text().splitlines()]
    shutil.rmtree(second)
    for step, kept in ((2, 2), (10, 4)):
        (second / f"checkpoint-{step}").mkdir(parents=True)
        (second / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps({"log_history": history[:kept]}))
    change_record(folder / "run.json", lambda record: record.update(status="running", stages=record["stages"][:1]))
    page = page_of(folder)
    warnings = " ".join(page.warnings())
    assert "process of the run is gone" in warnings and "Not finished: relations" in warnings
    loss = next(figure for figure in page.figures() if figure.title == "Stage 'relations': Loss")
    shown = {row[0] for row in loss.data.rows}
    assert shown == {str(entry["step"]) for entry in history[:4]}, "of the newest checkpoint, by its number"


@pytest.mark.parametrize("spoil", ["remove", "tear", "list", "empty"])
def test_a_run_without_its_record_is_shown_by_its_stages(copied_run, spoil):
    folder = copied_run()
    record = folder / "run.json"
    if spoil == "remove":
        record.unlink()
    else:
        record.write_text({"tear": record.read_text()[:200], "list": "[1]", "empty": ""}[spoil])
    page = page_of(folder)
    assert "missing or damaged" in page.warnings()[0]
    assert "Stage 'layers': Loss" in figures_of(page) and "Recipe" in sections(page)
    assert "hidden_states" in str(page.parts[0].sections), "the method is in stage.json"


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


@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_records_with_anything_anywhere_never_stop_a_report(
    copied_run, comparison_folder, mapping_folder, inspection_folder, search_folder, tmp_path, rounds
):
    random = Random(rounds)
    places = [(copied_run(), "run.json")]
    for source, name in (
        (comparison_folder, "comparison.json"),
        (mapping_folder, "search.json"),
        (search_folder, "search.json"),
        (inspection_folder, "attention.json"),
        (inspection_folder, "similarity.json"),
    ):
        folder = tmp_path / f"spoiled-{len(places)}"
        folder.mkdir()
        shutil.copy(source / name, folder / name)
        places.append((folder, name))
    wholes = [json.loads((folder / name).read_text()) for folder, name in places]
    for _ in range(rounds):
        for (folder, name), whole in zip(places, wholes, strict=True):
            (folder / name).write_text(json.dumps(spoiled(whole, random)))
            render_html(build_page(collect([folder])))


def test_what_was_built_before_the_damage_is_kept(mapping_folder, tmp_path):
    record = json.loads((mapping_folder / "search.json").read_text())
    del record["cost"]
    (tmp_path / "search.json").write_text(json.dumps(record))
    page = page_of(tmp_path)
    assert "Evolution of the fitness" in figures_of(page)
    assert any("incomplete or damaged (TypeError" in line for line in page.warnings())


def test_a_comparison_shows_tasks_measures_costs_and_the_layers_of_each_method(comparison_folder):
    page = page_of(comparison_folder)
    titles = figures_of(page)
    assert "Scores by task" in titles and "Quality against latency" in titles and "Held-out relations" in titles
    assert [title for title in titles if "hidden_states" in title or "minilmv2" in title]
    runs = next(
        b
        for part in page.parts
        for s in part.sections
        for b in s.blocks
        if isinstance(b, Table) and b.caption == "Runs"
    )
    assert len(runs.rows) == 4 and {row[1] for row in runs.rows} == {"finished"}


def test_a_comparison_that_is_not_finished_says_how_its_runs_stand(comparison_folder, tmp_path, change_record):
    folder = tmp_path / "copy"
    shutil.copytree(comparison_folder, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    change_record(folder / "comparison.json", lambda record: record.update(status="running", summary=None))
    cells = json.loads((folder / "comparison.json").read_text())["cells"]
    last = folder / cells[-1]["folder"]
    change_record(last / "run.json", lambda record: record.update(status="running"))
    beat = {"activity": "training", "stage": "a", "stage_number": 1, "stages": 1, "step": 3, "steps": 40, "loss": 2.5}
    (last / "heartbeat.json").write_text(json.dumps(beat))
    table = next(
        block
        for block in page_of(folder).parts[0].sections[0].blocks
        if isinstance(block, Table) and block.caption == "Runs that are not finished"
    )
    name = json.loads((last / "run.json").read_text())["name"]
    assert [row[:6] for row in table.rows] == [(name, "dead", "a (1 of 1)", "3 of 40", "2.5", "–")]
    change_record(folder / "comparison.json", lambda record: record.update(status="finished"))
    assert not collect([folder])[0].unfinished


def test_a_comparison_names_no_files_outside_of_it(comparison_folder, run_folder, tmp_path):
    record = json.loads((comparison_folder / "comparison.json").read_text())
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    shutil.copytree(run_folder, tmp_path / "a" / "other", ignore=shutil.ignore_patterns("*.safetensors"))
    record["cells"][0]["folder"] = "../other"
    (folder / "comparison.json").write_text(json.dumps(record))
    assert collect([folder])[0].runs == ()


def test_a_stage_taught_by_an_assistant_joins_the_assistants_layers(copied_run, change_record):
    folder = copied_run()

    def teach(record):
        record["recipe"]["stages"][0]["student"] = {"shape": "3x48"}
        record["recipe"]["stages"][1]["teacher"] = {"stage": "layers", "model": None}
        record["stages"][0]["student"] = {"shape": "bert 3x48, 4 heads, FFN 96"}
        record["stages"][1]["teacher"] = "the student of stage layers"
        del record["stages"][1]["layers"]  # As records of old are.

    change_record(folder / "run.json", teach)
    first, second = (figure for figure in page_of(folder).figures() if "which layers" in figure.title)
    assert first.description.startswith("Student of 3 layers, teacher of 4.")
    assert second.description.startswith("Student of 2 layers, teacher of 3.")
    change_record(
        folder / "run.json", lambda record: record["recipe"]["stages"][1].update(teacher={"model": "another/one"})
    )
    page = page_of(folder)
    assert len([figure for figure in page.figures() if "which layers" in figure.title]) == 1
    assert "Of 'relations' the layers cannot be drawn" in render_html(page).replace("&#39;", "'")


def test_the_layers_of_a_stage_with_a_teacher_of_its_own_are_those_of_its_record(copied_run, change_record):
    folder = copied_run()

    def teach(record):
        record["recipe"]["stages"][1]["teacher"] = {"model": "another/one"}
        record["stages"][1]["layers"] = [{"student": [2], "teacher": [7], "terms": ["key_key", "value_value"]}]

    change_record(folder / "run.json", teach)
    figure = next(figure for figure in page_of(folder).figures() if "'relations': which layers" in figure.title)
    assert figure.description == "Student of 2 layers, teacher of 7 or more. key_key: 2 from 7. value_value: 2 from 7."
    assert figure.data.rows == (("key_key", "2", "7"), ("value_value", "2", "7"))
    assert "layers above the highest that takes part are not drawn" in figure.caption
    change_record(folder / "run.json", lambda record: record["recipe"]["stages"][1].update(teacher=None))
    figure = next(figure for figure in page_of(folder).figures() if "'relations': which layers" in figure.title)
    assert figure.description.startswith("Student of 2 layers, teacher of 7. "), "the record counts, not the recipe"


@pytest.mark.parametrize(
    "layers",
    [None, 3, [3], [{"student": [1]}], [{"student": [-1], "teacher": [10**9], "terms": ["a"]}],
     [{"student": "1", "teacher": [True], "terms": "a"}], [{"student": [1], "teacher": [2], "terms": []}]],
    ids=repr,
)  # fmt: skip
def test_recorded_layers_that_are_none_are_not_drawn(copied_run, change_record, layers):
    folder = copied_run()
    change_record(folder / "run.json", lambda record: record["stages"][1].update(layers=layers))
    figure = next(figure for figure in page_of(folder).figures() if "'relations': which layers" in figure.title)
    assert figure.description.startswith("Student of 2 layers, teacher of 4. relation_kl (query): 2 from 4."), (
        "composed again"
    )


def test_a_search_that_is_not_finished_says_so(tmp_path):
    (tmp_path / "search.json").write_text('{"kind": "mapping", "name": "slow", "status": "running"}')
    page = page_of(tmp_path)
    assert "The search 'slow' (mapping) is not finished" in page.warnings()[0] and sections(page) == ["What was done"]


def test_an_evaluation_without_a_table_shows_its_cells(tmp_path):
    (tmp_path / "evaluation.json").write_text('{"preset": "quick", "set": ["epochs=1"]}')
    cells = [
        {"id": "1", "status": "finished", "model": "m/a", "task": "rte", "seed": 1, "seconds": 3,
         "scores": {"validation": {"accuracy": 0.625, "f1": float("nan")}}},
        {"id": "2", "status": "failed", "model": "m/a", "task": "cola", "seed": 1, "error": "no memory"},
    ]  # fmt: skip
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in cells) + "{torn")
    page = page_of(tmp_path)
    rows = next(b for s in page.parts[0].sections for b in s.blocks if isinstance(b, Table)).rows
    assert tuple(tuple(map(str, row)) for row in rows) == (
        ("m/a", "rte", "1", "finished", "accuracy 62.5", "3"),
        ("m/a", "cola", "1", "failed", "no memory", "–"),
    )
    assert "not finished" in page.warnings()[0] and "m/a on cola: no memory" in page.warnings()[1]


def test_what_lies_in_a_runs_folder_is_part_of_it(copied_run, inspection_folder, mapping_folder):
    folder = copied_run()
    shutil.copytree(inspection_folder, folder / "look")
    shutil.copytree(mapping_folder, folder / "before")
    (folder / "look" / "similarity.json").write_text("{")
    page = page_of(folder)
    titles = sections(page)
    assert "Attention (look)" in titles and "Evolution (mapping)" in titles
    assert titles.index("Attention (look)") < titles.index("Recipe")
    assert any("'similarity.json' cannot be read as an inspection" in line for line in page.warnings())


def test_attention_maps_stand_in_pairs_with_their_numbers(inspection_folder):
    page = page_of(inspection_folder)
    maps = json.loads((inspection_folder / "attention.json").read_text())["result"]["maps"]
    titles = [title for title in figures_of(page) if title.startswith("Attention: ")]
    assert titles == [
        f"Attention: {role}, layer {layer}, mean of heads"
        for ours, theirs in ((1, 2), (2, 4))
        for role, layer in (("teacher", theirs), ("student", ours))
    ]
    first = next(figure for figure in page.figures() if figure.title == titles[1])
    assert first.data.rows[0][1:] == tuple(f"{value:.3f}" for value in maps["pairs"][0][0]["values"][0])


def test_folders_are_put_side_by_side(run_folder, copied_run, change_record, mapping_folder):
    other = copied_run("other")
    change_record(other / "run.json", lambda record: record["stages"][1].update(tokens=123_456))
    page = page_of(run_folder, other, mapping_folder, run_folder)
    assert [part.title for part in page.parts] == ["Side by side", "tiny (run)", "tiny (other)", "out"]
    table = page.parts[0].sections[1].blocks[0]
    assert table.headings[1:] == ("tiny (run)", "tiny (other)")
    tokens = {row[0]: row[1:] for row in table.rows}["Tokens"]
    assert tokens[0] != tokens[1] and int(tokens[1].replace(",", "")) > 123_456
    own = [line.split(": ")[0] for line in page.warnings() if "passed over" in line or "by no stage" in line]
    assert own and set(own) == {"tiny (run)", "tiny (other)"}, "a warning says whose it is"
    assert page_of(run_folder).warnings() == [
        line.removeprefix("tiny (run): ") for line in page.warnings() if "(run): " in line
    ]
    names = [figure.name for figure in page.figures()]
    assert len(names) == len(set(names))
    training = page.parts[0].sections[-1]
    assert training.title == "Training side by side"
    assert [block.title for block in training.blocks if isinstance(block, Figure)] == [
        "Stage 'layers' (hidden_states) of the runs",
        "Stage 'layers' (hidden_states) of the runs, held-out text",
        "Stage 'relations' (minilmv2) of the runs",
        "Stage 'relations' (minilmv2) of the runs, held-out text",
        "Tokens/s in stage 1 of the runs",
        "Tokens/s in stage 2 of the runs",
    ]


def run_with(label, method, losses):
    """A run of one stage that logged these losses."""
    points = tuple((float(step), loss) for step, loss in enumerate(losses, start=1))
    log = StageLog("log.jsonl", {"loss": Curve(points, (), len(points))} if points else {}, lines=len(points))
    return label, SimpleNamespace(stages=(StageFound("stage", Stage(method=method), PlannedStage(), log),))


def test_losses_of_different_methods_are_shares_of_their_start():
    runs = [run_with("a", "elm", [8.0, 4.0, 2.0]), run_with("b", "mlm", [3.0, 1.5])]
    figures = list(course_figures([*runs, run_with("c", "mlm", []), run_with("d", "mlm", [0.0, 1.0])]))
    assert [figure.title for figure in figures] == [
        "Stage 'stage' (mlm) of the runs",
        "Stage 1 of the runs, as shares of the first loss",
    ]
    shares = figures[1].data
    assert shares.headings == ("step", "a", "b"), "a share of nothing is nothing"
    assert shares.rows == (("1", "1", "1"), ("2", "0.5", "0.5"), ("3", "0.25", "–"))
    assert "on no common scale" in figures[1].caption


def test_many_runs_are_drawn_in_figures_whose_lines_are_told_apart():
    runs = [run_with(f"run {n}", "elm", [2.0, 1.0 + n]) for n in range(13)]
    figures = list(course_figures(runs))
    assert [len(figure.data.headings) - 1 for figure in figures] == [5, 5, 3]
    assert figures[2].title.endswith("(3 of 3)") and figures[2].data.headings[-1] == "run 12"


def test_a_comparison_draws_the_courses_of_its_methods_beside_each_other(comparison_folder):
    page = page_of(comparison_folder)
    training = next(section for section in page.parts[0].sections if section.title == "Training")
    figures = {block.title: block for block in training.blocks if isinstance(block, Figure)}
    assert "Stage 1 of the runs, as shares of the first loss" in figures
    methods = {"hidden_states", "minilmv2"}
    for figure in figures.values():
        assert {label.split(",")[0].split(" ")[0] for label in figure.data.headings[1:]} <= methods
    assert training.blocks[-1].lines == ("Of runs that differ in their seed only, the first is drawn.",)


def test_what_is_nothing_of_ours_is_refused_with_what_would_be_right(tmp_path, run_folder):
    (tmp_path / "notes.txt").write_text("no run")
    for path, parts in (
        (tmp_path, ("run.json", "comparison.json", "search.json", "attention.json")),
        (tmp_path / "missing", ("does not exist",)),
        (tmp_path / "notes.txt", ("a file of no inspection",)),
        (run_folder.parent, ("there are some in it", str(run_folder))),
    ):
        with pytest.raises(OutputError) as error:
            collect([path])
        assert "\n" not in str(error.value) and all(part in str(error.value) for part in (str(path), *parts))


def test_the_file_of_an_inspection_will_do(inspection_folder):
    page = page_of(inspection_folder / "similarity.json")
    assert sections(page) == ["Similarity of layers"]
