"""Whole comparisons on a tiny teacher: one start, one corpus, one budget, and what they leave."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict

import pytest

import limbeck
from limbeck.models.families import base_model
from limbeck.training import student_maker
from tests.support.comparisons import STUDENT, TOKENS
from tests.support.corpora import write_text


def fingerprint_of(model):
    digest = hashlib.blake2b()
    for name, tensor in sorted(base_model(model).state_dict().items()):
        digest.update(name.encode() + tensor.detach().numpy().tobytes())
    return digest.hexdigest()


def test_runs_have_one_corpus_and_one_start_whatever_the_method(plan, tmp_path, monkeypatch):
    starts = defaultdict(set)
    original = student_maker.make_student

    def remembering(student_plan, load_teacher, *, seed, **options):
        student, record = original(student_plan, load_teacher, seed=seed, **options)
        starts[str(student_plan.shape), seed].add(fingerprint_of(student))
        return student, record

    monkeypatch.setattr(student_maker, "make_student", remembering)
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    plan["corpus"]["sources"] = [str(write_text(tmp_path / "text", 20))]
    narrow = {"shape": {**STUDENT, "hidden": 24}, "initialise": {"layers": "last", "embeddings": "projected"}}
    students = [{"shape": STUDENT, "initialise": {"layers": "random", "embeddings": "random"}}, narrow]
    plan |= {"methods": ["mlm", {"title": "start", "stages": []}], "students": students, "seeds": [1, 2]}
    result = limbeck.compare(plan, output=tmp_path / "out")
    assert result.failed == 0 and len(result.record["cells"]) == 8
    assert len(starts) == 4 and all(len(fingerprints) == 1 for fingerprints in starts.values())
    assert len(set.union(*starts.values())) == 3, "seeds start elsewhere, but for the student that copies its teacher"
    manifests = (tmp_path / "cache").rglob("manifest.json")
    assert sorted(path.parents[1].name for path in manifests) == ["blocks", "documents"]


def test_every_run_reads_the_budget_and_what_is_impossible_is_left_out(plan, tmp_path):
    methods = ["minilmv2", "output_distribution", {"name": "hidden_states", "mappings": [[1, 2, 3]]}]
    result = limbeck.compare(plan | {"methods": methods, "skip_impossible": True}, output=tmp_path / "out")
    [left_out] = result.record["impossible"]
    assert (left_out["method"], result.failed) == ("hidden_states", 0) and "[1, 2, 3] has 3" in left_out["reason"]
    single, double = result.record["cells"]
    assert len(single["steps"]) == 1 and len(double["steps"]) == 2
    assert sum(double["steps"]) == single["steps"][0]
    corpus = result.record["corpus"]
    step = 8 * corpus["tokens"] / corpus["rows"]
    for cell in (single, double):
        assert abs(cell["tokens"] - TOKENS) < 1.5 * step
    run = json.loads((tmp_path / "out" / double["folder"] / "run.json").read_text())
    assert [stage["steps"] for stage in run["stages"]] == double["steps"]
    assert double["tokens"] == sum(stage["tokens"] for stage in run["stages"])


def test_from_plan_to_tables_and_record(plan, tasks, tmp_path, trained):
    plan["evaluation"] |= {
        "tasks": "rte,mrpc", "preset": "quick", "data": str(tasks), "seeds": 1,
        "settings": {"length": 32, "epochs": 1, "batch_size": 8, "max_scored_rows": None},
        "speed": {"batch_sizes": [2], "lengths": [16], "seconds": 0.01},
    }  # fmt: skip
    output = tmp_path / "out"
    result = limbeck.compare(plan | {"seeds": [1, 2]}, output=output)
    assert result.failed == 0 and len(trained) == 4
    record = json.loads((output / "comparison.json").read_text())
    assert record["status"] == "finished" and record["versions"]["torch"] and "git_commit" in record
    for cell in record["cells"]:
        assert cell["status"] == "finished" and cell["seconds"] > 0 and cell["versions"]["transformers"]
        assert set(cell["scores"]) == {"rte", "mrpc"}
        assert -1 <= cell["held_out"]["agreement"] <= 1 and cell["held_out"]["relations"] > 0
    [block] = record["summary"]["blocks"]
    by_run = {cell["title"]: cell for cell in record["cells"]}
    for row in block["rows"]:
        own = [by_run[f"{row['method']}, {row['mapping']} on 2x32, seed {seed}"] for seed in (1, 2)]
        expected = [(cell["scores"]["rte"] + cell["scores"]["mrpc"]) / 2 for cell in own]
        assert row["averages"]["average"]["runs"] == pytest.approx(expected)
        of_teacher = record["summary"]["teacher"]["columns"]["rte"]["mean"]
        assert row["retention"]["rte"] == pytest.approx(100 * row["columns"]["rte"]["mean"] / of_teacher)
        assert row["held_out"]["agreement"]["runs"] == [cell["held_out"]["agreement"] for cell in own]
    assert block["cost"]["parameters"] < record["summary"]["teacher"]["cost"]["parameters"]
    assert record["teacher"]["held_out"]["agreement"] == pytest.approx(1.0)
    assert [path.name for path in result.files] == [f"comparison_table{end}" for end in (".md", ".csv", ".json")]
    before = (output / "evaluation" / "results.jsonl").read_bytes()
    again = limbeck.compare(plan | {"seeds": [1, 2]}, output=output)
    assert len(trained) == 4, "nothing is trained again"
    assert (output / "evaluation" / "results.jsonl").read_bytes() == before
    assert again.record["summary"] == record["summary"]
