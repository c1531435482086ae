"""`limbeck trim` and `limbeck.trim`: smaller vocabularies of model folders of all kinds, and what they cost."""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, LlamaForCausalLM

import limbeck
from limbeck.errors import LimbeckError, ModelError
from limbeck.models.quiet import quiet
from limbeck.models.students import build_student
from tests.support.commands import assert_one_line_error
from tests.support.models import add_modules, make_embedding, make_teacher, tiny_config, tiny_tokenizer, vocabulary
from tests.support.piece_tokenizers import KINDS, WORDS, random_texts, trained_tokenizer

SENTENCES = ["the teacher of the student", "a model for text", "we are in it", "the word is on the layer"] * 30
"""Text of tiny models that uses all of their words but `UNUSED`."""
UNUSED = ("with", "that", "and", "to")


@pytest.fixture
def embedding(tmp_path):
    return make_embedding(tmp_path / "model", "roberta")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(SENTENCES))
    return path


def every_word_but(*names):
    return len(vocabulary("roberta")) - len(names)


def test_a_model_of_sentence_vectors_keeps_its_vectors(embedding, text, tmp_path):
    result = limbeck.trim(embedding, str(text), pieces=every_word_but(*UNUSED), output=tmp_path / "small",
                          check=True)  # fmt: skip
    before, after = (SentenceTransformer(str(folder), device="cpu") for folder in (embedding, result.folder))
    assert (after.encode(SENTENCES[:4]) == before.encode(SENTENCES[:4])).all()
    # Words that have gone are spelled by their letters.
    assert np.isfinite(after.encode("with that")).all()
    assert after.tokenizer.tokenize("with") == ["w", "##i", "##t", "##h"]
    assert result.trim.differences.same == {"last_hidden_state": 0.0, "sentence_embedding": 0.0}
    assert result.trim.differences.same_texts == result.trim.differences.texts == len(SENTENCES) // 20
    assert result.trim.parameters == result.trim.parameters_before - 4 * 48
    assert sorted(path.name for path in result.folder.iterdir()) == [
        "1_Pooling", "README.md", "config.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
        "tokenizer.json", "tokenizer_config.json", "trim.json",
    ]  # fmt: skip


def test_what_is_cut_differently_is_told(embedding, tmp_path):
    texts = ["the teacher with that model", "we are in it", "the student"] * 40
    result = limbeck.trim(embedding, texts, pieces=every_word_but(*"abcdefghijklmn"), output=tmp_path / "small",
                          check=True)  # fmt: skip
    costs, differences = result.trim.costs[0], result.trim.differences
    assert (costs.counted, costs.texts) == (114, 6)
    assert costs.tokens_after > costs.tokens_before and 0 < costs.words_cut_more < costs.words
    assert 0 < differences.same_texts < differences.texts
    assert set(differences.same.values()) == {0.0} and differences.others["sentence_embedding"] > 0
    assert "last_hidden_state" not in differences.others
    shown = str(result)
    assert "words cut into more pieces" in shown and "are cut differently" in shown
    assert result.to_pandas()["tokens_after"][0] == costs.tokens_after


@pytest.mark.parametrize("head", ["classification", "regression", "question_answering", "token_classification"])
def test_heads_stay(head, text, tmp_path):
    changes = {"num_labels": 3} if head in ("classification", "token_classification") else {}
    if head == "regression":
        changes = {"num_labels": 1, "problem_type": "regression"}
    folder = make_teacher(tmp_path, "bert", head=head, **changes)
    result = limbeck.trim(folder, str(text), pieces=every_word_but(*UNUSED), output=tmp_path / "small", check=True)
    assert set(result.trim.differences.same.values()) == {0.0}
    before, after = (load_file(place / "model.safetensors") for place in (folder, result.folder))
    assert before.keys() == after.keys()
    differing = [name for name in before if before[name].shape != after[name].shape]
    assert [name.split(".", 1)[1] for name in differing] == ["embeddings.word_embeddings.weight"]


def test_a_reranker_scores_pairs_as_before(text, tmp_path):
    folder = make_teacher(tmp_path, "bert", head="regression", num_labels=1)
    result = limbeck.trim(folder, str(text), coverage=1.0, output=tmp_path / "small")
    pairs = [("the teacher", "the student of it"), ("a model", "text")]
    before, after = (CrossEncoder(str(place), device="cpu").predict(pairs) for place in (folder, result.folder))
    assert (before == after).all()


@pytest.mark.parametrize("tied", [True, False])
def test_a_masked_language_model_scores_the_pieces_that_stay(tied, text, tmp_path):
    folder = make_teacher(tmp_path, "bert", head="masked_lm", tie_word_embeddings=tied)
    result = limbeck.trim(folder, str(text), coverage=1.0, output=tmp_path / "small")
    names = list(AutoTokenizer.from_pretrained(result.folder).get_vocab().items())
    whole = AutoTokenizer.from_pretrained(folder)
    scores = []
    for place, tokenizer in ((folder, whole), (result.folder, AutoTokenizer.from_pretrained(result.folder))):
        model = AutoModelForMaskedLM.from_pretrained(place)
        with torch.no_grad():
            scores.append(model(**tokenizer("the [MASK] is a teacher", return_tensors="pt")).logits[0])
    for name, number in names:
        assert torch.allclose(scores[1][:, number], scores[0][:, whole.get_vocab()[name]], atol=1e-4)
    assert result.trim.parameters < result.trim.parameters_before


def model_of_kind(kind, folder):
    """A tiny model of sentence vectors with a tokenizer of some kind; the model has more rows than tokens."""
    tokenizer = trained_tokenizer(kind)
    config = BertConfig(vocab_size=len(tokenizer) + 7, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=48, pad_token_id=tokenizer.pad_token_id)  # fmt: skip
    with quiet():
        build_student(config, seed=0).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return add_modules(folder, {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True})


def trim_of_kind(kind, tmp_path):
    """The same with the pieces that a text in several scripts uses most."""
    texts = [WORDS["latin"], WORDS["greek"], *random_texts(20, seed=4)] * 4
    folder = model_of_kind(kind, tmp_path / "model")
    return limbeck.trim(folder, texts, coverage=0.9, always=["свободными"], output=tmp_path / "small", check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_vocabularies_of_all_kinds(kind, tmp_path):
    tokenizer = trained_tokenizer(kind)
    result = trim_of_kind(kind, tmp_path)
    assert result.trim.pieces < result.trim.pieces_before
    assert set(result.trim.differences.same.values()) <= {0.0}
    after = AutoTokenizer.from_pretrained(result.folder)
    assert len(after) == result.trim.pieces
    assert after.tokenize("свободными") == tokenizer.tokenize("свободными")


@pytest.mark.parametrize("kind", KINDS)
def test_sentence_transformers_and_onnx_give_the_vectors_of_a_smaller_model(kind, tmp_path):
    folder = trim_of_kind(kind, tmp_path).folder
    exported = limbeck.export(folder, "onnx", output=tmp_path / "onnx").folder
    texts = [WORDS["latin"], "a", "свободными 人人", "nie gesehen: ß ☃", *random_texts(3, seed=8)]
    model = SentenceTransformer(str(folder), device="cpu")
    assert model.tokenizer.is_fast
    tokenizer = AutoTokenizer.from_pretrained(exported)
    session = onnxruntime.InferenceSession(exported / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    for text in texts:
        batch = tokenizer([text], return_tensors="np")
        assert batch["input_ids"].tolist() == model.tokenize([text])["input_ids"].tolist()
        inputs = {node.name: batch.get(node.name, 0 * batch["input_ids"]) for node in session.get_inputs()}
        [vector] = session.run(["sentence_embedding"], inputs)
        assert np.abs(vector[0] - model.encode(text)).max() < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_has_the_layout_of_transformers_js(kind, tmp_path):
    """The files that transformers.js reads, and ids that follow from them as it counts."""
    folder = limbeck.export(trim_of_kind(kind, tmp_path).folder, "onnx", output=tmp_path / "onnx").folder
    assert (folder / "onnx" / "model.onnx").is_file()
    config, document, settings = (
        json.loads((folder / name).read_text()) for name in ("config.json", "tokenizer.json", "tokenizer_config.json")
    )
    vocabulary = document["model"]["vocab"]
    if kind == "unigram":
        names = [name for name, _ in vocabulary]
        assert names[document["model"]["unk_id"]] == settings["unk_token"]
    else:
        names = sorted(vocabulary, key=vocabulary.get)
        assert sorted(vocabulary.values()) == list(range(len(names)))
    for token in document["added_tokens"]:
        assert names[token["id"]] == token["content"]
    for left, right in document["model"].get("merges", ()):
        assert {left, right, left + right} <= set(names)
    assert {name: number for number, name in enumerate(names)} == AutoTokenizer.from_pretrained(folder).get_vocab()
    assert config["vocab_size"] == len(names)
    assert names[config["pad_token_id"]] == settings["pad_token"]
    for entry in document["post_processor"]["special_tokens"].values():
        assert [names[number] for number in entry["ids"]] == entry["tokens"]


def test_half_precision_stays(text, tmp_path):
    folder = make_teacher(tmp_path, "bert")
    from limbeck.models.loading import load_model

    with quiet():
        load_model(folder, dtype="float16").save_pretrained(folder)
    result = limbeck.trim(folder, str(text), coverage=1.0, output=tmp_path / "small")
    assert {tensor.dtype for tensor in load_file(result.folder / "model.safetensors").values()} == {torch.float16}


def test_the_command_prints_what_python_returns(limbeck, embedding, text, tmp_path):
    call = ("trim", embedding, "--corpus", text, "--pieces", every_word_but(*UNUSED), "--check")
    shown = limbeck.shown(*call, "--output", tmp_path / "one")
    assert "6 of 6 held-out texts are cut as before: the largest difference is 0 in" in " ".join(shown.split())
    assert f"Folder: {tmp_path / 'one'}" in shown
    done = limbeck(*call, "--output", tmp_path / "two", "--json", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads(done.stdout)
    assert content["trim"] == json.loads((tmp_path / "two" / "trim.json").read_text())
    assert content["trim"]["source"] == embedding.name
    assert content["trim"]["differences"] == {
        "texts": 6, "same_texts": 6, "same": {"last_hidden_state": 0.0, "sentence_embedding": 0.0}, "others": {}
    }  # fmt: skip
    card = (tmp_path / "two" / "README.md").read_text()
    assert "## Vocabulary" in card and str(tmp_path) not in card


def test_the_own_card_stays_without_scores_of_the_whole_vocabulary(embedding, text, tmp_path):
    (embedding / "README.md").write_text("---\nlicense: mit\nmetrics: [accuracy]\n---\n# Mine\n\nText.\n")
    result = limbeck.trim(embedding, str(text), coverage=1.0, output=tmp_path / "small")
    card = (result.folder / "README.md").read_text()
    assert "license: mit" in card and "# Mine" in card and "metrics" not in card


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pieces", "10"], "10 pieces are too few"),
        (["--pieces", "99999"], "99,999 pieces are too many"),
        ([], "exactly one of two options: --pieces, a number of pieces, or --coverage"),
        (
            ["--pieces", "130", "--coverage", "0.9"],
            "exactly one of two options: --pieces, a number of pieces, or --coverage",
        ),
        (["--coverage", "0"], "--coverage is 0; give a share above 0"),
        (["--coverage", "0.9", "--always", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_mistakes_are_one_line(limbeck, embedding, text, tmp_path, options, message):
    done = limbeck("trim", embedding, "--corpus", text, *options, "--output", tmp_path / "out", "-q")
    assert_one_line_error(done, 2, message)
    assert not (tmp_path / "out").exists()


def test_folders_and_texts_that_do_not_do(embedding, text, tmp_path):
    with pytest.raises(LimbeckError, match=r"^output is missing: give the folder"):
        limbeck.trim(embedding, str(text), coverage=1.0)
    with pytest.raises(LimbeckError, match=r"is not empty; choose an empty or new folder"):
        limbeck.trim(embedding, str(text), coverage=1.0, output=embedding)
    with pytest.raises(LimbeckError, match="fewer than 20 paragraphs, so none can be held out"):
        limbeck.trim(embedding, ["the teacher"], coverage=1.0, output=tmp_path / "out", check=True)
    with pytest.raises(LimbeckError, match="nowhere"):
        limbeck.trim(tmp_path / "nowhere", str(text), coverage=1.0, output=tmp_path / "out")
    with pytest.raises(LimbeckError, match="counts pieces in plain text"):
        limbeck.trim(
            embedding,
            {"sources": [str(text)], "task": {"kind": "classification"}},
            coverage=1.0,
            output=tmp_path / "out",
        )
    assert not (tmp_path / "out").exists()


def test_a_source_whose_files_are_all_skipped_is_refused(embedding, text, tmp_path):
    binary = tmp_path / "binary.txt"
    binary.write_bytes(bytes(range(256)) * 20)
    with pytest.raises(LimbeckError, match=r"'binary.txt' holds no text: 1 x file not in UTF-8, skipped"):
        limbeck.trim(embedding, [str(text), str(binary)], coverage=0.9, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_head_that_would_be_left_out_is_refused(text, tmp_path):
    folder = tmp_path / "decoder"
    with quiet():
        LlamaForCausalLM(tiny_config("llama")).save_pretrained(folder)
        tiny_tokenizer("llama").save_pretrained(folder)
    with pytest.raises(ModelError, match="is a LlamaForCausalLM, whose head cannot be cut"):
        limbeck.trim(folder, str(text), coverage=0.9, output=tmp_path / "out")
    # Sentence vectors need no head.
    add_modules(folder, {"word_embedding_dimension": 48, "pooling_mode_lasttoken": True})
    assert limbeck.trim(folder, str(text), coverage=0.9, output=tmp_path / "out").trim.pieces > 0


def test_words_are_counted_where_the_tokenizer_has_some(tmp_path):
    costs = {kind: trim_of_kind(kind, tmp_path / kind).trim.costs[0] for kind in KINDS}
    assert {kind for kind in KINDS if costs[kind].words == 0} == {"byte_fallback_bpe"}
    assert costs["byte_fallback_bpe"].tokens_after > 0


def test_a_failure_leaves_nothing(embedding, text, tmp_path, monkeypatch):
    def fail(*_):
        raise ModelError("stopped")

    monkeypatch.setattr("limbeck.report.trim_text.write_trim_card", fail)
    with pytest.raises(ModelError, match="stopped"):
        limbeck.trim(embedding, str(text), coverage=1.0, output=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []
