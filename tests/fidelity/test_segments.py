"""Pairs of segments in text, as BERT's preprocessing makes them, and rows of embeddings that no batch reads."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import limbeck
from limbeck.errors import RecipeError
from limbeck.models.directions import principal_directions
from limbeck.models.families import embedding_tables
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.untrained import fill_rows
from tests.support.models import make_teacher, tiny_model
from tests.support.training import elsewhere, student_of

PAPERS = Path(__file__).parents[2] / "recipes/papers"
SEGMENTS = "embeddings.token_type_embeddings.weight"
WIDE = {"layers": 2, "hidden": 48, "heads": 2, "ffn": 48}


def unread_in(result):
    return {table["kind"]: (table["unread"], table["first"]) for table in result.record["untrained"]["rows"]}


def test_pairs_train_the_second_segment_and_without_them_its_row_is_named(tiny_recipe, bert_folder, tmp_path):
    tiny_recipe["stages"][0]["training"] |= {"max_steps": 1, "warmup_steps": 0, "weight_decay": 0.0}
    paired = elsewhere(tiny_recipe, tmp_path / "paired")
    paired["stages"][0]["text"] = {"pairs": True}
    alone, in_pairs = limbeck.distill(tiny_recipe), limbeck.distill(paired)

    teacher = load_file(bert_folder / "model.safetensors")
    basis, _ = principal_directions(teacher["embeddings.word_embeddings.weight"], 24)
    start = (teacher[SEGMENTS].double() @ basis).float()
    moved = [(student_of(recipe)[SEGMENTS] != start).any(1).tolist() for recipe in (tiny_recipe, paired)]
    assert moved == [[True, False], [True, True]]
    assert unread_in(alone)["segments"] == (1, "1") and unread_in(alone)["positions"] == (96, "32-127")
    assert unread_in(in_pairs).keys() == {"tokens", "positions"}
    said = "1 of 2 segment embeddings were never trained and keep the teacher's values, projected to its width."
    assert said in (alone.student / "README.md").read_text(encoding="utf-8")
    assert "of 2 segment" not in (in_pairs.student / "README.md").read_text(encoding="utf-8")


def test_rows_that_no_batch_reads_are_the_teachers_where_asked(tiny_recipe, bert_folder):
    start = {"layers": "random", "embeddings": "random"}
    tiny_recipe["student"] = {"shape": WIDE, "initialise": start, "untrained": "teacher"}
    tiny_recipe["stages"][0]["training"]["max_steps"] = 1
    result = limbeck.distill(tiny_recipe)
    own, teacher = student_of(tiny_recipe), load_file(bert_folder / "model.safetensors")
    for table, read in ((SEGMENTS, 1), ("embeddings.position_embeddings.weight", 32)):
        assert (own[table] == teacher[table]).all(1).tolist() == [row >= read for row in range(len(own[table]))]
    assert all(table["from_teacher"] for table in result.record["untrained"]["rows"])
    assert "were never trained and keep the teacher's values." in (result.student / "README.md").read_text(
        encoding="utf-8"
    )


def test_narrower_students_take_rows_by_projection_and_wider_ones_none():
    teacher, rows = tiny_model("bert"), {"segments": np.array([False, True])}
    tables = embedding_tables(teacher)
    narrow, wide = (tiny_model("bert", hidden=width, seed=1) for width in (24, 96))
    first = embedding_tables(narrow)["segments"].module.weight[0].clone()
    assert fill_rows(narrow, teacher, rows) == ["segments"]
    basis, _ = principal_directions(tables["tokens"].module.weight, 24)
    found = embedding_tables(narrow)["segments"].module.weight
    assert torch.allclose(found[1].double(), tables["segments"].module.weight[1].double() @ basis, atol=1e-6)
    assert torch.equal(found[0], first)
    assert fill_rows(wide, teacher, rows) == []


def test_a_narrower_student_with_other_words_still_takes_segments():
    teacher, narrow = tiny_model("bert"), tiny_model("bert", hidden=24, seed=1)
    narrow.resize_token_embeddings(50)
    assert fill_rows(narrow, teacher, {"segments": np.array([False, True])}) == ["segments"]


def test_scores_of_a_tied_output_layer_train_every_token(tiny_recipe):
    tiny_recipe["stages"][0] |= {"method": {"name": "mlm"}, "text": {"pairs": True, "join": True}}
    tiny_recipe["stages"][0]["training"]["max_steps"] = 1
    assert unread_in(limbeck.distill(tiny_recipe)) == {"positions": (96, "32-127")}


def test_models_without_two_segments_are_refused(tiny_recipe, tmp_path):
    tiny_recipe["stages"][0]["text"] = {"pairs": True}
    for family, changes in (("distilbert", {}), ("roberta", {"type_vocab_size": 1})):
        tiny_recipe["teacher"]["model"] = str(make_teacher(tmp_path / family, family, **changes))
        line = rf"stages.0.text.pairs: a pair has two segments, but the teacher, a {family}, cannot tell segments apart"
        with pytest.raises(RecipeError, match=line):
            plan_run(load_recipe(tiny_recipe))


def test_recipes_of_papers_that_preprocess_as_bert_read_pairs():
    texts = {path.stem: path.read_text(encoding="utf-8") for path in PAPERS.glob("*.yaml")}
    paired = {name for name, text in texts.items() if "\n  pairs: true " in text}
    on_text = {name for name, text in texts.items() if "\nstages:" in text and "\n  task:" not in text}
    of_bert = {name for name in on_text if "\n  model: google-bert/" in texts[name]}
    say_so = ("# MiniLM (arXiv 2002.10957)", "# ELM (arXiv 2012.06153)")  # In sections 4.1 and 5.1.
    assert paired == {name for name in of_bert if texts[name].startswith(say_so)} | {"bert-tiny-4x312"}
