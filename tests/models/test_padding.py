"""Padding: the side that a saved tokenizer pads on, and decoders without a token to pad with."""

import json

import pytest
from transformers import AutoModel, AutoTokenizer

import limbeck
from limbeck.errors import ModelError
from limbeck.models.heads import model_class
from limbeck.models.loaded import open_model
from limbeck.models.loading import load_model
from limbeck.models.tokenizers import load_tokenizer, save_tokenizer
from tests.support.models import make_teacher, tiny_config, tiny_tokenizer


@pytest.mark.parametrize(
    ("family", "head", "side"),
    [
        ("bert", None, "right"),
        ("electra", None, "right"),
        ("gpt2", None, "right"),
        ("roberta", None, "left"),
        ("modernbert", None, "left"),
        ("llama", None, "left"),
        # The side decides the order of question and context.
        ("bert", "question_answering", "left"),
    ],
)
def test_a_tokenizer_is_saved_to_pad_where_positions_count_from(tmp_path, family, head, side):
    tokenizer = tiny_tokenizer(family)
    tokenizer.padding_side = "left"
    model = model_class(tiny_config(family), head)(tiny_config(family))
    save_tokenizer(tmp_path, tokenizer, model)
    assert AutoTokenizer.from_pretrained(tmp_path).padding_side == side
    assert tokenizer.padding_side == "left", "the tokenizer itself stays as it is"


def test_a_student_of_a_teacher_that_pads_left_gives_others_the_same_vectors_in_every_batch(tmp_path, limbeck):
    teacher = make_teacher(tmp_path)
    settings = teacher / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"padding_side": "left"}))
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"the model of text {number} is it" for number in range(30)))
    options = ["--teacher", teacher, "--student", 2, "--corpus", text, "--steps", 1, "--output", tmp_path / "run"]
    done = limbeck("distill", *options, "--set", "evaluation.enabled=false")
    assert done.returncode == 0 and "the teacher's tokenizer pads texts on the left" in done.stderr
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "student")
    model = AutoModel.from_pretrained(tmp_path / "run" / "student").eval()
    short, long = "the model", "the model of text is it and for that"
    alone = model(**tokenizer([short], return_tensors="pt")).last_hidden_state[0]
    beside = model(**tokenizer([short, long], padding=True, return_tensors="pt")).last_hidden_state[0, : len(alone)]
    assert (alone - beside).abs().max() < 1e-5


def _without_padding(folder, *, config_alone=False):
    """Take the padding token out of a saved model, and out of its tokenizer."""
    config = json.loads((folder / "config.json").read_text()) | {"pad_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    if not config_alone:
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        settings.pop("pad_token")
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("format_name", ["onnx", "safetensors"])
def test_a_decoder_without_a_padding_token_is_refused_with_the_reason(tmp_path, format_name):
    folder = _without_padding(make_teacher(tmp_path, "gpt2", head="classification", num_labels=3))
    assert load_tokenizer(folder).pad_token is None
    with pytest.raises(ModelError, match="tokenizer of .* has no padding token; set its pad_token, for example to"):
        limbeck.export(folder, format=format_name, output=tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_a_decoder_takes_the_padding_token_of_its_tokenizer(tmp_path):
    folder = _without_padding(make_teacher(tmp_path, "gpt2", head="classification", num_labels=3), config_alone=True)
    source = open_model(folder)
    assert source.model.config.pad_token_id == source.tokenizer.pad_token_id
    limbeck.export(folder, format="safetensors", output=tmp_path / "export")
    assert load_model(tmp_path / "export", head="classification").config.pad_token_id == source.tokenizer.pad_token_id


def test_a_decoder_without_a_head_needs_no_padding_token(tmp_path):
    open_model(_without_padding(make_teacher(tmp_path, "gpt2")))
