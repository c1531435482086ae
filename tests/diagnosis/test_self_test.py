"""The self-test passes here, leaves nothing behind, and fails for what is broken."""

import json
import os
import tempfile

import pytest
import torch

from limbeck.benchmark.loss_case import measured_objectives
from limbeck.diagnosis import self_test
from limbeck.diagnosis.self_test import TOLERANCE, find_error, find_run
from limbeck.diagnosis.tiny_teacher import random_text, write_teacher
from limbeck.kernels import dispatch
from limbeck.models.loading import load_model
from limbeck.models.tokenizers import load_tokenizer


@pytest.mark.parametrize("objective", measured_objectives())
def test_kernels_are_as_exact_as_float32_is(objective):
    found = find_error(objective, "cpu")
    assert found.status == "ok"
    assert set(found.facts) == {*measured_objectives()[objective].backends} - {"triton"}
    assert all(0 < error < TOLERANCE / 10 for error in found.facts.values())


@pytest.mark.parametrize("wrong", [1.001, float("nan")])
def test_a_kernel_that_is_wrong_is_found(monkeypatch, wrong):
    right = dispatch.relation_kl_blocked
    monkeypatch.setitem(
        dispatch.RELATION_KL.backends, "blocked", lambda *given, **options: wrong * right(*given, **options)
    )
    found = find_error("relation_kl", "cpu")
    assert found.status == "failed"
    assert "a backend other than blocked," in found.way_out


def test_a_run_from_text_to_a_student(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache = os.environ["LIMBECK_CACHE"]
    corpus, training, student = find_run()
    assert [finding.status for finding in (corpus, training, student)] == ["ok"] * 3
    assert corpus.facts["tokens"] > 100
    assert len(training.facts["losses"]) == 2
    assert list(tmp_path.iterdir()) == []
    assert os.environ["LIMBECK_CACHE"] == cache
    monkeypatch.delenv("LIMBECK_CACHE")
    with self_test._workplace() as folder:
        assert os.environ["LIMBECK_CACHE"].startswith(str(folder))
    assert "LIMBECK_CACHE" not in os.environ and not folder.exists()


def test_a_student_that_is_not_what_was_saved_is_found(monkeypatch):
    def load(*arguments, **options):
        model = load_model(*arguments, **options)
        with torch.no_grad():
            next(model.parameters())[0, 0] += 1
        return model

    monkeypatch.setattr(self_test, "load_model", load)
    *_, student = find_run()
    assert student.status == "failed"


@pytest.mark.parametrize(
    ("losses", "status"), [([0.5, 0.25], "ok"), ([0.5, float("nan")], "failed"), ([0.5], "failed")]
)
def test_losses_are_judged(tmp_path, losses, status):
    folder = tmp_path / "stages" / "1-minilmv2"
    folder.mkdir(parents=True)
    lines = [json.dumps({"loss": loss}) for loss in losses] + [json.dumps({"eval_loss": 1.0})]
    (folder / "log.jsonl").write_text("\n".join(lines))
    assert self_test._judge_losses(tmp_path).status == status


def test_the_teacher_knows_every_word_and_leaves_the_random_stream(tmp_path):
    state = torch.get_rng_state()
    write_teacher(tmp_path)
    assert torch.equal(state, torch.get_rng_state())
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.unk_token_id not in tokenizer(random_text())["input_ids"]
    first, again = load_model(tmp_path), tmp_path / "again"
    write_teacher(again)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), load_model(again).parameters(), strict=True))
