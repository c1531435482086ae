"""Sentence vectors are those of sentence-transformers, whatever its folder says; what cannot be applied is refused."""

import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch

import limbeck
import tests.support.alembic  # noqa: F401 - registers the family
from limbeck.errors import ModelError
from limbeck.evaluation import encode
from limbeck.evaluation.evaluators.vectors import vectors_of as vectors_of_a_task
from limbeck.models.blueprint import parse_blueprint
from limbeck.models.loaded import open_model
from limbeck.models.loading import load_config, load_model
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentence_heads import SentenceHead, pool
from limbeck.models.sentence_reader import check_pooling_named, sentence_pooling
from limbeck.models.sentences import POOLINGS, trained_widths
from limbeck.models.students import student_config
from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.vector_check import own_vectors
from tests.support.models import HIDDEN, UNLISTED, make_teacher

library = pytest.importorskip("sentence_transformers")
later = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
base = pytest.importorskip("sentence_transformers.base.modules")
TEXTS = ["the old bridge", "water " * 40, "the river runs under the old stone bridge", "", "people near the garden"]
PROMPTS = {"query": "the river : ", "document": "passage of the old stone : "}
CHAINS = {
    "pooling alone": lambda width: [],
    "unit length": lambda width: [base.Normalize()],
    "tanh": lambda width: [base.Dense(width, 20)],
    "map": lambda width: [
        base.Dense(width, 12, bias=False, activation_function=torch.nn.Identity()),
        base.Normalize(),
    ],
    "two maps": lambda width: [
        base.Dense(width, 2 * width, bias=False, activation_function=torch.nn.Identity()),
        base.Dense(2 * width, width, bias=False, activation_function=torch.nn.Identity()),
        base.Normalize(),
    ],
    "norm": lambda width: [later.LayerNorm(width), later.Dropout(0.4)],
    "several": lambda width: [
        base.Normalize(),
        base.Dense(width, width, use_residual=True, activation_function=torch.nn.GELU()),
        base.Dense(width, 8, use_residual=True),
        later.LayerNorm(8),
        base.Normalize(),
    ],
}
ALL_POOLINGS = [*POOLINGS, ("cls", "mean"), ("weightedmean", "max", "lasttoken")]
USES = itertools.cycle(itertools.product((None, "query", "document"), (True, False), (9, None)))
SETTINGS = [(pooling, chain, *next(USES)) for pooling in ALL_POOLINGS for chain in CHAINS if chain != "two maps"]


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("sentences"), "bert", layers=1)


def build(transformer, pooling, chain, default, included, length):
    """A model of sentence-transformers, in memory."""
    torch.manual_seed(len(str(pooling)) + len(chain))
    first = base.Transformer(str(transformer), max_seq_length=length)
    pooled = later.Pooling(HIDDEN, pooling, include_prompt=included)
    behind = CHAINS[chain](pooled.pooling_output_dimension)
    return library.SentenceTransformer(
        modules=[first, pooled, *behind], prompts=PROMPTS, default_prompt_name=default, device="cpu"
    )


def vectors_of(folder, texts, roles=None):
    sentence = sentence_pooling(folder)
    longest = sentence.max_length or 10_000
    found = encode(
        load_model(folder), load_tokenizer(folder), texts, roles, pooling=SentenceHead(sentence), max_length=longest,
        batch_size=2,
    )  # fmt: skip
    return found, sentence


@pytest.mark.parametrize(("pooling", "chain", "default", "included", "length"), SETTINGS)
def test_vectors_are_those_of_sentence_transformers(transformer, tmp_path, pooling, chain, default, included, length):
    model = build(transformer, pooling, chain, default, included, length)
    model.save_pretrained(str(tmp_path), create_model_card=False)
    whole = model.encode(TEXTS, convert_to_tensor=True)
    found, sentence = vectors_of(tmp_path, TEXTS)
    torch.testing.assert_close(found, torch.nn.functional.normalize(whole, dim=-1), rtol=0, atol=1e-5)
    lengths = own_vectors(open_model(tmp_path), [(text, None) for text in TEXTS])
    torch.testing.assert_close(lengths, whole, rtol=1e-5, atol=1e-5)
    assert sentence.default_prompt == default and sentence.max_length == model.max_seq_length


def test_roles_have_their_prompts_and_a_copied_folder_the_same_vectors(transformer, tmp_path):
    model = build(transformer, ("cls", "mean"), "several", None, False, None)
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    half = len(TEXTS) // 2
    roles = ["query"] * half + ["document"] * (len(TEXTS) - half)
    expected = torch.cat([
        model.encode_query(TEXTS[:half], convert_to_tensor=True),
        model.encode_document(TEXTS[half:], convert_to_tensor=True),
    ])  # fmt: skip
    found, sentence = vectors_of(tmp_path / "saved", TEXTS, roles)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)

    copy = tmp_path / "copy"
    load_model(transformer).save_pretrained(copy)
    load_tokenizer(transformer).save_pretrained(copy)
    write_sentence_transformers_files(
        copy,
        width=HIDDEN,
        pooling=sentence.pooling,
        normalize=sentence.normalize,
        max_length=sentence.max_length,
        like=sentence,
    )
    torch.testing.assert_close(vectors_of(copy, TEXTS, roles)[0], expected, rtol=0, atol=1e-5)
    again = library.SentenceTransformer(str(copy), device="cpu")
    torch.testing.assert_close(again.encode(TEXTS), model.encode(TEXTS), rtol=0, atol=1e-5)


#: How embedding models of each family make their vectors; the first four are families without a row.
FAMILIES = {
    "deberta-v2": ("mean", "pooling alone"),
    "gemma3_text": ("mean", "two maps"),  # EmbeddingGemma
    "gte": ("cls", "unit length"),
    "alembic": ("mean", "unit length"),
    "qwen3": ("lasttoken", "unit length"),
    "mpnet": ("mean", "unit length"),
    "modernbert": ("cls", "unit length"),
    "xlm-roberta": ("mean", "unit length"),  # E5; BGE-M3 takes the first token
    "nomic_bert": ("mean", "unit length"),
}


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=() if name in (*UNLISTED, "qwen3") else pytest.mark.slow) for name in FAMILIES]
)
def test_vectors_of_a_family_are_those_of_sentence_transformers(family, tmp_path):
    pooling, chain = FAMILIES[family]
    model = build(make_teacher(tmp_path, family, layers=2), pooling, chain, None, True, None)
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    for role in (None, "query"):
        roles = None if role is None else [role] * len(TEXTS)
        expected = model.encode(TEXTS, prompt_name=role, convert_to_tensor=True)
        found = vectors_of(tmp_path / "saved", TEXTS, roles)[0]
        torch.testing.assert_close(found, torch.nn.functional.normalize(expected, dim=-1), rtol=0, atol=1e-5)


def test_an_activation_that_needs_a_direction_takes_the_vectors(transformer, tmp_path):
    model = build(transformer, "mean", "pooling alone", None, True, None)
    model.append(base.Dense(HIDDEN, 12, activation_function=torch.nn.Softmax(dim=-1)))
    model.save_pretrained(str(tmp_path), create_model_card=False)
    expected = torch.nn.functional.normalize(model.encode(TEXTS, convert_to_tensor=True), dim=-1)
    torch.testing.assert_close(vectors_of(tmp_path, TEXTS)[0], expected, rtol=0, atol=1e-5)


def plan(teacher, text_folder, method="aligned_embedding"):
    """Validate a recipe whose teacher teaches vectors, or by another method."""
    stage = {"method": method, "training": {"max_steps": 1}}
    corpus = {"sources": [str(text_folder)], "length": 16}
    recipe = {"teacher": {"model": str(teacher)}, "student": {"shape": f"1x{HIDDEN}"}, "corpus": corpus}
    return limbeck.validate(recipe | {"stages": [stage]})


def test_a_pooling_that_nothing_names_is_not_guessed(transformer, text_folder, tmp_path):
    def folder(mode, flag):
        place = shutil.copytree(transformer, tmp_path / mode)
        (place / "1_Pooling").mkdir()
        (place / "1_Pooling/config.json").write_text(json.dumps({flag: True}))
        return str(place)

    mean, first = folder("mean", "pooling_mode_mean_tokens"), folder("cls", "pooling_mode_cls_token")
    for read in (
        lambda model: plan(model, text_folder),
        lambda model: vectors_of_a_task(model, None),
        check_pooling_named,
    ):
        read(mean)
        with pytest.raises(ModelError, match=r"has no modules.json.* says cls: .*, or ask for a pooling"):
            read(first)
        (Path(mean) / "2_Dense").mkdir()
        with pytest.raises(ModelError, match=r"is followed by '2_Dense'"):
            read(mean)
        (Path(mean) / "2_Dense").rmdir()
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    (Path(first) / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(ModelError, match=r"names no pooling in modules.json"):
        plan(first, text_folder)
    assert vectors_of_a_task(first, "mean").pooling == "mean", "it was asked for"
    check_pooling_named("owner/model")


@pytest.mark.parametrize(
    ("said", "expected"),
    [([64, 128, 64], (128, 64)), (None, ()), (256, ()), ([0, -1, True, "8", 8.0, 4], (4,))],
)
def test_widths_are_read_of_anybody(transformer, tmp_path, said, expected):
    folder = shutil.copytree(transformer, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"matryoshka_dimensions": said}))
    found = load_config(folder)
    assert trained_widths(found) == expected
    assert not trained_widths(student_config(parse_blueprint("1x24"), found)), "a student's are its own"


@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_may_be_on_either_side_and_of_anything(pooling):
    hidden = torch.randn(3, 6, 4, dtype=torch.float64)
    lengths, skipped = [6, 3, 1], torch.tensor([2, 1, 0])
    right = torch.tensor([[place < length for place in range(6)] for length in lengths])
    spoilt = hidden.masked_fill(~right.unsqueeze(-1), torch.nan)
    parts = [(slice(row, row + 1), slice(length)) for row, length in enumerate(lengths)]
    expected = torch.cat([pool(hidden[part], right[part], pooling, skipped[part[0]]) for part in parts])
    torch.testing.assert_close(pool(spoilt, right, pooling, skipped), expected)
    rolled = torch.stack([row.roll(6 - length, 0) for row, length in zip(spoilt, lengths, strict=True)])
    left = torch.stack([row.roll(6 - length, 0) for row, length in zip(right, lengths, strict=True)])
    torch.testing.assert_close(pool(rolled, left, pooling, skipped), expected)
    assert pool(spoilt, torch.zeros_like(right), pooling).isfinite().all() or pooling in ("cls", "lasttoken")


def test_vectors_that_are_cut_to_their_width_or_not_read_are_whole(transformer, text_folder, tmp_path):
    build(transformer, "mean", "pooling alone", None, True, None).save_pretrained(str(tmp_path))
    file = tmp_path / "config_sentence_transformers.json"
    said = json.loads(file.read_text())
    file.write_text(json.dumps(said | {"truncate_dim": HIDDEN}))
    assert plan(tmp_path, text_folder) and open_model(tmp_path).sentence.truncate_dim == HIDDEN
    file.write_text(json.dumps(said | {"truncate_dim": HIDDEN - 1}))
    assert plan(tmp_path, text_folder, "minilmv2")
    with pytest.raises(ModelError, match="cuts its vectors"):
        plan(tmp_path, text_folder)


def test_what_cannot_be_applied_is_refused(transformer, text_folder, tmp_path):
    model = build(transformer, "mean", "several", None, True, None)
    model.save_pretrained(str(tmp_path), create_model_card=False)
    listed = json.loads((tmp_path / "modules.json").read_text())

    def refused(file, content, *parts, read=sentence_pooling):
        before = (tmp_path / file).read_bytes() if (tmp_path / file).exists() else None
        if content is None:
            (tmp_path / file).unlink()
        else:
            (tmp_path / file).write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(ModelError) as error:
            read(tmp_path)
        assert all(part in str(error.value) for part in parts) and "\n" not in str(error.value), error.value
        if before is None:
            (tmp_path / file).unlink()
        else:
            (tmp_path / file).write_bytes(before)

    def validate(folder):
        return limbeck.validate({"teacher": {"model": str(folder)}, "student": {"shape": f"1x{HIDDEN}"}})

    def loaded(folder):
        return SentenceHead(sentence_pooling(folder))

    library_of = "sentence_transformers.models."
    for kind, reason in (("Router", "give one of them"), ("StaticEmbedding", "no Transformer"), ("Own", "is unknown")):
        refused("modules.json", [listed[0] | {"type": library_of + kind}, *listed[1:]], f"'{library_of}{kind}'", reason)
    refused("modules.json", [listed[1], listed[0]], "in this order")
    refused("modules.json", [*listed, listed[1]], "in this order")
    refused("1_Pooling/config.json", None, "config.json' is missing")
    refused("1_Pooling/config.json", {}, "The pooling in", "is none")
    dense = json.loads((tmp_path / "3_Dense/config.json").read_text())
    for key, value, part in (
        ("activation_function", "os.system", "not one of torch.nn"),
        ("activation_function", "torch.nn.modules.activation.PReLU", "without arguments and weights"),
        ("activation_function", "torch.nn.modules.activation.Tanhh", "Did you mean 'Tanh'?"),
        ("in_features", 10**9, "in_features 1000000000"),
        ("module_output_name", "token_embeddings", "to sentence_embedding"),
        ("use_residual", "yes", "give true or false"),
    ):
        refused("3_Dense/config.json", dense | {key: value}, part)
    refused("4_Dense/config.json", dense | {"in_features": 49}, "takes vectors of width 49")
    for read in (open_model, validate):
        refused("3_Dense/config.json", dense | {"in_features": 49}, "do not fit its Transformer", read=read)
    refused("3_Dense/config.json", dense | {"bias": False}, "do not fit", read=loaded)
    refused("3_Dense/model.safetensors", None, "lack", read=loaded)
    refused("3_Dense/model.safetensors", "x", "damaged", read=loaded)
    prompts = "config_sentence_transformers.json"
    refused(prompts, {"prompts": {"query": 3}}, "do not have the expected structure")
    refused(prompts, {"prompts": {"query": "q"}, "default_prompt_name": "qury"}, "Did you mean 'query'?")

    def taught(folder):
        return plan(folder, text_folder)

    for read in (open_model, taught, lambda folder: vectors_of_a_task(str(folder), None)):
        refused(prompts, {"truncate_dim": 3}, "by truncate_dim 3", "set truncate_dim to null", read=read)
    refused("sentence_bert_config.json", {"transformer_task": "text-generation"}, "'text-generation'")
    for key, value in (
        ("query_length", 6),
        ("document_length", 9),
        ("processing_kwargs", {"text": {"truncation": True, "add_special_tokens": False}}),
        ("processing_kwargs", {"common": {"max_length": 8}}),
        ("modality_config", {"text": {"method": "forward", "method_output_name": "pooler_output"}}),
    ):
        refused("sentence_bert_config.json", {key: value}, f"says {key}", "in a copy of the folder")
    refused("tokenizer_config.json", {"model_max_length": 0}, "model_max_length")
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer | {"normalizer": None}))
    refused("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case")
