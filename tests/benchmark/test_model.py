"""`benchmark model`: any models side by side."""

import io

import pytest
import torch
from rich.console import Console

from limbeck.benchmark.model import load_or_make, measure_models, measure_size, read_config
from limbeck.benchmark.tables import model_blocks
from limbeck.core.console_blocks import console as shown
from limbeck.core.studies import Costs
from limbeck.core.timing import FEWEST_ROUNDS, MOST_ROUNDS
from limbeck.errors import RecipeError
from limbeck.models.blueprint import names_shape
from limbeck.report.costs import costs_table
from tests.support.models import make_teacher

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rows(bert_folder):
    heard = []
    result = measure_models(
        [str(bert_folder), "1x24"], device=CPU, batch_sizes=[1, 3], lengths=[4, 16], seconds=0.1,
        report=lambda share, *_: heard.append(share),
    )  # fmt: skip
    assert heard == sorted(heard)
    return result


def test_rows_of_a_saved_model_and_a_shape(rows, bert_folder):
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


def test_sizes_are_those_of_the_weights_and_the_matrix_products(rows, bert_folder):
    layers, hidden, ffn = 4, 48, 96
    saved, made = rows[:2]
    model = load_or_make(str(bert_folder), length=16, dtype=torch.float32, device=CPU)
    numbers = {name: parameter.numel() for name, parameter in model.named_parameters()}
    embedding = sum(number for name, number in numbers.items() if name.startswith("embeddings."))
    blocks = sum(number for name, number in numbers.items() if name.startswith("encoder.layer."))
    assert (saved["embedding_parameters"], saved["transformer_parameters"]) == (embedding, blocks)
    assert saved["parameters"] == sum(numbers.values())
    on_disk = sum(path.stat().st_size for path in bert_folder.glob("*.safetensors"))
    assert (saved["megabytes"], saved["megabytes_of"]) == (pytest.approx(on_disk / 1e6, rel=1e-4), "files")
    assert made["megabytes"] == pytest.approx(made["parameters"] * 4 / 1e6, rel=1e-5)
    assert (made["megabytes_of"], saved["heads"], made["heads"]) == ("tensors", 4, 12)
    # Two operations a weight of the blocks' matrices; scores and their use are 2 x 2 a token, neighbour and width.
    matrices = layers * (4 * hidden * hidden + 2 * hidden * ffn)
    for row in rows[::2]:
        products = 2 * matrices + layers * 4 * row["length"] * hidden
        assert row["megaflops_per_token"] == pytest.approx(products / 1e6, rel=1e-4)


@pytest.mark.parametrize("family", ["bert", "mpnet", "albert"])
def test_a_measured_model_is_left_as_it_was(family, tmp_path):
    folder = make_teacher(tmp_path, family)
    model = load_or_make(str(folder), length=8, dtype=torch.float32, device=CPU)
    inputs = {"input_ids": torch.arange(5, 13)[None], "attention_mask": torch.ones(1, 8, dtype=torch.long)}
    attention, before = model.config._attn_implementation, model(**inputs).last_hidden_state
    assert measure_size(str(folder), model)[1].weights > 0
    assert model.config._attn_implementation == attention
    assert torch.equal(model(**inputs).last_hidden_state, before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_table_has_sizes_and_speedups(rows, bert_folder):
    # A busy machine gives no speedup, so that the table gets one that does not depend on the machine.
    timed = {"median_ms": 8.0, "rounds": 9}
    first, others = timed | {"speedup": 1.0}, timed | {"speedup": 2.53}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(shown(*model_blocks([row | (first if row["model"] == str(bert_folder) else others) for row in rows])))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert f"Speedups are relative to {bert_folder}" in "".join(text.splitlines()).replace("  ", "")
    assert "Transformer" in text and "of 16" in text and "2.53x" in text
    assert f"{rows[1]['embedding_parameters'] / 1e6:.2f}" in text and f"{rows[0]['megabytes']:.1f}" in text


def test_a_speedup_that_is_not_that_of_the_medians_is_told(rows):
    even = [row | {"median_ms": 8.0, "speedup": 1.0, "rounds": 9} for row in rows]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(shown(*model_blocks(even)))
    assert "uneven" not in console.export_text()
    uneven = [row | {"median_ms": 7.0, "speedup": 1.5} if row["model"] != rows[0]["model"] else row for row in even]
    console.print(shown(*model_blocks(uneven)))
    batch = f"{rows[0]['batch']} x {rows[0]['length']}"
    assert f"The machine was uneven: at {batch} the medians of" in (text := console.export_text())
    assert "give 1.14x. Trust 1.5x, of passes side by side" in text


@pytest.mark.parametrize(
    ("names", "ratio", "is_busy", "note"),
    [
        (("2x24", "1x24"), 4.64, False, "it was 4.64x as fast"),
        (("1x24", "2x24"), 1 / 4.64, False, "it was 4.64x as slow"),
        (("2x24", "1x24"), 2.9, False, None),
        (("1x24", "2x24"), 1 / 2.9, False, None),
        # Times that spread widely say less.
        (("2x24", "1x24"), 2.9, True, "it was 2.9x as fast"),
        (("2x24", "1x24"), 2.1, True, "it was 2.1x as fast"),
        (("2x24", "1x24"), 1.99, True, None),
    ],
)  # fmt: skip
def test_a_speedup_that_the_shapes_cannot_give_is_a_dash(names, ratio, is_busy, note, monkeypatch):
    monkeypatch.setattr("limbeck.benchmark.model.speedup", lambda first, other: 1.0 if first is other else ratio)
    monkeypatch.setattr("limbeck.core.timing.is_unsteady", lambda *_, **__: is_busy)
    if note is not None:
        note += " as the first model, but the shapes of the two give about 2x"
    # Few rounds say less too, so that there are many.
    first, second = measure_models(names, device=CPU, batch_sizes=[3], lengths=[8], seconds=5)
    assert second["rounds"] == MOST_ROUNDS
    busy = "at 3 x 8 tokens the machine was busy, so the times are longer than on an idle one. A speedup compares"
    assert first["speedup"] == 1 and (first["note"] or "").startswith(busy if is_busy else "")
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(shown(*model_blocks([first, second])))
    costs = Costs.read({
        "models": [{"model": name, "title": name} for name in names], "machine": {"device": "a CPU"},
        "timings": [first, second],
    })  # fmt: skip
    console.print(costs_table(costs))
    text = console.export_text()
    if note is None:
        assert second["speedup"] == pytest.approx(ratio, rel=1e-4) and second["note"] == first["note"]
        assert "as the first model" not in text
        # The times are marked in both tables, and one note names both models.
        assert text.count(" * ") == (4 if is_busy else 0)
        assert text.count(f"{names[0]}, {names[1]}: {busy}") == (2 if is_busy else 0)
    else:
        assert second["speedup"] is None and second["note"].startswith(f"at 3 x 8 tokens {note} at most. The machine")
        assert text.count(f"{names[1]}: at 3 x 8 tokens {note}") == 2
        assert "4.64x" not in text.replace(note, "") and "0.216x" not in text


def test_a_speedup_of_few_rounds_is_within_the_shapes(monkeypatch):
    monkeypatch.setattr("limbeck.benchmark.model.speedup", lambda first, other: 1.0 if first is other else 2.1)
    monkeypatch.setattr("limbeck.core.timing.is_unsteady", lambda *_, **__: False)
    first, second = measure_models(("2x24", "1x24"), device=CPU, batch_sizes=[3], lengths=[8], seconds=0.001)
    assert first["rounds"] == second["rounds"] == FEWEST_ROUNDS
    assert first["speedup"] == 1 and second["speedup"] is None
    assert "it was 2.1x as fast as the first model" in second["note"] and "the rounds were few" in second["note"]


def test_shapes_are_told_from_models(bert_folder, tmp_path, monkeypatch):
    assert names_shape("6x384")
    assert names_shape("tinybert-4x312")
    assert not names_shape("owner/6x384")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "6x384").mkdir()
    assert not names_shape("6x384")  # the folder is what is there
    assert read_config("2x24", length=700).max_position_embeddings == 700
    assert read_config("2x24", length=7).max_position_embeddings == 512
    for name in (str(bert_folder), "1x24"):
        model = load_or_make(name, length=8, dtype=torch.bfloat16, device=CPU)
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16} and not model.training


def test_mistakes_are_refused(bert_folder):
    with pytest.raises(RecipeError, match=r"--lengths 600 is more than the 128"):
        measure_models([str(bert_folder)], device=CPU, lengths=[4, 600])
    with pytest.raises(RecipeError, match="named twice"):
        measure_models(["1x24", "1x24"], device=CPU)
