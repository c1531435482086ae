"""`limbeck benchmark` as a user types it: tables, files, JSON, one-line errors."""

import json

import pytest
import yaml

from limbeck.benchmark.rows import read_rows
from tests.support.commands import assert_one_line_error

LOSS = ("loss", "--widths", "8,4", "--lengths", "4,6", "--heads", "2", "--batch", "2")
QUICK = ("--seconds", "0.02", "--no-memory")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (LOSS, ["reference", "blocked", "2 x 4", "2 x 6", "symmetric"]),
        ((*LOSS, "--objective", "soft_label_kl", "--classes", "9"), ["materialised", "from_hidden", "classes"]),
        (("step", "--teacher", "2x24", "--student", "1x12", "--batch", "2", "--length", "6", "--ragged"),
         ["teacher forward", "optimizer", "tokens/s", "Gflop/s"]),
    ],
    ids=["loss", "soft labels", "step"],
)  # fmt: skip
def test_tables(limbeck, arguments, words, monkeypatch):
    monkeypatch.setattr("limbeck.benchmark.measuring.CPU_SIZE", 16)
    done = limbeck("benchmark", *arguments, *QUICK)
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout


def test_a_file_and_json_hold_the_same_rows(limbeck, tmp_path):
    path = tmp_path / "results" / "model.csv"
    done = limbeck("benchmark", "model", "2x24", "1x24", "--batch-sizes", "1", "--lengths", "4,8", "--seconds", "0.02",
                   "--output", path, "--json", "--quiet")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    printed = json.loads(done.stdout)
    written = read_rows(path)
    assert len(written) == 4
    for row, other in zip(written, printed["rows"], strict=True):
        assert {key: row[key] for key in other} == other
        assert row["commit"] == printed["machine"]["commit"]
        assert f"torch={printed['machine']['versions']['torch']}" in row["versions"]


def test_a_recipe_is_measured_with_overrides(limbeck, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("limbeck.benchmark.measuring.CPU_SIZE", 16)
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe))
    done = limbeck("benchmark", "step", path, "--set", "corpus.length=16", "--device", "cpu", "--json", *QUICK)
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)["rows"][0]
    assert (whole["batch"], whole["length"], whole["tokens"]) == (8, 16, 128)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["loss", "--lengths", "12,x"], ["--lengths '12,x'", "128,512"]),
        (["loss", "--widths", "8"], ["teacher and student"]),
        (["loss", "--objective", "relation"], ["Did you mean 'relation_kl'"]),
        (["loss", "--output", "rows.txt"], [".csv or .json"]),
        (["loss", "--device", "tpu"], ["no device 'tpu'"]),
        (["step", "r.yaml", "--method", "minilm"], ["--method and a recipe"]),
        (["step", "--set", "seed=1"], ["--set changes a recipe"]),
        (["step", "none.yaml"], ["does not exist"]),
        (["step", "--method", "minilm2"], ["Did you mean"]),
        (["model", "./nowhere"], ["nowhere"]),
        (["model", "1x24", "--output", "/dev/null/x.csv"], ["--output '/dev/null/x.csv' cannot be written"]),
        (["model", "1x24", "--warmup", "99999999999"], ["'--warmup'", "1000"]),
        (["model", "1x24", "--seconds", "inf"], ["'--seconds'", "86400"]),
        (["model", "1x24", "--dtype", ""], ["Unknown dtype ''"]),
        (["model", "1x24", "--lengths", "8,1000000"], ["--lengths 1000000", "use 131072 or less"]),
        (["model", "1x24", "--batch-sizes", "1000000", "--lengths", "131072"], ["--batch-sizes 1000000", "GB", "free"]),
        (["loss", "--lengths", "1000000"], ["--lengths 1000000", "use 131072 or less"]),
        (["loss", "--lengths", "131072", "--batch", "1000000"], ["--batch 1000000 and --lengths 131072", "GB of cpu"]),
        (["step", "--length", "1000000"], ["--length 1000000", "use 131072 or less"]),
        (["step", "--length", "100000", "--batch", "1000000"], ["--batch 1000000 and --length 100000", "GB of cpu"]),
        (["model", "1x24", "--dtype", "float12"], ["float12"]),
    ],
)
def test_mistakes_give_one_line_and_exit_code_2(limbeck, arguments, parts):
    assert_one_line_error(limbeck("benchmark", *arguments), 2, *parts)
