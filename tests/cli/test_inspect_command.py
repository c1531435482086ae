"""`limbeck inspect` as a user types it: tables, files, JSON, one-line errors."""

import json

import pytest

from tests.support.commands import assert_one_line_error
from tests.support.models import make_teacher
from tests.support.task_files import CHUNKS


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("student"), "bert", seed=4, layers=2)


@pytest.fixture
def chunks(tmp_path):
    path = tmp_path / "chunks.txt"
    path.write_text(CHUNKS * 10)
    return path


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("The teacher shows the student a layer.\nIt is a model of text.\n" * 8)
    return path


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("phrases", ["student: ", "teacher: ", "50 spans (NP 20, ", "k = 4"]),
        ("attention", ["Nearest teacher", "head by head"]),
        ("similarity", ["Most alike", "Few tokens for models 48 wide"]),
        ("contribution", ["change most", "teacher: "]),
    ],
)
def test_tables_and_files(limbeck, student, bert_folder, chunks, texts, tmp_path, what, words):
    source = ["--data", chunks] if what == "phrases" else ["--texts", texts]
    done = limbeck("inspect", what, student, "--teacher", bert_folder, *source, "--output", tmp_path / "look")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    for word in words:
        assert word in said
    files = [f"{what}.json", f"{what}.png"] + (["attention-divergence.png"] if what == "attention" else [])
    assert sorted(path.name for path in (tmp_path / "look").iterdir()) == sorted(files)
    assert str(tmp_path / "look" / files[1]) in done.stdout


@pytest.mark.parametrize("what", ["attention", "similarity", "contribution"])
def test_one_model_alone_on_sentences_that_come_along(limbeck, bert_folder, what):
    done = limbeck("inspect", what, bert_folder, "--count", 3, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["inspection"] == what
    result = found["result"]
    if what == "attention":
        assert result["divergence"] is None
        assert result["maps"]["pairs"][0][0]["layer"] == 4
    else:
        assert (result[0] if what == "contribution" else result)["tokens"] > 20


def test_json_and_file_hold_the_same(limbeck, student, bert_folder, texts, tmp_path):
    path = tmp_path / "attention.json"
    done = limbeck("inspect", "attention", student, "--teacher", bert_folder, "--texts", texts, "--layers", "all,2:1",
                   "--heads", "mean,all", "--sentence", "It is a model.", "--json", "--output", path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads(path.read_text())
    shown = [(ours["layer"], theirs["layer"], ours["head"]) for ours, theirs in found["result"]["maps"]["pairs"]]
    wanted = [(s, t) for s, t in ((1, 2), (2, 4), (2, 1))]
    assert shown == [(s, t, head) for s, t in wanted for head in (0, 1, 2, 3, 4)]
    assert list(tmp_path.glob("*.png")) == []


def test_the_draw_and_the_runs_follow_the_seed(limbeck, bert_folder, chunks):
    def scores(*more):
        done = limbeck("inspect", "phrases", bert_folder, "--data", chunks, "--spans", 25, "--unlabelled", 5,
                       "--seeds", 2, "--clusters", 3, "--json", *more)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["result"]

    first, again, other = scores(), scores(), scores("--seed", 9, "--held-out", 10)
    assert first == again
    assert first["clusters"] == 3
    assert len(first["models"][0]["scores"][0]) == 2
    assert other["sample"]["seeds"] == [9, 10]
    assert other["scored"] == 10


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["phrases", "MODEL", "--data", "TEXTS"], ["Line 1 of", "without the columns of CoNLL-2000"]),
        (["phrases", "MODEL", "--data", "none.txt"], ["Cannot read 'none.txt'"]),
        (["phrases", "MODEL", "--data", "CHUNKS", "--clusters", "99"], ["too few spans for 99 clusters"]),
        (["phrases", "./nowhere", "--data", "CHUNKS"], ["nowhere"]),
        (["attention", "MODEL"], ["only maps to draw", "--output"]),
        (["attention", "MODEL", "--layers", "9", "--json"], ["no layer 9", "layers 1 to 4"]),
        (["attention", "MODEL", "--teacher", "MODEL", "--layers", "1:9", "--json"], ["no layer 9", "the teacher"]),
        (["attention", "MODEL", "--layers", "last", "--json"], ["--layers 'last'", "3:6,6:12"]),
        (["attention", "MODEL", "--layers", "1:1", "--json"], ["--layers '1:1'", "give --teacher too"]),
        (["attention", "MODEL", "--heads", "0", "--json"], ["--heads '0'"]),
        (["attention", "MODEL", "--heads", "7", "--json"], ["no head 7", "heads 1 to 4"]),
        (["attention", "MODEL", "--sentence", "text " * 130, "--json"], ["132 tokens", "takes 128"]),
        (["attention", "MPNET", "--json"], ["(mpnet) cannot be rebuilt", "position biases"]),
        (["similarity", "MODEL", "--teacher", "MPNET"], ["cannot be compared token by token"]),
        (["similarity", "MODEL", "--texts", "none.txt"], ["Cannot read"]),
        (["similarity", "MODEL", "--output", "a.jpg"], [".png"]),
        (["similarity", "MODEL", "--device", "tpu"], ["no device 'tpu'"]),
    ],
)
def test_mistakes_give_one_line_and_exit_code_2(
    limbeck, bert_folder, chunks, texts, tmp_path_factory, arguments, parts
):
    places = {"MODEL": bert_folder, "TEXTS": texts, "CHUNKS": chunks}
    if "MPNET" in arguments:
        places["MPNET"] = make_teacher(tmp_path_factory.mktemp("mpnet"), "mpnet")
    assert_one_line_error(limbeck("inspect", *(places.get(part, part) for part in arguments)), 2, *parts)
