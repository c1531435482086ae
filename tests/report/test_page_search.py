"""Searches that run, were stopped or died: what their study holds so far is on the page, and how they stand."""

import json
import os
import shutil
import socket

import psutil
import pytest
import yaml

from limbeck.core import studies
from limbeck.core.blocks import Code, Facts
from limbeck.report.collect import collect
from limbeck.report.page import build_page
from limbeck.report.rendering import render_html
from limbeck.report.search import VIEWS, write_search
from limbeck.report.search_architecture import shapes_figure
from limbeck.search.architecture import search_architecture
from limbeck.search.shape_space import ShapeLimits, ShapePoint
from limbeck.search.worker_signs import machine
from tests.golden.committed import FOLDERS
from tests.support import shape_search
from tests.support.corpora import write_text

SHOWN = {
    "mapping": "Evolution of fitness",
    "architecture": "Loss and latency of shapes",
    "teacher-layer": "Scores of students by teacher layer",
}
"""The figure of each kind."""


@pytest.fixture(scope="module")
def architecture(tmp_path_factory):
    """A finished search of shapes whose losses and latencies are known; one shape diverged, some were cut."""
    folder = tmp_path_factory.mktemp("shaped")
    data = shape_search.recipe_data(shape_search.write_teacher(folder), write_text(folder / "text"))
    with pytest.MonkeyPatch.context() as patch:
        asked = shape_search.install(patch)
        asked.diverges.add(ShapePoint(1, 8, 2, 1))
        options = {"trials": 14, "prune": True, "batch": 4, "limits": ShapeLimits(latency_share=0.45)}
        record = search_architecture(shape_search.make_request(data, folder / "out", **options))
    write_search(folder / "out", record)
    return folder / "out"


def test_the_loss_as_printed_and_the_controller_are_said(architecture):
    values = json.loads((architecture / "search.json").read_text())
    as_usual, as_printed = (
        " ".join(VIEWS["architecture"].notes(studies.Search.read(values | changes)))
        for changes in ({}, {"loss": {"kind": "hidden_states", "untrained": 0.5}, "sampler": "kd_nas", "episode": 20})
    )
    assert "divided by that of an untrained student (1.0000)" in as_usual and "kd_nas" not in as_usual
    assert "L_HS" in as_printed and "not divided by that of an untrained student (0.5000)" in as_printed
    assert "each episode of 20 draws 5 % less at random" in as_printed


def test_generations_that_bred_nothing_new_name_the_way_out():
    fitness = dict.fromkeys(("maximum", "minimum", "mean", "deviation"), 1.0)
    rows = [fitness | {"number": n, "evaluated": new, "size": 4, "best": [1]} for n, new in ((1, 4), (2, 0), (3, 0))]

    def said(generations, size):
        values = {"generations": generations, "space": {"size": size}, "cost": {"evaluations": 4}}
        found = VIEWS["mapping"].notes(studies.Search.read({"kind": "mapping"} | values))
        return [line for line in found if "--parents best" in line]

    assert said(rows, 51) == ["Generations 2, 3 produced no new mapping; `--parents best` always does."]
    assert said(rows[:1], 51) == said(rows, 4) == [], "all are new, and none are left"


@pytest.fixture(params=SHOWN)
def kind(request):
    return request.param


@pytest.fixture
def unfinished(kind, request, tmp_path):
    """A finished search of each kind as it was a moment before its record was written; the record; its folder."""
    done = request.getfixturevalue(kind) if kind == "architecture" else FOLDERS[f"search-{kind}"]
    record = json.loads((done / "search.json").read_text())
    shutil.copy(done / "search.journal", tmp_path)
    begun = {"kind": kind, "name": record["name"], "status": "running"}
    (tmp_path / "search.json").write_text(json.dumps(begun))
    return tmp_path, record


def seen(folder):
    return build_page(collect([folder]))


def facts_of(page):
    blocks = [block for section in page.parts[0].sections for block in section.blocks]
    return dict(pair for block in blocks if isinstance(block, Facts) for pair in block.pairs)


def rewrite(folder, change):
    """Change the entries of a journal."""
    entries = [json.loads(line) for line in (folder / "search.journal").read_text().splitlines()]
    (folder / "search.journal").write_text("".join(json.dumps(change(entry)) + "\n" for entry in entries))


def working_at(place, **fields):
    """Make all workers of a journal ones that never ended, on a machine."""

    def change(entry):
        for name, sign in entry.get("user_attr", {}).items():
            if name.startswith("worker ") and isinstance(sign, dict):
                sign |= {"ended": False, "machine": place, **fields}
        return entry

    return change


def shared(found, record):
    """The fields that what is read from the study has in common with the record, at any depth."""
    if isinstance(found, dict) and isinstance(record, dict):
        return {name: shared(value, record[name]) for name, value in found.items() if name in record}
    if isinstance(found, list) and isinstance(record, list) and len(found) == len(record):
        return [shared(*pair) for pair in zip(found, record, strict=True)]
    return record


def test_what_is_read_from_the_study_is_what_the_record_will_say(unfinished, kind):
    folder, record = unfinished
    found = collect([folder])[0].so_far.to_dict()
    found.pop("kind")
    states = [row.pop("state") for row in found["layers"]] if kind == "teacher-layer" else []
    best = found["best"]
    best.pop("state", None)
    assert best == shared(best, record["best"])
    assert found == shared(found, record)
    needed = {
        "mapping": {"generations", "candidates", "scores", "best", "identity"},
        "architecture": {"shapes", "front", "limits", "best", "identity"},
        "teacher-layer": {"layers", "scores", "best", "identity"},
    }
    assert set(found) == needed[kind]
    assert states == [{"cut": "dropped"}.get(row["state"], row["state"]) for row in record.get("layers", [])]


def test_a_search_that_was_stopped_shows_what_it_found(unfinished, kind):
    folder, record = unfinished
    page = seen(folder)
    assert [section.title for section in page.parts[0].sections] == ["Overview", "Results"]
    assert SHOWN[kind] in [figure.title for figure in page.figures()]
    assert len(page.warnings()) == 1 and "was stopped; the same command" in page.warnings()[0]
    facts = facts_of(page)
    assert (facts["Status"], facts["Workers"]) == ("interrupted", "1 ended")
    tried_before = "of shapes already tried" in facts["Trials"]
    assert "finished" in facts["Trials"] and tried_before == (kind == "architecture")
    assert ("diverged" in facts["Trials"]) == any(row.get("state") == "diverged" for row in record.get("shapes", []))
    assert facts["Last update"].endswith(" before this page was made")
    assert page.parts[0].subtitle == f"{kind.capitalize()} search; interrupted"
    assert page.parts[0].highlights and all(figure.label.endswith(" so far") for figure in page.parts[0].highlights)
    identity = page.parts[0].sections[0].blocks[2]
    assert isinstance(identity, Code) and yaml.safe_load(identity.text) == record["identity"]


def test_a_search_whose_worker_lives_runs_and_one_whose_worker_is_gone_is_dead(unfinished):
    folder, _ = unfinished
    process = psutil.Process()
    rewrite(folder, working_at(machine(), process=os.getpid(), started=process.create_time()))
    page = seen(folder)
    assert facts_of(page)["Status"] == "running" and "is still in progress" in page.warnings()[0]
    assert len(socket.gethostname()) <= 3 or socket.gethostname() not in render_html(page), "machines are not named"
    for gone in ({"process": 2**22 - 1}, {"process": os.getpid(), "started": process.create_time() - 100}):
        rewrite(folder, working_at(machine(), **gone))
        page = seen(folder)
        assert facts_of(page)["Status"] == "dead" and "workers vanished without recording an end" in page.warnings()[0]
        assert facts_of(page)["Workers"] == "1 lost"


def test_a_worker_elsewhere_is_judged_by_its_last_sign(unfinished):
    folder, _ = unfinished
    rewrite(folder, working_at("elsewhere", interval=15.0))
    assert facts_of(seen(folder))["Status"] == "running"
    journal = folder / "search.journal"
    before = journal.stat().st_mtime - 3600
    os.utime(journal, (before, before))
    facts = facts_of(seen(folder))
    assert facts["Status"] == "dead" and facts["Last update"] == "60 min before this page was made"


def test_a_search_can_be_looked_at_at_any_moment_of_its_course(unfinished, kind):
    """Also in the middle of a line: nothing is changed, waited for, or called damaged."""
    folder, _ = unfinished
    journal = folder / "search.journal"
    whole = journal.read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    drawn = 0
    for number, end in enumerate(ends):
        if number % 20 and number < len(ends) - 4:
            continue
        content = whole[: end + 7]
        journal.write_bytes(content)
        page = seen(folder)
        assert not any("damaged" in line for line in page.warnings()), (number, page.warnings())
        drawn += SHOWN[kind] in [figure.title for figure in page.figures()]
        assert journal.read_bytes() == content
    assert drawn > 0
    assert sorted(path.name for path in folder.iterdir()) == ["search.journal", "search.json"]


@pytest.mark.parametrize(
    "text",
    [None, "", "no journal\n", '{"op_code": 99}\n', "[" * 100_000 + "\n"],
    ids=["missing", "empty", "text", "unknown", "deep"],
)
def test_a_study_that_cannot_be_read_is_said_so(unfinished, text):
    folder, _ = unfinished
    (folder / "search.journal").unlink()
    if text is not None:
        (folder / "search.journal").write_text(text)
    page = seen(folder)
    warnings = " ".join(page.warnings())
    assert ("Its folder has no trials" in warnings) == (text is None)
    assert ("cannot be read" in warnings) == (text is not None)
    assert [section.title for section in page.parts[0].sections] == ["Overview"]


@pytest.mark.parametrize("junk", ["text", None, [], {"a": 1}, -1, float("nan")], ids=repr)
def test_a_study_with_junk_in_its_attributes_never_stops_a_report(unfinished, junk):
    folder, _ = unfinished

    def change(entry):
        entry["user_attr"] = dict.fromkeys(entry["user_attr"], junk) if "user_attr" in entry else None
        return {name: value for name, value in entry.items() if value is not None}

    rewrite(folder, change)
    render_html(seen(folder))


def test_a_search_that_has_begun_only_says_so(tmp_path):
    (tmp_path / "search.json").write_text('{"kind": "mapping", "name": "slow", "status": "running"}')
    page = seen(tmp_path)
    assert "The search 'slow' (mapping) is not finished; the same command continues it" in page.warnings()[0]
    assert page.parts[0].subtitle == "Mapping search; not finished"


def test_a_shape_without_latency_or_loss_has_no_point():
    search = studies.Search.read(json.loads((FOLDERS["large-search-architecture"] / "search.json").read_text()))
    trained = [shape for shape in search.shapes if shape.state == "trained"]
    trained[0].loss = None
    trained[1].latency_share = None
    figure = shapes_figure(search, search.best)
    points = [point for series in figure.drawing.series for point in series.points]
    assert all(0 not in point for point in points)
