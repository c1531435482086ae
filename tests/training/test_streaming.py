"""Runs on streams and on mixed sources: the rows they meet, and that a stopped run meets the same."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
import torch

import limbeck
from limbeck.core.blocks import Table
from limbeck.core.records import Run, load
from limbeck.core.run_status import status_of
from limbeck.corpus import Lane, PadCollator
from limbeck.errors import CorpusError, TrainingError
from limbeck.models.tokenizers import load_tokenizer
from limbeck.report.provenance import run_provenance
from limbeck.training.rows import training_rows
from limbeck.training.stream_loader import StreamLoader
from limbeck.training.trainer import DistillationTrainer
from tests.support.streams import ALONE, make_texts, stream, write_texts
from tests.support.training import assert_ends_like, elsewhere, kill_at, log_of, record_of, without_clocks
from tests.training.conftest import refused


@pytest.fixture
def languages(tmp_path):
    """Two sources of several files, one small."""
    for number in range(2):
        write_texts(tmp_path / "en" / f"{number}.txt.xz", make_texts(f"en {number}", 90))
    write_texts(tmp_path / "sw" / "0.txt.xz", make_texts("sw", 30))
    return [str(tmp_path / "en"), str(tmp_path / "sw")]


@pytest.fixture
def streamed_recipe(tiny_recipe, tmp_path, languages):
    mix = {"by": f"{tmp_path}/{{language}}/*.txt.xz", "exponent": 0.3}
    tiny_recipe["corpus"] = {"mix": mix, "length": 32, "held_out": 0.1, "streaming": True, "shuffle_buffer": 40}
    tiny_recipe["stages"][0]["training"] |= {"max_steps": 12, "eval_steps": 100}
    return tiny_recipe


@pytest.fixture
def batches_met(monkeypatch):
    """Note the tokens of every batch that is trained on."""
    met = []
    original = DistillationTrainer.training_step

    def step(self, model, inputs, *arguments):
        met.append(inputs["input_ids"].clone())
        return original(self, model, inputs, *arguments)

    monkeypatch.setattr(DistillationTrainer, "training_step", step)
    return met


def drawn_of(recipe):
    return record_of(recipe)["stages"][0]["drawn"]


@pytest.mark.parametrize(("workers", "accumulation"), [(0, 2), (2, 1)])
def test_a_run_on_a_stream_that_is_killed_meets_the_same_batches(
    streamed_recipe, tmp_path, batches_met, workers, accumulation
):
    streamed_recipe["student"]["dropout"] = 0.1
    streamed_recipe["stages"][0]["augment"] = {"replace_tokens": 0.2, "mask_tokens": 0.15}
    more = {"dataloader_num_workers": workers, "gradient_accumulation_steps": accumulation}
    streamed_recipe["stages"][0]["training"] |= more | {"max_steps": 7, "save_steps": 2}
    whole = elsewhere(streamed_recipe, tmp_path / "whole")
    limbeck.distill(whole)
    expected = list(batches_met)
    assert len(expected) == 7 * accumulation
    batches_met.clear()
    kill_at(streamed_recipe, 5)
    assert len(batches_met) == 5 * accumulation
    del batches_met[4 * accumulation :]  # Trained on behind the last checkpoint.
    assert_ends_like(streamed_recipe, whole)
    assert all(torch.equal(batch, other) for batch, other in zip(batches_met, expected, strict=True))
    assert drawn_of(whole) == drawn_of(streamed_recipe)
    logs = [without_clocks(log_of(recipe)) for recipe in (whole, streamed_recipe)]
    assert logs[0] == logs[1]


def test_the_record_of_a_stream(streamed_recipe):
    folder = limbeck.distill(streamed_recipe).student.parent
    record = record_of(streamed_recipe)
    text, drawn = record["corpus"], record["stages"][0]["drawn"]
    [view] = text["views"]
    assert view["streamed"] and text["documents"] is None and text["held_out_documents"] > 0
    assert sum(drawn["rows"].values()) == 12 * 8 and list(drawn["rows"]) == ["en", "sw"]
    assert drawn["report"]["counts"] == {}
    for name, share in drawn["shares"].items():
        assert abs(share - view["shares"][name]) < 0.15
    assert record["stages"][0]["held_out"]
    blocks = run_provenance(load(Run, folder), folder, status_of(folder))
    [table] = [block for block in blocks if isinstance(block, Table) and block.caption == "Mixed sources"]
    assert all(row[2].startswith("size^0.3, in bytes of text") for row in table.rows)
    assert [(row[1], row[-1].value) for row in table.rows] == list(drawn["rows"].items())


def test_the_record_of_a_built_mix_tells_what_was_drawn(tiny_recipe, languages, batches_met):
    tiny_recipe["corpus"] = {"sources": languages, "length": 32, "held_out": 0.1, "mix": {"weights": [1, 1]}}
    more = {"per_device_train_batch_size": 50, "gradient_accumulation_steps": 2}
    tiny_recipe["stages"][0]["training"] |= {"max_steps": 15, "save_steps": 100, "eval_steps": 100, **more}
    limbeck.distill(tiny_recipe)
    drawn = drawn_of(tiny_recipe)
    assert sum(drawn["rows"].values()) == sum(map(len, batches_met)) < 15 * 100, "the last step of an epoch is smaller"
    assert all(abs(share - 0.5) < 0.1 for share in drawn["shares"].values())


def test_the_second_epoch_meets_the_rows_of_the_first_in_another_order(recipe, batches_met):
    limbeck.distill(recipe)
    first, second = batches_met[:3], batches_met[3:]
    blocks = record_of(recipe)["corpus"]["views"][0]["blocks"]
    assert sum(map(len, first)) == sum(map(len, second)) == blocks
    assert not all(torch.equal(batch, other) for batch, other in zip(first, second, strict=True))


def loader(corpus, tokenizer, lane=ALONE, workers=0):
    rows = training_rows(corpus, tokenizer, replace_tokens=0.0, mask_tokens=0.15, seed=1)
    collate = PadCollator(tokenizer.pad_token_id, labels="token")
    return StreamLoader(rows, collate, lane, batch_size=4, seed=1, options={"num_workers": workers})


def first(batches, count):
    return list(islice(batches, count))


def test_masks_change_with_every_pass_and_only_with_it(tmp_path, bert_folder):
    tokenizer = load_tokenizer(str(bert_folder))
    corpus = stream(tmp_path / "cache", tokenizer, write_texts(tmp_path / "a.txt", make_texts("a", 8)), held_out=0.0)
    found = {}
    for blocks, _ in zip(corpus.batches(Lane(0, 1), batch_size=4, seed=1), range(60), strict=False):
        rows = training_rows(corpus, tokenizer, replace_tokens=0.0, mask_tokens=0.4, seed=1)
        for block in blocks[0]:
            row = rows.make(block)
            found.setdefault((tuple(block.ids), block.earlier_passes), set()).add(tuple(row["input_ids"]))
    assert all(len(masked) == 1 for masked in found.values())
    by_text = {}
    for (ids, _), masked in found.items():
        by_text.setdefault(ids, set()).update(masked)
    assert max(map(len, by_text.values())) > 3


def test_a_position_is_small_and_belongs_to_its_layout(tmp_path, bert_folder, languages):
    tokenizer = load_tokenizer(str(bert_folder))
    corpus = stream(tmp_path / "cache", tokenizer, *languages)
    whole = loader(corpus, tokenizer, workers=0)
    batches = first(whole, 30)
    half = loader(corpus, tokenizer)
    assert all(torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(first(half, 17), batches, strict=False))
    position = json.dumps(half.state_dict())
    assert len(position) < 2000
    rest = loader(corpus, tokenizer)
    rest.load_state_dict(json.loads(position))
    for batch, expected in zip(first(rest, 13), batches[17:], strict=True):
        assert all(torch.equal(batch[name], expected[name]) for name in expected)
    with refused("processes 1, workers 0, batch_size 4 and would now be read with processes 2", TrainingError):
        loader(corpus, tokenizer, Lane(0, 2)).load_state_dict(json.loads(position))
    assert sum(rest.states[0]["drawn"]) == 30 * 4 and rest.states[0]["report"]["counts"] == {}


def test_ranks_and_workers_read_different_parts(tmp_path, bert_folder, languages):
    tokenizer = load_tokenizer(str(bert_folder))
    corpus = stream(tmp_path / "cache", tokenizer, languages[0], shuffle_buffer=4)
    parts = []
    for rank in range(2):
        batches = first(loader(corpus, tokenizer, Lane(rank, 2), workers=2), 6)
        # Of a masked token the label is what it was.
        whole = [torch.where(batch["labels"] < 0, batch["input_ids"], batch["labels"]) for batch in batches]
        parts.append({tokenizer.decode(row, skip_special_tokens=True) for batch in whole for row in batch})
    assert all(len(part) > 10 for part in parts)
    assert not parts[0] & parts[1]


def test_a_worker_that_meets_no_text_says_so_in_one_line(tmp_path, bert_folder):
    tokenizer = load_tokenizer(str(bert_folder))
    corpus = stream(tmp_path / "cache", tokenizer, write_texts(tmp_path / "a.txt", ["one text alone"]), held_out=0.0)
    with refused("gets no block of text", CorpusError):
        first(loader(corpus, tokenizer, workers=2), 2)


def test_changed_text_is_not_resumed(streamed_recipe, languages):
    kill_at(streamed_recipe, 3)
    write_texts(Path(languages[1], "0.txt.xz"), ["Other text."])
    with refused("has changed since"):
        limbeck.distill(streamed_recipe, resume=True)
