"""Students whose vocabulary is the part of another model's that text uses: their start, their training, refusals."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

import limbeck
from limbeck.errors import LimbeckError, RecipeError
from limbeck.models.quiet import quiet
from limbeck.models.vocabulary_cut import Pieces
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.held_stage import HeldStage
from tests.support.models import make_embedding, make_teacher, tiny_model, tiny_tokenizer, vocabulary
from tests.support.recipes import recipe_of
from tests.support.training import assert_ends_like, kill_at

LEAST = len(Pieces(tiny_tokenizer("roberta")).staying)
"""Pieces of the tiny vocabulary that always stay: all but its words."""


@pytest.fixture
def teacher(tmp_path):
    return make_embedding(tmp_path / "roberta", "roberta")


def teacher_with_slots(parent, slots):
    """A tiny BERT that makes sentence vectors; unused slots stand before its special tokens."""
    folder = make_embedding(parent, "bert")
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    ids = {name: number + slots for name, number in document["model"]["vocab"].items()}
    document["model"]["vocab"] = {f"[unused{number}]": number for number in range(slots)} | ids
    document["added_tokens"] = [token | {"id": ids[token["content"]]} for token in document["added_tokens"]]
    for name, entry in document["post_processor"]["special_tokens"].items():
        entry["ids"] = [ids[name]]
    path.write_text(json.dumps(document))
    with quiet():
        tiny_model("bert", vocab_size=len(ids) + slots, pad_token_id=ids["[PAD]"]).save_pretrained(folder)
    return folder


@pytest.fixture
def recipe(teacher, text_folder, tmp_path):
    recipe = recipe_of(teacher, text_folder, {"name": "aligned_embedding"}, output=str(tmp_path / "run"))
    start = {"layers": [1, 4], "embeddings": "copied"}
    return {**recipe, "student": {"shape": 2, "initialise": start, "vocabulary": {"pieces": LEAST + 4}}}


def kept_ids(folder):
    """The ids in the teacher's vocabulary of a student's pieces."""
    names = AutoTokenizer.from_pretrained(folder).get_vocab()
    return [vocabulary("roberta").index(name) for name in sorted(names, key=names.get)]


def test_a_student_starts_with_the_rows_that_stay(recipe, teacher):
    stage = HeldStage(plan_run(load_recipe(recipe)))
    names = stage.tokenizer.get_vocab()
    ids = [vocabulary("roberta").index(name) for name in sorted(names, key=names.get)]
    assert len(ids) == LEAST + 4 and ids == sorted(ids)
    source = AutoModel.from_pretrained(teacher)
    student = stage.module.student
    assert torch.equal(student.get_input_embeddings().weight, source.get_input_embeddings().weight[ids])
    for number, layer in enumerate((0, 3)):
        of_source = source.encoder.layer[layer].state_dict()
        assert all(torch.equal(tensor, of_source[name]) for name, tensor in
                   student.encoder.layer[number].state_dict().items())  # fmt: skip
    stage.close()


def test_ids_in_the_configuration_follow_their_tokens(text_folder, tmp_path):
    slots = 3
    teacher = teacher_with_slots(tmp_path / "slots", slots)
    assert AutoTokenizer.from_pretrained(teacher).pad_token_id == slots
    recipe = recipe_of(teacher, text_folder, {"name": "aligned_embedding"}, output=str(tmp_path / "run"))
    least = len(Pieces(tiny_tokenizer("bert")).staying)
    recipe["student"] = {"shape": 2, "vocabulary": {"pieces": least + 4}}
    stage = HeldStage(plan_run(load_recipe(recipe)))
    # The slots have gone, so that padding has the first id, as in a tokenizer that never had any.
    assert stage.module.student.config.pad_token_id == stage.tokenizer.pad_token_id == 0
    assert stage.module.student.get_input_embeddings().padding_idx == 0
    stage.close()
    result = limbeck.distill(recipe)
    assert json.loads((result.student / "config.json").read_text())["pad_token_id"] == 0


def test_a_narrower_student_starts_from_the_rows_that_stay(recipe):
    recipe["student"]["shape"] = {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48}
    recipe["student"]["initialise"] = {"layers": [1, 4]}
    stage = HeldStage(plan_run(load_recipe(recipe)))
    assert stage.module.student.get_input_embeddings().weight.shape == (LEAST + 4, 24)
    stage.close()


def test_a_student_is_trained_and_saved_with_its_pieces(recipe, tmp_path):
    result = limbeck.distill(recipe)
    config = json.loads((result.student / "config.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(result.student)
    assert len(tokenizer) == config["vocab_size"] == LEAST + 4
    assert config["pad_token_id"] == tokenizer.pad_token_id == 1
    assert len(set(kept_ids(result.student)) - Pieces(tiny_tokenizer("roberta")).staying) == 4
    assert result.record["stages"][0]["final_loss"] > 0
    summary = result.record["student"]["initialisation"]["summary"]
    assert f"Its vocabulary is the {LEAST + 4} of the {len(vocabulary('roberta'))} pieces that text uses" in summary
    shown = str(limbeck.validate(recipe))
    assert f"the student's are the {LEAST + 4} of" in shown and "terms are of whole texts" in shown
    again = limbeck.distill(recipe, output=tmp_path / "again")
    of_first, of_again = (load_file(each.student / "model.safetensors") for each in (result, again))
    assert all(torch.equal(tensor, of_again[name]) for name, tensor in of_first.items())


def test_a_killed_run_goes_on(recipe, tmp_path):
    limbeck.distill(recipe)
    killed = {**recipe, "output": str(tmp_path / "killed")}
    kill_at(killed, 3)
    limbeck.distill(killed, resume=True)
    assert_ends_like(recipe, killed)
    other = {**recipe["student"], "vocabulary": {"pieces": LEAST + 3}}
    with pytest.raises(LimbeckError, match="vocabulary"):
        limbeck.distill({**killed, "student": other}, resume=True)


def test_pieces_are_counted_on_other_text_and_words_always_stay(recipe, tmp_path):
    counted = tmp_path / "counted.txt"
    counted.write_text("teacher student is\n\nstudent teacher it\n\nwith")
    always = tmp_path / "always.txt"
    always.write_text("model\n")
    recipe["student"]["vocabulary"] |= {"pieces": LEAST + 3, "count": str(counted), "always": str(always)}
    stage = HeldStage(plan_run(load_recipe(recipe)))
    words = {name for name in stage.tokenizer.get_vocab() if len(name.removeprefix("##")) > 1 and name.isalpha()}
    assert words == {"teacher", "student", "model"}
    stage.close()


def test_scores_of_texts_are_learned(tmp_path):
    rows = [{"text": f"the word {number} is it", "label": "AB"[number % 2]} for number in range(60)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    classes = {"id2label": {0: "A", 1: "B"}, "label2id": {"A": 0, "B": 1}}
    teacher = make_teacher(tmp_path, "bert", head="classification", **classes)
    recipe = recipe_of(teacher, path, {"name": "output_distribution"}, output=str(tmp_path / "run"))
    recipe["corpus"] |= {"task": {"kind": "classification"}}
    recipe["evaluation"] = {"speed": False}
    least = len(Pieces(tiny_tokenizer("bert")).staying)
    recipe["student"] = {"shape": 2, "vocabulary": {"pieces": least + 3}}
    result = limbeck.distill(recipe)
    words = set(AutoTokenizer.from_pretrained(result.student).get_vocab())
    # All four words are equally frequent, so that the shortest stay.
    assert {"the", "is", "it"} <= words and "word" not in words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": {}}, "give exactly one of 'train' .a number of new WordPieces., 'pieces'"),
        ({"vocabulary": {"pieces": 100, "train": 100}}, "give exactly one of 'train'"),
        (
            {"vocabulary": {"train": 100, "always": "x"}},
            "'count', 'always' and 'other_texts' apply only where pieces are kept",
        ),
        ({"vocabulary": {"pieces": 9000}}, r"pieces is 9,000, but .* has only \d+ pieces"),
        ({"vocabulary": {"pieces": LEAST + 1, "always": "nowhere.txt"}}, "'nowhere.txt' does not exist"),
        ({"vocabulary": {"pieces": LEAST + 1, "count": "nowhere"}}, "nowhere"),
        (
            {"vocabulary": {"pieces": LEAST + 1, "count": []}},
            "'count' names no source of text: name one, or leave 'count' out",
        ),
        ({"initialise": {"layers": [1, 4], "fit": {}}}, "fit compares student and teacher token by token"),
    ],
)
def test_mistakes_in_a_recipe(recipe, changes, message):
    recipe["student"] = {**recipe["student"], **changes}
    with pytest.raises(LimbeckError, match=message):
        plan_run(load_recipe(recipe))


def test_terms_on_tokens_are_refused_with_the_methods_that_work(recipe, tmp_path):
    """A teacher with another tokenizer cannot read the pieces of its student."""
    recipe["student"]["initialise"]["from"] = str(make_teacher(tmp_path / "bert", "bert", seed=5))
    recipe["stages"][0]["method"] = {"name": "hidden_states"}
    with pytest.raises(RecipeError, match=r"is cut to \d+ pieces; .* by limbeck trim.* aligned_embedding"):
        plan_run(load_recipe(recipe))


def test_wrong_numbers_of_pieces_are_told_before_the_text_is_tokenised(recipe):
    recipe["student"]["vocabulary"] = {"pieces": LEAST - 1}
    with pytest.raises(LimbeckError, match=f"pieces are too few: .* give {LEAST} or more"):
        limbeck.distill(recipe)


def test_a_trimmed_teacher_teaches_tokens(recipe, teacher, text_folder, tmp_path):
    """The way for methods on tokens: student and teacher read the same smaller vocabulary."""
    trimmed = limbeck.trim(teacher, str(text_folder), pieces=LEAST + 4, output=tmp_path / "trimmed")
    changed = {**recipe, "teacher": {"model": str(trimmed.folder)}}
    changed["student"] = {"shape": 2}
    changed["stages"] = [{**recipe["stages"][0], "method": {"name": "minilmv2", "relation_heads": 12}}]
    result = limbeck.distill(changed)
    assert len(AutoTokenizer.from_pretrained(result.student)) == LEAST + 4


def test_a_store_without_a_model_has_no_pieces_to_keep(recipe, tmp_path):
    store = tmp_path / "store"
    limbeck.teach({key: value for key, value in recipe.items() if key != "student"} | {"student": {"shape": 2}},
                  output=store)  # fmt: skip
    with pytest.raises(RecipeError, match=r"student.vocabulary keeps pieces .* student.initialise.from"):
        plan_run(load_recipe({**recipe, "teacher": {"stored": str(store)}}))
    recipe["student"]["initialise"]["from"] = recipe["teacher"]["model"]
    result = limbeck.distill({**recipe, "teacher": {"stored": str(store)}})
    assert len(AutoTokenizer.from_pretrained(result.student)) == LEAST + 4
