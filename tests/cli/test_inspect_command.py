"""`limbeck inspect` as a user types it: tables, files, JSON."""

import json
from collections import defaultdict

import pytest

from tests.support.models import make_teacher
from tests.support.task_files import CHUNKS


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("student"), "bert", seed=4, layers=2)


@pytest.fixture
def sources(tmp_path):
    """The option that gives an inspection its text."""
    for name, text in {"chunks": CHUNKS * 10, "texts": "The teacher shows a layer.\nIt is a model.\n" * 8}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    texts = ("--texts", tmp_path / "texts.txt")
    return defaultdict(lambda: texts, phrases=("--data", tmp_path / "chunks.txt"))


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("phrases", ["student: ", "teacher: ", "50 spans (NP 20, ", "k = 4"]),
        ("attention", ["Nearest teacher", "head by head"]),
        ("similarity", ["Most similar", "Too few tokens for models of width 48"]),
        ("contribution", ["change most", "teacher: "]),
    ],
)
def test_tables_and_files(limbeck, student, bert_folder, sources, tmp_path, what, words):
    output = tmp_path / "look"
    shown = limbeck.shown("inspect", what, student, "--teacher", bert_folder, *sources[what], "--output", output)
    said = " ".join(shown.split())
    assert [word for word in words if word not in said] == []
    files = {f"{what}.json", f"{what}.png"} | ({"attention-divergence.png"} if what == "attention" else set())
    assert {path.name for path in output.iterdir()} == files
    assert str(output / f"{what}.png") in shown


@pytest.mark.parametrize("what", ["attention", "similarity", "contribution"])
def test_one_model_alone_on_sentences_that_come_along(limbeck, bert_folder, what):
    found = limbeck.json("inspect", what, bert_folder, "--count", 3, "--quiet")
    assert found["inspection"] == what
    result = found["result"]
    if what == "attention":
        assert result["divergence"] is None
        assert result["maps"]["pairs"][0][0]["layer"] == 4
    else:
        assert (result[0] if what == "contribution" else result)["tokens"] > 20


def test_json_and_file_hold_the_same(limbeck, student, bert_folder, sources, tmp_path):
    path = tmp_path / "attention.json"
    maps = ("--layers", "all,2:1", "--heads", "mean,all", "--sentence", "It is a model.")
    command = ("inspect", "attention", student, "--teacher", bert_folder, *sources["attention"], *maps)
    found = limbeck.json(*command, "--output", path)
    assert found == json.loads(path.read_text())
    shown = [(ours["layer"], theirs["layer"], ours["head"]) for ours, theirs in found["result"]["maps"]["pairs"]]
    assert shown == [(*layers, head) for layers in ((1, 2), (2, 4), (2, 1)) for head in (0, 1, 2, 3, 4)]
    assert list(tmp_path.glob("*.png")) == []


def test_the_draw_and_the_runs_follow_the_seed(limbeck, bert_folder, sources):
    command = ("inspect", "phrases", bert_folder, *sources["phrases"], "--spans", 25, "--unlabelled", 5, "--seeds", 2,
               "--clusters", 3)  # fmt: skip
    first, again, other = (
        limbeck.json(*command, *more)["result"] for more in ((), (), ("--seed", 9, "--held-out", 10))
    )
    assert first == again
    assert first["clusters"] == 3 and len(first["models"][0]["scores"][0]) == 2
    assert other["sample"]["seeds"] == [9, 10] and other["scored"] == 10
