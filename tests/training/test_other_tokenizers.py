"""Students that read other tokens than their teachers: each reads the same text by its own tokenizer."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

import limbeck
from limbeck.corpus.batches.batch import read_batch
from limbeck.corpus.text.text_keys import text_key
from limbeck.errors import LimbeckError, ModelError, RecipeError
from limbeck.models.directions import principal_directions
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.targets.facts import StoreFacts
from limbeck.targets.store import Store
from limbeck.targets.writer import StoreWriter, open_store
from limbeck.training.held_stage import HeldStage
from tests.support.models import make_embedding, make_teacher, tiny_tokenizer
from tests.support.recipes import recipe_of
from tests.support.training import assert_ends_like, kill_at

ALIGNED = {"name": "aligned_embedding"}
SHAPE = {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48}
WORDS = 120
WHOLE_SENTENCES = {"unit": "sentence", "length": 120}
"""Text of which no row is cut, since a cut inside of a word is no beginning of a word to another tokenizer."""


@pytest.fixture
def teacher(tmp_path):
    """A RoBERTa that makes sentence vectors."""
    return make_embedding(tmp_path / "roberta", "roberta")


@pytest.fixture
def bert(tmp_path):
    """A BERT to start from; its tokenizer reads other tokens than the teacher's."""
    return make_teacher(tmp_path / "bert", "bert", seed=5)


@pytest.fixture
def recipe(teacher, text_folder, tmp_path):
    return recipe_of(teacher, text_folder, ALIGNED, output=str(tmp_path / "run"))


@pytest.fixture
def trained(recipe):
    """A recipe whose student has WordPieces of its own."""
    return {**recipe, "student": {"shape": SHAPE, "vocabulary": {"train": WORDS}}}


def from_model(recipe, model, **start):
    return {**recipe, "student": {"initialise": {"from": str(model), **start}}}


def weights_of(result):
    return load_file(result.student / "model.safetensors")


def blank_store(folder, texts, width=12, **facts):
    """A store of random vectors whose teacher is no model."""
    open_store(folder, StoreFacts("a model behind an endpoint", "version 1", {"vector": width}, **facts))
    vectors = np.random.default_rng(0).standard_normal((len(texts), width)).astype(np.float32)
    with StoreWriter(folder) as writer:
        writer.add(np.array([text_key(text) for text in texts]), {"vector": vectors})
    return folder


def copy_with_reordered_words(model, folder):
    """Copy a model whose tokenizer has two words in each other's places, with the rows of its embeddings."""
    shutil.copytree(model, folder)
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    ids = document["model"]["vocab"]
    first, second = ids["model"], ids["teacher"]
    ids["model"], ids["teacher"] = second, first
    path.write_text(json.dumps(document))
    weights = load_file(folder / "model.safetensors")
    table = weights["embeddings.word_embeddings.weight"]
    table[[first, second]] = table[[second, first]]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_equal_tokenizers_that_are_read_apart_end_in_the_same_student(recipe, tmp_path, monkeypatch):
    recipe["corpus"] |= WHOLE_SENTENCES
    of_one = weights_of(limbeck.distill(recipe))
    monkeypatch.setattr("limbeck.recipe.stage_planning.reading_difference", lambda *_: "They differ")
    assert plan_run(load_recipe(recipe)).stages[0].teacher_tokenizer is not None
    of_two = weights_of(limbeck.distill(recipe, output=tmp_path / "apart"))
    for name, tensor in of_one.items():
        assert torch.equal(tensor, of_two[name]), name


def test_renumbered_words_end_in_the_same_student(recipe, teacher, tmp_path):
    recipe["corpus"] |= WHOLE_SENTENCES
    recipe["student"]["initialise"] = {"layers": [1, 3], "embeddings": "copied"}
    recipe["student"]["shape"] = 2
    of_teacher = weights_of(limbeck.distill(recipe))
    other = copy_with_reordered_words(teacher, tmp_path / "other")
    recipe["student"]["initialise"]["from"] = str(other)
    plan = plan_run(load_recipe(recipe))
    assert plan.stages[0].teacher_tokenizer.model == str(teacher)
    of_other = weights_of(limbeck.distill(recipe, output=tmp_path / "of-other"))
    ids = tiny_tokenizer("roberta").get_vocab()
    places = list(range(len(ids)))
    places[ids["model"]], places[ids["teacher"]] = places[ids["teacher"]], places[ids["model"]]
    for name, tensor in of_teacher.items():
        other_tensor = of_other[name][places] if "word_embeddings" in name else of_other[name]
        assert torch.equal(tensor, other_tensor), name


@pytest.mark.parametrize("length", [32, 12])
def test_both_models_read_the_same_text(recipe, bert, length):
    recipe["corpus"] |= {"length": length, "minimum_tokens": 1}
    stage = HeldStage(plan_run(load_recipe(from_model(recipe, bert))))
    student = stage.tokenizers.student
    teacher = stage.tokenizers.teacher
    rows = 0
    for columns in stage.batches():
        batch = read_batch(columns)
        assert batch.teacher["input_ids"].shape[1] <= length
        for inputs, tokenizer in ((batch.student, student), (batch.teacher, teacher)):
            is_padding = inputs["attention_mask"] == 0
            assert torch.equal(inputs["input_ids"] == tokenizer.pad_token_id, is_padding)
        student_texts = student.batch_decode(batch.student["input_ids"], skip_special_tokens=True)
        teacher_texts = teacher.batch_decode(batch.teacher["input_ids"], skip_special_tokens=True)
        for student_text, teacher_text in zip(student_texts, teacher_texts, strict=True):
            # A cut inside of a word begins the teacher's block with the rest of that word.
            assert student_text.replace("##", "") == teacher_text.replace("##", "")
        rows += len(student_texts)
    assert rows == len(stage.corpus.train)
    assert stage.corpus.report.lines() == []
    stage.close()


def test_texts_of_which_a_student_reads_the_beginning_are_told(recipe, bert):
    recipe["corpus"]["student_length"] = 12
    stage = HeldStage(plan_run(load_recipe(from_model(recipe, bert))))
    assert max(stage.corpus.train["length"]) == 12
    (line,) = stage.corpus.report.lines()
    assert "x text of which the student reads only the beginning (such as" in line


@pytest.mark.parametrize("start", [{}, {"layers": [2, 4]}, {"layers": "random"}])
def test_a_student_of_another_family_learns_the_teachers_vectors(recipe, bert, start):
    result = limbeck.distill(from_model(recipe, bert, **start))
    config = json.loads((result.student / "config.json").read_text())
    depth = 2 if start.get("layers") == [2, 4] else 4
    assert (config["model_type"], config["num_hidden_layers"]) == ("bert", depth)
    assert result.record["stages"][0]["final_loss"] > 0
    # The whole model is trained already; a part of it is no model.
    trained_model = None if start else str(bert)
    assert result.record["student"]["initialisation"]["trained_model"] == trained_model
    student = AutoTokenizer.from_pretrained(result.student)
    assert student.get_vocab() == tiny_tokenizer("bert").get_vocab()
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(result.student), device="cpu")
    assert model.encode(["the text of the model"]).shape == (1, 48)


def test_stored_outputs_and_the_live_teacher_teach_the_same(recipe, bert, tmp_path):
    of_live = weights_of(limbeck.distill(from_model(recipe, bert)))
    store = tmp_path / "store"
    limbeck.teach(recipe, output=store)
    stored = {**from_model(recipe, bert), "teacher": {"stored": str(store)}, "output": str(tmp_path / "stored")}
    of_stored = weights_of(limbeck.distill(stored))
    for name, tensor in of_live.items():
        assert torch.allclose(tensor, of_stored[name], atol=1e-5), name
    # Keys of texts do not depend on the student: its own vocabulary finds them too.
    trained = {**stored, "student": {"shape": SHAPE, "vocabulary": {"train": WORDS}}}
    assert limbeck.distill(trained, overwrite=True).record["stages"][0]["final_loss"] > 0


def test_words_are_trained_on_the_text_and_saved_with_the_student(trained, tmp_path):
    result = limbeck.distill(trained)
    tokenizer = AutoTokenizer.from_pretrained(result.student)
    assert len(tokenizer) == WORDS == json.loads((result.student / "config.json").read_text())["vocab_size"]
    assert tokenizer("The Model")["input_ids"] == tokenizer("the model")["input_ids"]
    assert tokenizer.pad_token_id == AutoModel.from_pretrained(result.student).config.pad_token_id == 0
    again = limbeck.distill(trained, output=tmp_path / "again")
    assert (again.student / "tokenizer.json").read_bytes() == (result.student / "tokenizer.json").read_bytes()
    of_first = weights_of(result)
    assert all(torch.equal(tensor, of_first[name]) for name, tensor in weights_of(again).items())
    assert "120 WordPieces that are trained on the text" in str(limbeck.validate(trained))
    pytest.importorskip("onnxruntime")
    export = limbeck.export(result.student, "onnx", output=tmp_path / "onnx")
    assert AutoTokenizer.from_pretrained(export.folder).get_vocab() == tokenizer.get_vocab()


@pytest.mark.parametrize(("embeddings", "mode"), [(None, "averaged"), ("averaged", "averaged"), ("random", "random")])
def test_rows_of_words_of_its_own_start_from_those_of_the_pieces(trained, embeddings, mode):
    if embeddings is not None:
        trained["student"]["initialise"] = {"embeddings": embeddings}
    trained["stages"][0]["training"]["max_steps"] = 1
    result = limbeck.distill(trained)
    start = result.run.student.initialisation
    assert start.embeddings == mode
    assert f"and {mode} embeddings" in start.summary
    stage = HeldStage(plan_run(load_recipe(trained)))
    table = stage.module.student.get_input_embeddings().weight
    # A token that both vocabularies have starts as the teacher's row, in the directions that the student keeps.
    tokenizers = stage.tokenizers
    source = AutoModel.from_pretrained(trained["teacher"]["model"]).get_input_embeddings().weight.detach()
    directions = principal_directions(source, SHAPE["hidden"]).basis
    row = source[tokenizers.teacher.convert_tokens_to_ids("the")].double() @ directions
    starts_alike = torch.allclose(table[tokenizers.student.convert_tokens_to_ids("the")].double(), row, atol=1e-5)
    assert starts_alike == (mode == "averaged")
    stage.close()


def test_a_killed_run_with_words_of_its_own_goes_on(trained, tmp_path):
    limbeck.distill(trained)
    killed = {**trained, "output": str(tmp_path / "killed")}
    kill_at(killed, 3)
    limbeck.distill(killed, resume=True)
    assert_ends_like(trained, killed)
    with pytest.raises(LimbeckError, match="vocabulary"):
        limbeck.distill({**killed, "student": {"shape": SHAPE, "vocabulary": {"train": WORDS + 1}}}, resume=True)


def test_scores_of_texts_are_learned_by_other_tokens(tmp_path, bert):
    rows = [{"text": f"word {number} and more", "pair": "it is", "label": "AB"[number % 2]} for number in range(60)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    classes = {"id2label": {0: "A", 1: "B"}, "label2id": {"A": 0, "B": 1}}
    teacher = make_teacher(tmp_path, "roberta", head="classification", **classes)
    recipe = recipe_of(teacher, path, {"name": "output_distribution"}, output=str(tmp_path / "run"))
    recipe["corpus"] |= {"task": {"kind": "classification", "pair_column": "pair"}, "student_length": 40}
    recipe["evaluation"] = {"speed": False}
    result = limbeck.distill(from_model(recipe, bert, layers=[1, 2]))
    scores = result.record["evaluation"]["task"]
    assert {"student", "teacher", "agreement"} <= scores.keys()
    stage = HeldStage(plan_run(load_recipe(from_model(recipe, bert, layers=[1, 2]))))
    batch = read_batch(next(iter(stage.batches())))
    # Only BERT tells the two texts of a pair apart.
    assert "token_type_ids" in batch.student
    assert "token_type_ids" not in batch.teacher
    stage.close()


def test_prompts_are_read_by_both(recipe, teacher, bert):
    (teacher / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "ask: "}, "default_prompt_name": "query"})
    )
    (teacher / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True, "include_prompt": False})
    )
    for prompts in ("teacher", "none"):
        recipe["corpus"]["student_prompts"] = prompts
        stage = HeldStage(plan_run(load_recipe(from_model(recipe, bert))))
        batch = read_batch(next(iter(stage.batches())))
        prompt_of_teacher = tiny_tokenizer("roberta")("ask: ")["input_ids"][:-1]
        assert batch.teacher["skipped"].tolist() == [len(prompt_of_teacher)] * 8
        prompt_of_student = tiny_tokenizer("bert")("ask: ")["input_ids"][:-1]
        expected = len(prompt_of_student) if prompts == "teacher" else 0
        assert batch.student["skipped"].tolist() == [expected] * 8
        stage.close()


@pytest.mark.parametrize("own_words", [True, False])
def test_a_teacher_of_which_only_the_outputs_are_known(tmp_path, bert, own_words):
    texts = [f"The text {number} of the model is in the layer {number % 7}." for number in range(60)]
    texts.append("the teacher and the student " * 20)
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(texts))
    store = blank_store(tmp_path / "store", [text.strip() for text in texts])
    recipe = recipe_of("none", path, ALIGNED, output=str(tmp_path / "run"))
    recipe["teacher"] = {"stored": str(store)}
    recipe["evaluation"] = {"pairs": 20, "speed": False}
    with pytest.raises(RecipeError, match="The student gets no tokenizer from .* only outputs are known; name a"):
        limbeck.validate(recipe)
    if own_words:
        recipe["student"] = {"shape": SHAPE, "vocabulary": {"train": WORDS}}
        recipe["corpus"]["held_out"] = 0.1
    else:
        recipe = from_model(recipe, bert, layers=[1, 4])
    result = limbeck.distill(recipe)
    teacher = result.record["teacher"]
    assert teacher["name_or_path"] == "the stored outputs of a model behind an endpoint"
    assert teacher["shape"] == "vector of 12 numbers"
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(result.student), device="cpu")
    assert model.encode(["the text of the model"]).shape == (1, 12)


def test_a_long_text_without_a_teachers_tokenizer_is_one_row(tmp_path, bert):
    texts = ["the text of the model and the teacher " * 9, "it is on the layer", "we are for it and of that"]
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(texts))
    store = blank_store(tmp_path / "store", [text.strip() for text in texts])
    recipe = recipe_of("none", path, ALIGNED, length=16, held_out=0)
    recipe["teacher"] = {"stored": str(store)}
    stage = HeldStage(plan_run(load_recipe(from_model(recipe, bert))))
    assert sorted(stage.corpus.train["length"]) == [7, 9, 16]
    assert set(stage.corpus.train["text_key"]) == set(Store(store).keys.tolist())
    assert any("only the beginning" in line for line in stage.corpus.report.lines())


def test_a_model_given_as_the_student_brings_its_tokenizer(teacher, bert, text_folder, tmp_path):
    options = {"teacher": str(teacher), "corpus": str(text_folder)}
    plan = limbeck.validate(**options, student=str(bert))
    assert plan.recipe.student.initialise.from_ == str(bert)
    assert (plan.recipe.student.shape, plan.student.layers) == ("all", 4)
    assert [stage.spec.method["name"] for stage in plan.stages] == ["aligned_embedding"]
    assert "the student reads other tokens" in plan.recipe.reasons["stages.0.method"]
    # A model of the teacher's tokens stays a checkpoint.
    same = make_teacher(tmp_path / "same", "roberta", seed=7)
    assert limbeck.validate(**options, student=str(same)).recipe.student.initialise.checkpoint == str(same)
    # Of stored outputs alone no tokens are known.
    store = blank_store(tmp_path / "store", ["A text."])
    plan = limbeck.validate(
        **options | {"teacher": {"stored": str(store)}}, student=str(bert), method="aligned_embedding"
    )
    assert plan.recipe.student.initialise.layers == "ends"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"stages": [{"method": {"name": "minilmv2"}}]},
            r"other tokens than its teacher \(the vocabularies of .* differ in .* whole texts: aligned_embedding",
        ),
        ({"stages": [{"method": ALIGNED, "augment": {"replace_tokens": 0.1}}]}, "changes the student's tokens"),
        ({"stages": [{"method": ALIGNED, "text": {"join": True}}]}, "join cuts text by the tokens of one model"),
        ({"student": {"shape": SHAPE, "vocabulary": {"train": 9}}}, "greater than or equal to 32|32 or more"),
        (
            {"student": {"shape": SHAPE, "vocabulary": {"train": WORDS}, "untrained": "teacher"}},
            "for which the teacher has no values",
        ),
        (
            {"student": {"shape": SHAPE, "vocabulary": {"train": WORDS}, "initialise": {"embeddings": "copied"}}},
            "so its embeddings cannot be copied",
        ),
        (
            {"student": {"shape": SHAPE, "initialise": {"embeddings": "averaged"}}},
            "averaged' applies only to a student with a vocabulary of its own; leave it out, or give",
        ),
        (
            {"student": {"shape": SHAPE, "vocabulary": {"train": WORDS}, "initialise": {"checkpoint": "$bert"}}},
            "leave out student.vocabulary and name the checkpoint as student.initialise.from",
        ),
        ({"student": {"initialise": {"layers": [1]}}}, "shape: is missing"),
        ({"student": {"initialise": {"from": "$bert", "layers": [1, 9]}}}, "9"),
    ],
)
def test_what_cannot_be_read_by_other_tokens_is_refused(recipe, bert, changes, message):
    text = json.dumps({**from_model(recipe, bert), **changes}).replace("$bert", str(bert))
    with pytest.raises(LimbeckError, match=message):
        limbeck.validate(json.loads(text))


def test_a_length_of_the_students_own_needs_a_tokenizer_of_its_own(recipe):
    recipe["corpus"]["student_length"] = 16
    with pytest.raises(RecipeError, match="student_length 16 applies only to a student whose tokenizer differs"):
        limbeck.validate(recipe)


def test_more_words_than_the_text_has_are_refused(trained):
    trained["student"]["vocabulary"]["train"] = 50_000
    with pytest.raises(ModelError, match=r"the text gives only [\d,]+ WordPieces; give a number up to \d+"):
        limbeck.distill(trained)


def test_prompts_of_stored_outputs_are_part_of_the_keys(tmp_path, bert):
    path = tmp_path / "texts.txt"
    path.write_text("the text of the model\n\nwe are on it")
    folder = tmp_path / "store"
    open_store(folder, StoreFacts("an endpoint", "1", {"vector": 12}, prompts={"default": "ask: "}))
    keys = [text_key(text, prompt="ask: ") for text in ("the text of the model", "we are on it")]
    with StoreWriter(folder) as writer:
        writer.add(np.array(keys), {"vector": np.ones((2, 12), np.float32)})
    recipe = recipe_of("none", path, ALIGNED, held_out=0)
    recipe["teacher"] = {"stored": str(folder)}
    stage = HeldStage(plan_run(load_recipe(from_model(recipe, bert))))
    assert set(stage.corpus.train["text_key"]) == set(keys)
    student = stage.tokenizer.batch_decode(stage.corpus.train["input_ids"][:], skip_special_tokens=True)
    assert sorted(student) == ["ask : the text of the model", "ask : we are on it"]
