"""`benchmark model`: any models side by side."""

import pytest
import torch

from limbeck.benchmark.model import measure_models
from limbeck.benchmark.models import load_or_make, names_shape, read_config
from limbeck.errors import ModelError, RecipeError

CPU = torch.device("cpu")


def test_rows_of_a_saved_model_and_a_shape(bert_folder):
    heard = []
    rows = measure_models(
        [str(bert_folder), "1x24"], device=CPU, batch_sizes=[1, 3], lengths=[4, 16], seconds=0.1,
        report=lambda share, what: heard.append(share),
    )  # fmt: skip
    cases = [(1, 4), (3, 4), (1, 16), (3, 16)]
    assert [(row["batch"], row["length"]) for row in rows] == [case for case in cases for _ in range(2)]
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert (first["model"], second["model"]) == (str(bert_folder), "1x24")
        assert first["speedup"] == 1
        assert first["rounds"] == second["rounds"] >= 3
        for row in (first, second):
            assert row["p10_ms"] <= row["median_ms"] <= row["p90_ms"]
            assert row["sentences_per_second"] == pytest.approx(row["batch"] * 1000 / row["median_ms"], rel=1e-4)
            assert row["tokens_per_second"] == pytest.approx(row["length"] * row["sentences_per_second"], rel=1e-4)
    assert rows[0]["shape"] == "bert 4x48, 4 heads, FFN 96"
    assert heard == sorted(heard)


def test_shapes_are_told_from_models(tmp_path, monkeypatch):
    assert names_shape("6x384")
    assert names_shape("tinybert-4x312")
    assert not names_shape("owner/6x384")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "6x384").mkdir()
    assert not names_shape("6x384")  # the folder is what is there
    assert read_config("2x24", length=700).max_position_embeddings == 700
    assert read_config("2x24", length=7).max_position_embeddings == 512


def test_models_have_the_dtype_that_is_asked_for(bert_folder):
    for name in (str(bert_folder), "1x24"):
        model = load_or_make(name, length=8, dtype=torch.bfloat16, device=CPU)
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
        assert not model.training


def test_mistakes_are_refused(bert_folder):
    with pytest.raises(RecipeError, match=r"--lengths 600 is longer than the 128"):
        measure_models([str(bert_folder)], device=CPU, lengths=[4, 600])
    with pytest.raises(RecipeError, match="named twice"):
        measure_models(["1x24", "1x24"], device=CPU)
    with pytest.raises(ModelError, match="nowhere"):
        measure_models(["./nowhere"], device=CPU)
