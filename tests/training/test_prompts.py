"""Prompts by role: what the teacher reads in training is what sentence-transformers makes its vectors of."""

import json
import shutil

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import limbeck
from limbeck.corpus import CorpusSettings, PadCollator, build_corpus
from limbeck.corpus.batches.batch import read_batch
from limbeck.errors import LimbeckError
from limbeck.methods.term import Term
from limbeck.models import packing
from limbeck.models.loading import load_model
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.streams import StreamKey
from limbeck.models.tokenizers import load_tokenizer
from limbeck.recipe import load_recipe, plan_run
from limbeck.recipe.known_by_content import without_places
from limbeck.training.rows import training_rows
from limbeck.training.teaching.live import LiveTeaching
from tests.support.models import HIDDEN, make_teacher, save_folder, tiny_model
from tests.support.recipes import recipe_of
from tests.support.training import assert_ends_like, elsewhere, kill_at, record_of

PROMPTS = {"query": "query: ", "document": "passage: "}
LENGTH = 40
TEXTS = {
    "query": ["the old bridge", "is it on water", "in"],
    None: ["of that layer we are", "with text"],
    "document": ["the river runs under it.", f"the model {'and the teacher ' * 9}of it"],
}
ROLES = list(TEXTS)


def joining_tokenizer():
    """A byte-level tokenizer with words of letters behind a space: the end of a prompt becomes part of the text."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    words = " ".join(text for texts in TEXTS.values() for text in texts)
    backend.train_from_iterator([f"query: {words}", f"passage: {words}"] * 3, trainer)
    ends = [("<s>", 0), ("</s>", 2)]
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    kinds = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), names, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="<s>", sep_token="</s>", model_max_length=128, **kinds
    )


@pytest.fixture(scope="module")
def transformers(tmp_path_factory):
    """Folders of ordinary models, by family."""
    parent = tmp_path_factory.mktemp("transformers")
    roberta = save_folder(tiny_model("roberta", layers=1, vocab_size=300), parent / "roberta", "roberta")
    joining_tokenizer().save_pretrained(roberta)
    return {"bert": make_teacher(parent, "bert", layers=1), "roberta": roberta}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A file of texts for each role."""
    parent = tmp_path_factory.mktemp("texts")
    for role, written in TEXTS.items():
        (parent / f"{role}.txt").write_text("\n\n".join(written))
    return [str(parent / f"{role}.txt") for role in TEXTS]


def save_sentence_model(transformer, folder, *, included=True, default=None):
    library = pytest.importorskip("sentence_transformers")
    base = pytest.importorskip("sentence_transformers.base.modules")
    pooling = pytest.importorskip("sentence_transformers.sentence_transformer.modules").Pooling
    modules = [base.Transformer(str(transformer), max_seq_length=LENGTH), pooling(HIDDEN, "mean", included)]
    model = library.SentenceTransformer(modules=modules, prompts=PROMPTS, default_prompt_name=default, device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return model


def settings_of(texts, sentence, **options):
    sources = [{"source": str(text), "role": role} for text, role in zip(texts, ROLES, strict=True)]
    prompts = {role or "": sentence.prompt(role) for role in ROLES}
    given = {"length": LENGTH, "held_out": 0.0, "minimum_tokens": 1}
    return CorpusSettings(sources=sources, prompts=prompts, **(given | options))


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("included", [False, True], ids=["skipped", "included"])
@pytest.mark.parametrize(("family", "side"), [("bert", "right"), ("roberta", "right"), ("roberta", "left")])
def test_the_teacher_reads_what_sentence_transformers_reads(
    transformers, texts, tmp_path, family, side, included, packed, monkeypatch
):
    monkeypatch.setattr(packing, "SHORTEST_MEAN", 0 if packed else 1000)
    default = "document" if included else None
    model = save_sentence_model(transformers[family], tmp_path / "model", included=included, default=default)
    expected = torch.cat([model.encode(TEXTS[r], prompt_name=r, convert_to_tensor=True) for r in ROLES])
    sentence, tokenizer = sentence_pooling(tmp_path / "model"), load_tokenizer(tmp_path / "model")
    term = Term("pooled", "pooled_cosine", (StreamKey("pooled", 1),), (StreamKey("pooled", 1),), 1.0)
    reader = LiveTeaching(load_model(tmp_path / "model"), [term], pooling=SentenceHead(sentence))
    assert (family == "roberta") == (tokenizer("query: the")["input_ids"][-2:] != tokenizer("the")["input_ids"][-2:])
    for student_prompts in (True, False):
        settings = settings_of(texts, sentence, student_prompts="teacher" if student_prompts else "none")
        corpus = build_corpus(settings, tokenizer, cache_dir=tmp_path / "cache", workers=1)
        rows = training_rows(corpus, tokenizer, replace_tokens=0, mask_tokens=0, seed=0)
        assert len(rows) > len(expected), "the last text makes several blocks"
        batch = PadCollator(tokenizer.pad_token_id, side)([rows[index] for index in range(len(expected))])
        found = reader.read(read_batch(batch))[StreamKey("pooled", 1)]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        own = read_batch(batch).student
        prompts = [sentence.prompt(role) if student_prompts else "" for role in ROLES for _ in TEXTS[role]]
        written = [text for role in ROLES for text in TEXTS[role]]
        for ids, mask, prompt, text in zip(own["input_ids"], own["attention_mask"], prompts, written, strict=True):
            whole, tokens = tokenizer(prompt + text)["input_ids"], ids[mask.bool()].tolist()
            is_cut = text == written[-1]
            assert tokens == ([*whole[: len(tokens) - 1], whole[-1]] if is_cut else whole)
        assert ("skipped" in own) == student_prompts and own.keys() <= {"input_ids", "attention_mask", "skipped"}
        later = rows[len(expected)]
        reads = [later.get("teacher_input_ids", later["input_ids"])]
        assert tokenizer.decode(reads[0], skip_special_tokens=True).startswith("passage")
    reader.close()


@pytest.fixture(scope="module")
def sentence_folder(transformers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentence") / "model"
    save_sentence_model(transformers["bert"], folder, included=False)
    return folder


@pytest.fixture
def recipe(sentence_folder, texts, text_folder, tmp_path):
    """A recipe of two roles whose student reads no prompts."""
    found = recipe_of(sentence_folder, text_folder, output=str(tmp_path / "run"))
    query = texts[0]
    sources = [
        {"source": query, "role": "query", "share": 0.25},
        {"source": str(text_folder), "role": "document", "units": ["paragraph", "sentence"]},
        {"source": str(text_folder), "role": "query", "units": ["title", "question", "document"]},
    ]
    found["corpus"] = {"sources": sources, "length": 32, "student_prompts": "none", "held_out": 0.2}
    found["stages"] = [
        {"method": {"name": "sentence_embedding", "hidden_weight": 0}, "training": found["stages"][0]["training"]}
    ]
    found["student"]["shape"] = {"layers": 1, "hidden": HIDDEN, "heads": 4, "ffn": 32}
    return found


def settings_planned(recipe, *overrides):
    plan = plan_run(load_recipe(recipe, overrides))
    return plan.stages[0].corpus, plan.summary()


def test_a_recipe_says_how_its_sources_are_read(recipe, text_folder):
    settings, said = settings_planned(recipe)
    assert [(use.role, use.prompt, use.units) for use in settings.uses] == [
        ("query", "query: ", ()),
        ("document", "passage: ", ("paragraph", "sentence")),
        ("query", "query: ", ("title", "question", "document")),
    ]
    assert settings.mixing.stated == (0.25, None, None) and not settings.student_reads_prompts
    assert f"{text_folder} (document, prompt 'passage: ', paragraph and sentence) 37.5%" in said["sources of stage 1"]
    assert said["sources of stage 1"].endswith("; the student reads no prompts")
    document = load_recipe(recipe).model_dump(mode="json")
    assert document["corpus"]["sources"] == recipe["corpus"]["sources"]
    assert without_places(document)["corpus"]["uses"][1] == {"role": "document", "units": ["paragraph", "sentence"]}
    plain = load_recipe(recipe | {"corpus": {"sources": [str(text_folder)]}}).model_dump(mode="json")["corpus"]
    assert not {"units", "student_prompts", "uses"} & {*plain, *without_places({"corpus": plain})["corpus"]}

    settings, said = settings_planned(recipe, "corpus.units=[sentence]", "stages.0.text.student_prompts=teacher")
    assert settings.uses[0].units == ("sentence",) and settings.student_reads_prompts
    settings, _ = settings_planned(recipe, "corpus.units=[sentence]", "stages.0.text.unit=paragraph")
    assert settings.uses[0].units == () and settings.unit == "paragraph"


def test_a_student_is_saved_with_the_prompts_that_it_read_alone(recipe, sentence_folder, text_folder, tmp_path):
    def saved(*sources, default=None, reading="teacher"):
        folder = tmp_path / f"default-{default}"
        if not folder.exists():
            shutil.copytree(sentence_folder, folder)
            said = {"prompts": PROMPTS, "default_prompt_name": default, "similarity_fn_name": "dot"}
            (folder / "config_sentence_transformers.json").write_text(json.dumps(said))
        given = [{"source": str(text_folder)} | ({"role": role} if role else {}) for role in sources]
        corpus = {"sources": given, "length": 32, "student_prompts": reading, "held_out": 0.2}
        found = plan_run(load_recipe(recipe | {"teacher": {"model": str(folder)}, "corpus": corpus})).student_sentence
        assert found.similarity == "dot"
        return set(found.prompts), found.default_prompt

    assert saved(None) == (set(), None)
    assert saved("query") == ({"query"}, None)
    assert saved("query", "document") == ({"query", "document"}, None)
    assert saved(None, default="document") == ({"document"}, "document")
    assert saved("query", default="document") == ({"query"}, None)
    assert saved("query", "document", reading="none") == (set(), None)


REFUSED = {
    "the role 'query' of a source puts a prompt for sentence vectors before its texts": [
        "stages.0.method={name: minilmv2, relation_heads: 4}"
    ],
    "with student_prompts: none the teacher reads tokens": ["stages.0.method.hidden_weight=1"],
    "reads no prompt before these texts": ["corpus.sources=[TEXT]"],
    "'join' joins texts": ["corpus.join=true"],
    "'unit' (sentence) and 'units' (['title']) both say": ["corpus.unit=sentence", "corpus.units=[title]"],
    "the shares of 'sources' and 'mix' both say": ["corpus.mix={weights: [1, 1, 1]}"],
    "sources.0.role is 'question'; give 'query' or 'document'": ["corpus.sources.0.role=question"],
    "unknown key 'rol'. Did you mean 'role'": ["corpus.sources=[{source: TEXT, rol: query}]"],
    "corpus.sources.0: give exactly one of 'source' and 'parallel'": ["corpus.sources=[{role: query}]"],
    "leave nothing for the sources without a share": ["corpus.sources.1.share=0.75"],
    "the shares of sources add up to 1.2, which is more than 1": [
        "corpus.sources.0.share=0.5",
        "corpus.sources.1.share=0.7",
    ],
    "units is 'sentence'; give a list: [sentence]": ["corpus.units=sentence"],
    "student_prompts is false, which has no meaning here: give teacher or none": ["corpus.student_prompts=no"],
    "sources.1: unknown key 'path'. Known: language, parallel, role, share, source, units": [
        "corpus.sources=[{path: TEXT, role: document}, {path: TEXT}]"
    ],
    "is listed twice with the same settings": ["corpus.sources=[TEXT, {source: TEXT}, {source: TEXT, role: query}]"],
    "'student_prompts' applies only to running text": ["corpus.task={kind: classification}"],
    "a source of rows takes no keys of its own": ["corpus={sources: [{source: TEXT}], task: {kind: classification}}"],
    "length is 4, but": ["corpus.length=4"],
    "'not-there' does not exist": ["corpus.sources.0.source=not-there"],
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_meant_is_refused(recipe, text_folder, line):
    overrides = [override.replace("TEXT", str(text_folder)) for override in REFUSED[line]]
    with pytest.raises(LimbeckError) as caught:
        settings = plan_run(load_recipe(recipe, overrides)).stages[0].corpus
        build_corpus(settings, load_tokenizer(recipe["teacher"]["model"]))
    assert line in str(caught.value)


@pytest.mark.parametrize("streaming", [False, True], ids=["built", "streamed"])
def test_a_run_of_roles_ends_as_one_that_was_stopped(recipe, tmp_path, streaming):
    recipe["corpus"] |= {"streaming": streaming, **({"shuffle_buffer": 16} if streaming else {})}
    recipe["stages"][0]["augment"] = {"replace_tokens": 0.3}
    again = elsewhere(recipe, tmp_path / "again")
    kill_at(again, 3)
    limbeck.distill(recipe)
    assert_ends_like(again, recipe)
    view = record_of(recipe)["corpus"]["views"][0]
    assert view["roles"]["query"] > 0.4 and sum(view["roles"].values()) == pytest.approx(1)
    assert view["pieces"]["sentence"] > view["pieces"]["paragraph"] > 0
    saved = sentence_pooling(tmp_path / "run" / "student")
    assert not saved.prompts and saved.default_prompt is None
