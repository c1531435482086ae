"""safetensors in half precision and sentence-transformers folders load as their users load them."""

import pytest
import torch
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, BertModel

from limbeck.errors import ModelError
from limbeck.models.inference import encode
from limbeck.models.loading import load_model
from limbeck.models.sample_texts import built_in_texts
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentencePooling
from limbeck.models.tokenizers import load_tokenizer
from tests.support.models import make_teacher, save_folder, tiny_config
from tests.support.students import sentence_student

TEXTS = [text for text in built_in_texts(pairs=False) if isinstance(text, str)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_weights_are_the_sources_in_the_dtype(tmp_path, dtype, export):
    student = save_folder(BertModel(tiny_config("bert", layers=2)), tmp_path / "pooled", "bert")
    done = export(student, "safetensors", dtype=dtype)
    model, wanted = AutoModel.from_pretrained(done.folder), AutoModel.from_pretrained(student)
    assert model.dtype == getattr(torch, dtype)
    value = model.state_dict()
    assert set(value) == set(wanted.state_dict())
    for name, tensor in wanted.state_dict().items():
        assert torch.equal(value[name], tensor.to(value[name].dtype)), name
    assert AutoTokenizer.from_pretrained(done.folder)("a text")["input_ids"]
    largest = done.record["differences"]["largest"]["last_hidden_state"]
    assert largest == 0 if dtype == "float32" else largest > 0


def test_no_pooler_is_made_up(tmp_path, export):
    done = export(make_teacher(tmp_path, "bert", layers=1), "safetensors")
    with safe_open(done.folder / "model.safetensors", framework="pt") as tensors:
        assert not [name for name in tensors.keys() if "pooler" in name]  # noqa: SIM118 - not a dict


def test_a_head_goes_along_but_makes_no_sentence_vectors(tmp_path, export):
    student = make_teacher(tmp_path, "bert", head="classification", layers=1, num_labels=3)
    done = export(student, "safetensors", dtype="bfloat16")
    model = AutoModelForSequenceClassification.from_pretrained(done.folder)
    assert (model.config.num_labels, model.dtype) == (3, torch.bfloat16)
    assert done.record["differences"]["equal_decisions"] is not None
    with pytest.raises(ModelError, match="has a classification head and does not make sentence vectors"):
        export(student, "sentence-transformers", output=tmp_path / "vectors")


def test_weights_that_overflow_are_refused(tmp_path, export):
    student = make_teacher(tmp_path, "bert", layers=1)
    model = load_model(student)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[0, 0] = 1e6
        model.encoder.layer[0].output.dense.bias[0] = 1e6
    model.save_pretrained(student)
    with pytest.raises(ModelError, match="not finite numbers in float16; or too large for it, so use float32"):
        export(student, "safetensors", dtype="float16")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("family", "pooling", "normalize"), [("bert", "mean", True), ("roberta", "cls", False)])
def test_sentence_transformers_gives_our_vectors(tmp_path, family, pooling, normalize, export):
    student = sentence_student(tmp_path, family, pooling=pooling, normalize=normalize, max_length=32)
    tokenizer = Tokenizer.from_file(str(student / "tokenizer.json"))
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(student / "tokenizer.json"))
    done = export(student, "sentence-transformers")
    assert len(Tokenizer.from_file(str(done.folder / "tokenizer.json")).encode("a").ids) == 3
    loaded = SentenceTransformer(str(done.folder), device="cpu")
    assert loaded.max_seq_length == 32
    value = loaded.encode(TEXTS, convert_to_tensor=True)
    ours = encode(load_model(student), load_tokenizer(student), TEXTS, pooling=pooling, max_length=32)
    torch.testing.assert_close(torch.nn.functional.normalize(value, dim=-1), ours, atol=1e-5, rtol=0)
    assert torch.allclose(value.norm(dim=-1), torch.ones(len(TEXTS)), atol=1e-4) == normalize
    assert done.record["differences"]["largest"]["sentence_embedding"] < 1e-5


def test_a_plain_encoder_gets_mean_pooling_and_its_own_longest_input(tmp_path, export):
    done = export(make_teacher(tmp_path, "distilbert", layers=1), "sentence-transformers")
    assert sentence_pooling(done.folder) == SentencePooling("mean", normalize=False, max_length=128)


def test_a_module_that_cannot_be_applied_is_refused(tmp_path, export):
    modules = sentence_student(tmp_path) / "modules.json"
    modules.write_text(modules.read_text().replace("models.Normalize", "models.CNN"))
    with pytest.raises(ModelError, match="makes its vectors with .*models.CNN"):
        export(modules.parent)
