"""What is unfinished or damaged is reported as far as it goes; what is nothing of ours is refused in a line."""

import copy
import json
import shutil
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from limbeck.core.blocks import Table
from limbeck.core.folder_lock import folder_lock, process_note
from limbeck.core.records import PlannedStage, Stage
from limbeck.errors import OutputError
from limbeck.report import rendering
from limbeck.report.collect import collect
from limbeck.report.curves import course_figures
from limbeck.report.logs import StageLog
from limbeck.report.page import build_page
from limbeck.report.rendering import render_html, render_markdown
from limbeck.report.subjects import StageFolder
from tests.golden.committed import FOLDERS

CHANGES = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text(encoding="utf-8"))


def sections(page):
    return [section.title for part in page.parts for section in part.sections]


def table_of(page, caption):
    """The cells of the rows of a table."""
    blocks = (block for part in page.parts for section in part.sections for block in section.blocks)
    table = next(block for block in blocks if isinstance(block, Table) and block.caption == caption)
    return [tuple(map(str, row)) for row in table.rows]


@pytest.mark.parametrize("name", CHANGES)
def test_the_page_of_a_changed_record(copied, page_of, name):
    row = CHANGES[name]
    folder = copied(row.get("kind", "finished"), "mine", row.get("edits", {}))
    if "text" in row:
        (folder / "run.json").unlink()
        if row["text"] is not None:
            (folder / "run.json").write_text(row["text"])
    text = render_markdown(page_of(folder, render=row.get("strict", False)), "figures")
    assert [part for part in row.get("shown", ()) if part not in text] == []
    assert [part for part in row.get("hidden", ()) if part in text] == []


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


@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_records_with_anything_anywhere_never_stop_a_report(copied, rounds, monkeypatch):
    """Every round spoils and draws a folder of every kind; equal figures are drawn once."""
    random, draw, drawn = Random(rounds), rendering.picture_address, {}

    def draw_once(figure, height, width=None):
        key = f"{figure!r} {width}"
        return drawn.get(key) or drawn.setdefault(key, draw(figure, height, width))

    monkeypatch.setattr(rendering, "picture_address", draw_once)
    places = [copied(kind, kind) / name for kind, name in RECORDS.items()]
    wholes = [json.loads(place.read_text()) for place in places]
    for _ in range(rounds):
        for place, whole in zip(places, wholes, strict=True):
            place.write_text(json.dumps(spoiled(whole, random)))
            render_html(build_page(collect([place.parent])))


def test_a_comparison_that_is_not_finished_says_how_its_runs_stand(copied, change, page_of):
    folder = copied("comparison-with-costs", edit={"status": "running", "summary": None})
    last = folder / json.loads((folder / "comparison.json").read_text())["cells"][-1]["folder"]
    change(last, {"status": "running", "name": "last"})
    beat = {"activity": "training", "stage": "a", "stage_number": 1, "stages": 1, "step": 3, "steps": 40, "loss": 2.5}
    (last / "heartbeat.json").write_text(json.dumps(beat))
    rows = table_of(page_of(folder), "Runs that are not finished")
    assert [row[:6] for row in rows] == [("last", "dead", "a (1 of 1)", "3 of 40", "2.5", "–")]
    assert not collect([change(folder, {"status": "finished"})])[0].unfinished


def test_a_run_that_has_recorded_no_end_has_no_times_of_its_record(copied, page_of):
    """Its record is older than its log and its heartbeat, so its times contradict those of the page's top."""
    run = copied(edit={"status": "running"})
    dead = render_markdown(page_of(run), "figures")
    assert "- Status: dead" in dead and "- Status: running" not in dead
    with folder_lock(run):
        running = render_markdown(page_of(run), "figures")
        [row] = table_of(page_of(run, copied(name="finished")), "Training of the runs")[:1]
    assert running.count("- Status: running") == 2, "in the overview and in the provenance"
    assert row[6] == "–", "the total time"
    for text in (dead, running):
        assert "- Started: " in text
        assert "- Last updated: " not in text and "- Time: " not in text


def test_references_without_a_title_have_their_bibtex(copied, page_of):
    citations = [{"title": "", "bibtex": f"@misc{{{key}}}"} for key in ("one", "two", "one")]
    text = render_markdown(page_of(copied(edit=lambda record: cite(record, citations))), "figures")
    assert text.count("@misc{one}") == text.count("@misc{two}") == 1


def cite(record, citations):
    record["stages"] = [{**record["stages"][0], "citation": citation} for citation in citations]


def test_a_comparison_shows_a_finished_run_of_each_combination(copied, change):
    def fail_first(record):
        record["cells"][0]["status"] = "failed"

    folder = copied("comparison-with-costs", edit=fail_first)
    cells = json.loads((folder / "comparison.json").read_text())["cells"]
    runs = collect([folder])[0].run_by_combination
    assert {combination: run.folder.name for combination, run in runs.items()} == {
        "hidden_states, last on 2x32": Path(cells[2]["folder"]).name,
        "minilmv2, layer auto on 2x32": Path(cells[1]["folder"]).name,
    }


def test_a_log_that_cannot_be_read_is_told(copied, page_of, monkeypatch):
    def refuse(path, *values, **named):
        if path.name == "log.jsonl":
            raise PermissionError(13, "Permission denied")
        return open_file(path, *values, **named)

    open_file = Path.open
    folder = copied()
    monkeypatch.setattr(Path, "open", refuse)
    text = render_markdown(page_of(folder, render=False), "figures")
    assert "log.jsonl cannot be read: Permission denied." in text
    assert "damaged line" not in text and "there is no log" not in text


def test_a_comparison_names_no_files_outside_of_it(copied):
    copied(name="other")
    folder = copied(
        "comparison-with-costs", edit=lambda record: [cell.update(folder="../other") for cell in record["cells"]]
    )
    assert collect([folder])[0].run_by_combination == {}


def test_an_evaluation_without_a_table_shows_its_cells(tmp_path, page_of):
    (tmp_path / "evaluation.json").write_text('{"preset": "quick", "set": ["epochs=1"]}')
    (tmp_path / "results.jsonl").write_text(
        '{"id": "1", "status": "finished", "model": "m/a", "task": "rte", "seed": 1, "seconds": 3, '
        '"scores": {"validation": {"accuracy": 0.625, "f1": NaN}}}\n'
        '{"id": "2", "status": "failed", "model": "m/a", "task": "cola", "seed": 1, "error": "no memory"}\n{torn'
    )
    page = page_of(tmp_path)
    assert table_of(page, "Cells") == [
        ("m/a", "rte", "1", "finished", "accuracy 62.5"),
        ("m/a", "cola", "1", "failed", "–"),
    ]
    assert "not finished" in page.warnings()[0] and "m/a on cola: no memory" in page.warnings()[1]
    assert "`limbeck evaluate` or `limbeck finetune`" in page.warnings()[0]

    with process_note(tmp_path):
        running = page_of(tmp_path)
    assert (
        running.parts[0].subtitle == "Evaluation; running; 1 finished measurement"
        and "no memory" in running.warnings()[0]
    )
    assert page_of(tmp_path).parts[0].subtitle == "Evaluation; not finished; 1 finished measurement"


def test_what_lies_in_a_runs_folder_is_part_of_it(copied, page_of):
    folder = copied()
    shutil.copytree(FOLDERS["inspections"], folder / "look")
    shutil.copytree(FOLDERS["search-mapping"], folder / "before")
    (folder / "look" / "similarity.json").write_text("{")
    page = page_of(folder)
    titles = sections(page)
    assert "Attention (look)" in titles and "Results (mapping)" in titles
    assert titles.index("Attention (look)") < titles.index("Recipe")
    assert any("'similarity.json' cannot be read as an inspection" in line for line in page.warnings())


def test_folders_side_by_side_are_told_apart(copied, page_of):
    folders = [copied(name=name) for name in ("one", "two")]
    page = page_of(*folders, FOLDERS["search-mapping"], folders[0])
    # Both runs have one name, `shipped`: their folders tell them apart.
    titles = ["one", "two"]
    assert [part.title for part in page.parts] == ["Side by side", *titles, "search-mapping"]
    owners = {line.split(": ")[0] for line in page.warnings()}
    assert owners == {*titles}, "a warning says whose it is"
    names = [figure.name for figure in page.figures()]
    assert len(names) == len(set(names))


def test_folders_of_one_name_have_as_much_of_their_paths_as_tells_them_apart(copied, page_of):
    folders = [copied(name=name) for name in ("old/first", "new/first", "second")]
    page = page_of(*folders)
    assert [part.title for part in page.parts] == ["Side by side", "old/first", "new/first", "second"]


def run_with(label, method, losses):
    """A run of one stage that logged these losses."""
    curves = {"loss": np.array([*enumerate(losses, start=1)], dtype=float)} if losses else {}
    stage = StageFolder("stage", Stage(method=method), PlannedStage(), StageLog(curves))
    return label, SimpleNamespace(stages=(stage,))


def test_losses_of_one_method_are_drawn_beside_each_other():
    runs = [run_with("a", "elm", [8.0, 4.0, 2.0]), run_with("b", "mlm", [3.0, 1.5])]
    [alike] = course_figures([*runs, run_with("c", "mlm", []), run_with("d", "mlm", [1.0, 2.0])])
    assert alike.title == "Stage 'stage' (mlm) of the runs"
    assert [series.label for series in alike.drawing.series] == ["b", "d"]


def test_runs_of_a_single_point_each_have_no_chart():
    short, long = run_with("short", "mlm", [2.0]), run_with("long", "mlm", [])
    long[1].stages[0].log.curves["loss"] = np.array([[9.0, 1.0]])
    assert list(course_figures([short, long])) == []


def test_many_runs_are_drawn_in_figures_whose_lines_are_told_apart():
    figures = list(course_figures([run_with(f"run {n}", "elm", [2.0, 1.0 + n]) for n in range(13)]))
    assert [len(figure.drawing.series) for figure in figures] == [6, 6, 1]
    assert figures[2].title.endswith("(3 of 3)") and figures[2].drawing.series[0].label == "run 12"


def test_what_is_nothing_of_ours_is_refused_with_what_would_be_right(tmp_path):
    (tmp_path / "notes.txt").write_text("no run")
    shipped = FOLDERS["finished"].parent
    for path, parts in (
        (tmp_path, ("run.json", "comparison.json", "search.json", "attention.json")),
        (tmp_path / "missing", ("does not exist",)),
        (tmp_path / "notes.txt", ("a file, but not one that `limbeck inspect` wrote",)),
        (shipped, ("some lie below it", str(shipped / "comparison"))),
    ):
        with pytest.raises(OutputError) as error:
            collect([path])
        assert all(part in str(error.value) for part in (str(path), *parts))


def test_a_table_of_folders_has_the_scores_of_studies(page_of):
    page = page_of(FOLDERS["comparison-with-costs"], FOLDERS["evaluation-with-costs"])
    comparison, evaluation = page.parts[0].sections[0].blocks[0].rows
    assert str(comparison[1]).startswith("RTE of the teacher ") and "cell" not in str(evaluation[1])
    assert str(evaluation[1]) == "average: teacher-bert 50.0, run 50.0"


def test_the_file_of_an_inspection_will_do(page_of):
    assert sections(page_of(FOLDERS["inspections"] / "similarity.json")) == ["Similarity of layers"]


def test_warnings_that_are_too_many_are_counted(copied, page_of):
    def fail_all(record):
        record["cells"] = [record["cells"][0] | {"problem": f"problem {number}"} for number in range(30)]
        record["summary"] = {}

    text = render_markdown(page_of(copied("comparison", edit=fail_all)), "figures")
    shown = [line for line in text.splitlines() if line.startswith("- **Warning:** ")]
    assert len(shown) == 21 and shown[-1].endswith("more warnings.")
    assert any("There is no table yet" in line for line in shown)


def test_cells_of_an_evaluation_that_were_made_differently_are_named(copied, page_of):
    folder = copied("evaluation")
    path = folder / "results.jsonl"
    lines = path.read_text().splitlines()
    first = json.loads(lines[0]) | {"commit": "0" * 40}
    path.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    text = render_markdown(page_of(folder), "figures")
    assert "- The measurements differ in commit; those above are of the last one." in text


@pytest.mark.parametrize("kind", ["finished", "comparison", "search-mapping", "evaluation"])
def test_a_folder_above_is_refused_with_a_folder_that_can_be_reported_on(copied, kind):
    folder = copied(kind, "mine")
    with pytest.raises(OutputError, match=r"some lie below it, such as '.*/mine'"):
        collect([folder.parent])
