"""Students that learn other languages from parallel text: the teacher reads its own language in place of each."""

import json
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr
from transformers import AutoModel

import limbeck
from limbeck.corpus.batches.batch import read_batch
from limbeck.corpus.files.parallel_files import INCOMPLETE
from limbeck.errors import CorpusError, LimbeckError, RecipeError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training import rows
from limbeck.training.held_stage import HeldStage
from tests.support.models import make_embedding
from tests.support.recipes import recipe_of
from tests.support.training import assert_ends_like, kill_at

WORDS = "the of and to in is for that with model teacher student layer text word we it on are".split()  # noqa: SIM905
ALIGNED = {"name": "aligned_embedding"}
COUNT = 80


def draw_sentences(seed):
    draw = random.Random(seed)
    sentences = {}
    while len(sentences) < COUNT:
        sentences[" ".join(draw.choices(WORDS, k=draw.randint(4, 9)))] = None
    return list(sentences)


ENGLISH = draw_sentences(0)
GERMAN = draw_sentences(1)


@pytest.fixture
def teacher(tmp_path):
    return make_embedding(tmp_path / "teacher")


@pytest.fixture
def files(tmp_path):
    for language, sentences in (("en", ENGLISH), ("de", GERMAN)):
        (tmp_path / f"text.{language}").write_text("".join(f"{sentence}\n" for sentence in sentences))
    return {"en": str(tmp_path / "text.en"), "de": str(tmp_path / "text.de")}


@pytest.fixture
def recipe(teacher, files, tmp_path):
    recipe = recipe_of(teacher, "", ALIGNED, output=str(tmp_path / "run"))
    recipe["corpus"] |= {"sources": [{"parallel": files}], "minimum_tokens": 1}
    return recipe


def weights_of(result):
    return load_file(result.student / "model.safetensors")


def assert_same_weights(first, second, allowed=1e-5):
    assert first.keys() == second.keys()
    assert max(float((first[name] - second[name]).abs().max()) for name in first) <= allowed


def texts_of(stage, columns):
    """The sentences that student and teacher read of some rows."""
    decode = stage.tokenizer.batch_decode
    students = decode(columns["input_ids"], skip_special_tokens=True)
    return list(zip(students, decode(columns["teacher_input_ids"], skip_special_tokens=True), strict=True))


def test_the_student_reads_each_language_and_the_teacher_the_first(recipe):
    stage = HeldStage(plan_run(load_recipe(recipe)))
    train = texts_of(stage, stage.corpus.train[:])
    held_out = texts_of(stage, stage.corpus.held_out[:])
    expected = [*zip(ENGLISH, ENGLISH, strict=True), *zip(GERMAN, ENGLISH, strict=True)]
    assert sorted(train + held_out) == sorted(expected)
    assert stage.corpus.titles == ("en", "de")
    # A sentence is held out with its translation, so that no target of a held-out row is trained on.
    assert len(held_out) > 10
    assert {teacher for _, teacher in held_out}.isdisjoint(teacher for _, teacher in train)
    stage.close()


def test_the_loss_of_a_batch_equals_the_papers_in_float64(recipe, teacher):
    """Reimers and Gurevych 2020, equation 1, with the distance of finished vectors for the squared error."""
    recipe["stages"][0]["method"] = {**ALIGNED, "distance": "l2_squared"}
    recipe["student"]["dropout"] = 0.0
    stage = HeldStage(plan_run(load_recipe(recipe)))
    columns = next(stage.batches())
    loss = float(stage.loss(columns).detach())
    batch = read_batch(columns)

    def pooled(model, row, inputs):
        """The mean of the last hidden states of the row's own tokens, in float64."""
        length = int(inputs["attention_mask"][row].sum())
        with torch.no_grad():
            hidden = model(input_ids=inputs["input_ids"][row : row + 1, :length]).last_hidden_state
        return hidden[0].numpy().mean(0)

    teacher_model = AutoModel.from_pretrained(teacher).double().eval()
    student = stage.module.student.double().eval()
    (learned_map,) = [tensor for name, tensor in stage.module.state_dict().items() if name.startswith("maps")][:1]
    matrix = learned_map.double().numpy()
    distances = []
    for row in range(len(batch.student["input_ids"])):
        target = pooled(teacher_model, row, batch.teacher)
        vector = pooled(student, row, batch.student) @ matrix.T
        distances.append(((vector - target) ** 2).sum())
    assert loss == pytest.approx(np.mean(distances), rel=1e-5)
    # The German half of the batch has the vectors of English sentences as its targets.
    pairs = texts_of(stage, {name: columns[name] for name in ("input_ids", "teacher_input_ids")})
    assert any(student_text != teacher_text for student_text, teacher_text in pairs)
    assert all(teacher_text in ENGLISH for _, teacher_text in pairs)
    stage.close()


def test_stored_and_cached_outputs_of_the_first_language_teach_all(recipe, tmp_path):
    of_live = weights_of(limbeck.distill(recipe))
    # The store knows the English sentences alone: the German ones are found by these.
    (tmp_path / "english.txt").write_text("\n".join(ENGLISH))
    english = {**recipe["corpus"], "sources": str(tmp_path / "english.txt"), "separator": "line"}
    limbeck.teach({**recipe, "corpus": english}, output=tmp_path / "store")
    start = {**recipe["student"], "initialise": {"from": recipe["teacher"]["model"]}}
    stored = {**recipe, "teacher": {"stored": str(tmp_path / "store")}, "student": start}
    assert_same_weights(of_live, weights_of(limbeck.distill(stored, output=tmp_path / "stored")))
    cached = {**recipe, "teacher": {**recipe["teacher"], "cache": True}}
    assert_same_weights(of_live, weights_of(limbeck.distill(cached, output=tmp_path / "cached")))
    # A store of the parallel text itself has the same texts.
    result = limbeck.teach(recipe, output=tmp_path / "again")
    assert result.figures["texts"] == COUNT


def test_vectors_in_a_file_are_found_by_the_sentences_of_the_first_language(recipe, teacher, tmp_path):
    vectors = np.random.default_rng(0).standard_normal((COUNT, 16)).astype(np.float32)
    table = tmp_path / "vectors.parquet"
    pd.DataFrame({"text": ENGLISH, "embedding": list(vectors)}).to_parquet(table)
    recipe["teacher"] = {"targets": str(table), "text": "text", "vector": "embedding"}
    recipe["student"]["initialise"] = {"from": str(teacher)}
    record = limbeck.distill(recipe).record
    assert record["stages"][0]["held_out"]["loss"] > 0
    assert record["corpus"]["report"]["counts"] == {}
    pd.DataFrame({"text": ENGLISH[1:], "embedding": list(vectors[1:])}).to_parquet(table)
    with pytest.raises(CorpusError, match="2 of 160 texts are not in"):
        limbeck.distill(recipe, output=tmp_path / "lacking")


@pytest.fixture
def recipe_of_packed_teacher(recipe, files):
    """A recipe whose teacher runs packed, as in half precision, on longer sentences than the student's."""
    recipe["teacher"]["dtype"] = "bfloat16"
    lines = [f"{english} {' '.join(WORDS)}\n" for english in ENGLISH]
    Path(files["en"]).write_text("".join(lines))
    return recipe


def test_a_method_without_terms_of_the_teacher_trains_on_all_languages(recipe_of_packed_teacher):
    recipe = recipe_of_packed_teacher
    recipe["stages"][0]["method"] = "mlm"
    record = limbeck.distill(recipe).record
    assert record["stages"][0]["held_out"]["loss"] > 0
    assert [each["language"] for each in record["corpus"]["views"][0]["languages"]] == ["en", "de"]


def test_a_teacher_of_vectors_takes_no_mask_of_the_students_tokens(recipe_of_packed_teacher):
    stage = HeldStage(plan_run(load_recipe(recipe_of_packed_teacher)))
    batch = read_batch(next(stage.batches()))
    teaching = stage.module.teaching
    scored_tokens_of_student = torch.ones(1, 1, dtype=torch.bool)
    of_mask = teaching.read(batch, scored_tokens_of_student)
    expected = teaching.read(batch)
    assert list(of_mask) == list(expected) != []
    for key, stream in expected.items():
        torch.testing.assert_close(of_mask[key], stream)
    stage.close()


@pytest.mark.parametrize("layout", ["lines", "table", "tmx"])
def test_sentences_without_a_translation_are_counted_once(recipe, files, tmp_path, layout):
    if layout == "lines":
        with Path(files["en"]).open("a") as english, Path(files["de"]).open("a") as german:
            english.write("one\n\nthree\n")
            german.write("\nzwei\n\n")
    else:
        pairs = [*zip(ENGLISH, GERMAN, strict=True), ("one", ""), ("", "zwei"), ("three", "")]
        table = "".join(f"{english}\t{german}\n" for english, german in [("en", "de"), *pairs])
        units = []
        for english, german in pairs:
            variants = f'<tuv xml:lang="en"><seg>{english}</seg></tuv><tuv xml:lang="de"><seg>{german}</seg></tuv>'
            units.append(f"<tu>{variants}</tu>")
        content = {"table": table, "tmx": f"<tmx><body>{''.join(units)}</body></tmx>"}[layout]
        place = tmp_path / {"table": "pairs.tsv", "tmx": "pairs.tmx"}[layout]
        place.write_text(content)
        recipe["corpus"]["sources"] = [{"parallel": {"file": str(place), "languages": ["en", "de"]}}]
    stage = HeldStage(plan_run(load_recipe(recipe)))
    assert stage.corpus.report.counts[INCOMPLETE] == 3
    assert len(stage.corpus.train) + len(stage.corpus.held_out) == 2 * COUNT
    stage.close()


def test_a_killed_run_goes_on(recipe, tmp_path):
    limbeck.distill(recipe)
    killed = {**recipe, "output": str(tmp_path / "killed")}
    kill_at(killed, 3)
    limbeck.distill(killed, resume=True)
    assert_ends_like(recipe, killed)


def test_long_sentences_are_read_from_their_beginning_by_both(recipe, files, tmp_path):
    long = {"en": " ".join(WORDS * 3), "de": " ".join(reversed(WORDS * 3))}
    for language, sentence in long.items():
        with Path(files[language]).open("a") as file:
            file.write(f"{sentence}\n")
    recipe["corpus"] |= {"length": 12, "student_length": 10, "held_out": 0}
    stage = HeldStage(plan_run(load_recipe(recipe)))
    texts = texts_of(stage, stage.corpus.train[:])
    # One row each, so that no part of a sentence meets another part of its translation.
    assert len(texts) == 2 * COUNT + 2
    assert (" ".join(WORDS[:8]), " ".join(WORDS[:10])) in texts
    assert (" ".join((WORDS * 3)[::-1][:8]), " ".join(WORDS[:10])) in texts
    assert any("reads only the beginning" in line for line in stage.corpus.report.lines())
    stage.close()


def test_a_plan_says_what_the_teacher_reads(recipe):
    lines = str(limbeck.validate(recipe))
    assert "translations of stage 1: the student reads en and de, and the teacher en alone" in lines
    assert "the teacher reads its own" not in lines


def test_languages_are_mixed_by_their_sizes(recipe, tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("\n".join(draw_sentences(2)))
    recipe["corpus"]["sources"].append({"source": str(more), "language": "en"})
    recipe["corpus"] |= {"mix": {"exponent": 0.5}, "separator": "line"}
    record = limbeck.distill(recipe).record
    (view,) = record["corpus"]["views"]
    rows = {each["language"]: each["rows"] for each in view["languages"]}
    share = {each["language"]: each["share"] for each in view["languages"]}
    assert rows["en"] > rows["de"]
    assert share["de"] == pytest.approx(rows["de"] ** 0.5 / (rows["de"] ** 0.5 + rows["en"] ** 0.5))
    assert sum(share.values()) == pytest.approx(1)
    assert list(view["shares"]) == ["en", "de", str(more)]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"corpus": {"join": True}}, "join cuts text by the tokens of one model"),
        ({"corpus": {"streaming": True}}, "streaming"),
        ({"source": {"units": ["sentence"]}}, "'units' does not apply to parallel text"),
        ({"source": {"share": 0.5}}, "'share' does not apply to parallel text"),
        ({"source": {"source": "text.en"}}, "give exactly one of 'source' and 'parallel'"),
        ({"parallel": {"en": "text.en"}}, "at least two languages"),
        (
            {"parallel": {"en": "text.en", False: "text.no"}},
            "false is not the code of a language, because YAML reads codes such as no as true or false: put the code",
        ),
        ({"parallel": {"file": "text.tmx", "languages": ["en", False]}}, 'put the code in quotation marks, as in "no"'),
        (
            {"parallel": {"en": "text.en", "de at": "text.de"}},
            "'de at' is not the code of a language: give up to 30 letters",
        ),
        (
            {"source": {"language": ""}},
            "'' is not the code of a language: give up to 30 letters, digits, - and _, such as de",
        ),
        ({"parallel": {"en": "gone.en", "de": "gone.de"}}, "'gone.en' does not exist"),
        ({"method": {"name": "minilmv2", "relation_heads": 4}}, "the student reads other tokens than its teacher"),
        ({"augment": {"replace_tokens": 0.1}}, "replace_tokens changes the student's tokens"),
        ({"corpus": {"task": {"kind": "classification"}}}, "a source of rows takes no keys of its own"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_does_not_go_with_translations_is_refused_before_any_text_is_read(recipe, change, line):
    recipe["corpus"] |= change.get("corpus", {})
    if "task" in recipe["corpus"]:
        del recipe["corpus"]["minimum_tokens"]
    recipe["corpus"]["sources"][0] |= change.get("source", {})
    if "parallel" in change:
        recipe["corpus"]["sources"][0]["parallel"] = change["parallel"]
    recipe["stages"][0] |= {key: change[key] for key in ("method", "augment") if key in change}
    with pytest.raises((RecipeError, CorpusError)) as caught:
        limbeck.validate(recipe)
    assert line in str(caught.value)


def test_uneven_files_are_refused_when_the_text_is_read(recipe, files):
    with Path(files["de"]).open("a") as file:
        file.write("one more\n")
    with pytest.raises(LimbeckError, match="need equal numbers of lines, .*has 80 and .*has 81"):
        limbeck.distill(recipe)


def test_files_beside_a_recipe_are_found_and_a_record_names_them(recipe, files, tmp_path, monkeypatch):
    names = {language: Path(file).name for language, file in files.items()}
    recipe["corpus"]["sources"] = [{"parallel": names}]
    place = tmp_path / "recipe.yaml"
    place.write_text(json.dumps(recipe))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    record = limbeck.distill(place).record
    named = f"{files['en']} and {files['de']}"
    assert record["corpus"]["sources"] == [f"{named} (en)", f"{named} (de)"]
    # A run that goes on knows its text by its content.
    assert limbeck.distill(place, resume=True).record["corpus"] == record["corpus"]
    assert "damaged" not in str(limbeck.report(recipe["output"]))


def test_each_language_has_its_figures_in_record_card_and_report(recipe, teacher):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    recipe["corpus"] |= {"mix": {"exponent": 0.5}, "held_out": 0.4}
    recipe["evaluation"] = {"pairs": 20, "retrieval_pairs": 10, "speed": False}
    result = limbeck.distill(recipe)
    stage = HeldStage(plan_run(load_recipe(recipe)))
    documents = stage.corpus.held_out_documents()
    places_by_language = stage.corpus.held_out_by_language("rows")
    stage.close()

    (view,) = result.record["corpus"]["views"]
    assert [(each["language"], each["share"]) for each in view["languages"]] == [("en", 0.5), ("de", 0.5)]
    # The loss of all rows is the mean of those of the languages, by their rows.
    record = result.record["stages"][0]
    losses = {language: terms["loss"] for language, terms in record["held_out_by_language"].items()}
    counts = {language: len(places) for language, places in places_by_language.items()}
    mean = sum(losses[name] * counts[name] for name in counts) / sum(counts.values())
    assert record["held_out"]["loss"] == pytest.approx(mean, rel=1e-4)

    # The same figures by other code.
    student_model = sentence_transformers.SentenceTransformer(str(result.student), device="cpu")
    teacher_model = sentence_transformers.SentenceTransformer(str(teacher), device="cpu")
    english = [document.text for document in documents if document.teacher_text == document.text]
    pairs = [(document.text, document.teacher_text) for document in documents if document.text not in english]
    german, targets = zip(*pairs, strict=True)
    vectors = student_model.encode(list(german), normalize_embeddings=True)
    expected = teacher_model.encode(list(targets), normalize_embeddings=True)
    above = np.triu_indices(len(german), 1)
    agreement = spearmanr((vectors @ vectors.T)[above], (expected @ expected.T)[above]).statistic
    translations = student_model.encode(list(targets), normalize_embeddings=True)
    nearest = (vectors @ translations.T).argmax(1)
    figures = {each["language"]: each for each in result.record["evaluation"]["languages"]}
    assert figures["de"]["texts"] == len(german)
    assert figures["de"]["agreement"] == pytest.approx(agreement, abs=1e-3)
    assert figures["de"]["to_teacher_language"] == pytest.approx(np.mean(nearest == np.arange(len(german))))
    assert "to_teacher_language" not in figures["en"]

    card = (result.student / "README.md").read_text()
    assert "## Languages" in card and "| de | " in card
    assert "Agreement with the teacher" in str(limbeck.report(recipe["output"]))


def test_held_out_rows_are_of_every_language(recipe, monkeypatch):
    recipe["corpus"]["held_out"] = 0.4
    monkeypatch.setattr(rows, "_HELD_OUT_ROWS", 10)
    stage = HeldStage(plan_run(load_recipe(recipe)))
    languages = rows.held_out_languages(stage.corpus, stage.rows.held_out)
    assert {language: len(places) for language, places in languages.items()} == {"en": 5, "de": 5}
    read = [texts_of(stage, stage.rows.collator([row])) for row in languages["de"]]
    assert all(pair[0][0] in GERMAN for pair in read)
    stage.close()
