"""`limbeck benchmark` as a user types it: tables, files, JSON."""

import csv

import pytest
import yaml

LOSS = ("loss", "--widths", "8,4", "--lengths", "4,6", "--heads", "2", "--batch", "2")
QUICK = ("--seconds", "0.02", "--no-memory")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr("limbeck.benchmark.peak_rates.CPU_SIZE", 16)


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
def test_tables(limbeck, arguments, words):
    shown = limbeck.shown("benchmark", *arguments, *QUICK)
    assert [word for word in words if word not in shown] == []


def test_a_file_and_json_hold_the_same_rows(limbeck, tmp_path):
    path = tmp_path / "results" / "model.csv"
    printed = limbeck.json("benchmark", "model", "2x24", "1x24", "--batch-sizes", "1", "--lengths", "4,8", "--seconds",
                           "0.02", "--output", path, "--quiet")  # fmt: skip
    with path.open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file, quoting=csv.QUOTE_NONNUMERIC))
    assert len(written) == 4
    for row, other in zip(written, printed["rows"], strict=True):
        # An empty field of CSV is a value that there is not, such as the note of a speedup without doubts.
        assert {key: None if row[key] == "" else row[key] for key in other} == other
        assert row["commit"] == printed["machine"]["commit"]
        assert f"torch={printed['machine']['versions']['torch']}" in row["versions"]


def test_a_recipe_is_measured_with_overrides(limbeck, tiny_recipe, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe))
    rows = limbeck.json("benchmark", "step", path, "--set", "corpus.length=16", "--device", "cpu", *QUICK)["rows"]
    assert (rows[0]["batch"], rows[0]["length"], rows[0]["tokens"]) == (8, 16, 128)
