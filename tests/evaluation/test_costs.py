"""Size and latency."""

import math
from pathlib import Path

import pytest
import torch
from transformers import AlbertConfig, AlbertModel, BertConfig, BertForMaskedLM, BertModel

from limbeck.core.timing import FEWEST_ROUNDS
from limbeck.errors import ModelError
from limbeck.evaluation import count_parameters, latency, measure_latency, tensors_megabytes, weights_megabytes
from limbeck.evaluation.costs import find_blocks, work_ratio
from limbeck.evaluation.latency import _BlockClock
from limbeck.models.inference import longest_input
from tests.support.word_models import tiny_bert, tiny_models

BLOCK = 4 * (16 * 16 + 16) + (16 * 32 + 32) + (32 * 16 + 16) + 2 * 2 * 16


TABLES = (64 + 64 + 2) * 16 + 2 * 16
FACTORISED = (64 + 64 + 2) * 8 + 16 + (8 * 16 + 16)
POOLER = 16 * 16 + 16


@pytest.mark.parametrize(
    ("model", "embedding", "transformer", "pooler", "head"),
    [
        (tiny_bert(layers=3), TABLES, 3 * BLOCK, POOLER, 0),
        # Transform, its norm and the output bias; tied weights count once.
        (BertForMaskedLM(tiny_bert().config), TABLES, 2 * BLOCK, 0, (16 * 16 + 16) + 2 * 16 + 64),
        (tiny_models()["roberta"], (64 + 65 + 2) * 16 + 32, 2 * BLOCK, POOLER, 0),
        (tiny_models()["distilbert"], (64 + 64) * 16 + 32, 2 * BLOCK, 0, 0),
        (tiny_models()["electra"], FACTORISED, 2 * BLOCK, 0, 0),
        (tiny_models()["albert"], FACTORISED, BLOCK, POOLER, 0),  # One block, shared.
    ],
    ids=["bert", "masked lm", "roberta", "distilbert", "electra", "albert"],
)
def test_parameters_by_hand(model, embedding, transformer, pooler, head):
    counts = count_parameters(model)
    assert (counts.embedding, counts.transformer, counts.pooler, counts.head) == (embedding, transformer, pooler, head)
    assert counts.total == sum(parameter.numel() for parameter in model.parameters())


def test_final_norm_belongs_to_the_transformer():
    model = tiny_models()["modernbert"]
    counts = count_parameters(model)
    assert counts.embedding == sum(p.numel() for p in model.embeddings.parameters())
    assert counts.transformer == counts.total - counts.embedding


def test_longest_input_knows_where_positions_begin():
    found = {name: longest_input(model) for name, model in tiny_models().items()}
    assert found["roberta"] == 65 - 1  # pad_token_id 0: positions begin at 1
    assert found["bert"] == found["distilbert"] == found["modernbert"] == 64
    assert longest_input(torch.nn.Linear(2, 2)) is None


def test_megabytes(tmp_path: Path):
    model = tiny_bert()
    model.save_pretrained(tmp_path)
    assert weights_megabytes(tmp_path) == (tmp_path / "model.safetensors").stat().st_size / 1e6
    assert tensors_megabytes(model) == sum(p.numel() for p in model.parameters()) * 4 / 1e6
    with pytest.raises(ModelError, match="No weight files"):
        weights_megabytes(tmp_path / "nothing")


def test_latency_has_every_part():
    found = measure_latency(tiny_bert(4), tiny_bert(1), batch_sizes=(1, 3), length=1000, seconds=0.1)
    assert (found.length, found.dtype, found.threads) == (64, "float32", torch.get_num_threads())
    assert found.device.startswith("cpu")
    assert [batch.batch_size for batch in found.batches] == [1, 3]
    for batch in found.batches:
        assert batch.rounds >= 3
        for whole, part in ((batch.teacher, batch.teacher_transformer), (batch.student, batch.student_transformer)):
            assert 0 < whole.p10_ms <= whole.median_ms <= whole.p90_ms
            assert 0 < part.median_ms < whole.median_ms
        assert batch.speedup > 0 and batch.transformer_speedup > 0
        assert batch.shape_ratio == 4


def test_the_work_of_blocks_is_compared_by_their_parameters_and_their_number():
    ids = torch.zeros((1, 8), dtype=torch.long)
    assert work_ratio(tiny_bert(4), tiny_bert(2), ids) == 2
    # A wide student of few layers: one layer after another takes time, however small it is.
    wide = BertModel(
        BertConfig.from_dict(tiny_bert(1).config.to_dict() | {"hidden_size": 64, "intermediate_size": 512})
    )
    assert work_ratio(tiny_bert(3), wide, ids) == 3
    assert work_ratio(wide, tiny_bert(3), ids) > 10 / 3
    # The shared block of ALBERT runs twice.
    albert = tiny_models()["albert"]
    shallow = AlbertModel(AlbertConfig.from_dict(albert.config.to_dict() | {"num_hidden_layers": 1}))
    assert work_ratio(albert, shallow, ids) == 2
    # Blocks of different architectures cannot be compared by their parameters.
    assert work_ratio(albert, tiny_bert(1), ids) is None
    assert not any(block._forward_pre_hooks for block in find_blocks(albert))


def test_blocks_have_no_time_on_a_device_whose_work_the_cpu_does_not_wait_for():
    model = tiny_bert(2)
    for device, has_time in (("cpu", True), ("mps", False), ("xpu", False)):
        clock = _BlockClock(torch.device(device))
        with clock.watching(find_blocks(model)):
            model(torch.ones(1, 4, dtype=torch.long))
        assert math.isfinite(clock.seconds()) == has_time, device


@pytest.mark.parametrize("family", list(tiny_models()))
def test_latency_of_every_family_leaves_no_hooks(family, monkeypatch):
    # Other programs could slow down the passes of the teacher alone, and so lead to further rounds.
    monkeypatch.setattr(latency, "_is_beyond_shapes", lambda batch: False)
    model = tiny_models()[family]
    model.train()
    found = measure_latency(
        model, tiny_bert(1), batch_sizes=(2,), length=8, seconds=0.0, dtype=torch.bfloat16, warmup=0
    )
    assert found.dtype == "bfloat16" and found.batches[0].rounds == FEWEST_ROUNDS
    assert found.batches[0].teacher_transformer.median_ms > 0
    assert model.training and next(model.parameters()).dtype == torch.float32
    assert not any(block._forward_hooks or block._forward_pre_hooks for block in find_blocks(model))


def test_a_slow_batch_size_behind_the_first_is_left_out_where_the_caller_allows_it(monkeypatch):
    monkeypatch.setattr(latency, "_ALLOWED_SECONDS", 0.0)
    options = {"batch_sizes": (1, 3), "length": 8, "seconds": 0.0}
    left_out: dict[int, float] = {}
    found = measure_latency(tiny_bert(1), tiny_bert(1), **options, left_out=left_out)
    assert [batch.batch_size for batch in found.batches] == [1]
    assert list(left_out) == [3] and left_out[3] > 0
    found = measure_latency(tiny_bert(1), tiny_bert(1), **options)
    assert [batch.batch_size for batch in found.batches] == [1, 3]


def passes_of(seconds):
    return [latency.PassTime(wall=second, blocks=second) for second in seconds]


@pytest.mark.parametrize(
    ("first_rounds", "disturbed", "rounds", "speedup"),
    [
        # The teacher was disturbed in most of few rounds: ten more rounds tell.
        (5, 3, 15, 2.0),
        # Nothing is beyond the shapes, or the rounds are many: no more rounds are needed.
        (5, 0, 5, 2.0),
        (12, 12, 12, 2.5),
    ],
)
def test_few_rounds_beyond_the_shapes_are_followed_by_more(monkeypatch, first_rounds, disturbed, rounds, speedup):
    def time_passes(models, input_ids, *, seconds, warmup=2, fewest=5, **others):
        if warmup == 0:
            return {"teacher": passes_of([2.0] * fewest), "student": passes_of([1.0] * fewest)}
        teacher = [2.5] * disturbed + [2.0] * (first_rounds - disturbed)
        return {"teacher": passes_of(teacher), "student": passes_of([1.0] * first_rounds)}

    monkeypatch.setattr(latency, "time_passes", time_passes)
    [batch] = measure_latency(tiny_bert(4), tiny_bert(2), batch_sizes=(1,), length=8, seconds=0.1).batches
    assert batch.shape_ratio == 2.0
    assert (batch.rounds, batch.speedup, batch.transformer_speedup) == (rounds, speedup, speedup)


def test_a_model_without_blocks_is_refused():
    with pytest.raises(ModelError, match="no list of blocks"):
        find_blocks(torch.nn.Linear(2, 2))
