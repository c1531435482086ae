"""The text that vocabularies are made of: what a corpus trains on, and nothing that it holds out."""

from types import SimpleNamespace

import pytest

from limbeck.corpus import CorpusSettings, build_corpus, build_labelled_corpus, build_vocabulary
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.kinds.registry import KINDS
from limbeck.models import wordpieces
from tests.support.corpora import TOKENIZER, decode
from tests.support.streams import row_settings, write_packed


class Development:
    """Development rows."""

    def __init__(self, *texts):
        self.texts = texts

    def fingerprint(self):
        return self.texts

    def read(self, report):
        for text in self.texts:
            yield LabelledRow("", text, None, 1)


@pytest.fixture
def texts_of(monkeypatch, cache):
    """Reads the texts that a vocabulary of a corpus is trained on, by the folder of that vocabulary."""
    texts_by_folder = {}

    def train(read_texts, words, **options):
        texts = sorted(read_texts())

        trained.append(texts)
        return SimpleNamespace(save_pretrained=lambda folder: None)

    trained = []
    monkeypatch.setattr(wordpieces, "train_wordpieces", train)

    def read(settings, kind=None):
        folder = build_vocabulary(settings, 100, kind=kind, cache_dir=cache)
        if trained:
            texts_by_folder[folder] = trained.pop()
        return texts_by_folder[folder]

    return read


def trained_texts(corpus):
    return sorted(decode(TOKENIZER, ids) for ids in corpus.train["input_ids"])


def test_development_rows_change_the_text_of_a_vocabulary(tmp_path, cache, texts_of):
    kind = KINDS["classification"]
    rows = [f'{{"text": "row number {number} of the text", "label": {number % 2}}}' for number in range(40)]
    settings = row_settings(write_packed(tmp_path / "rows.jsonl", "\n".join(rows)), held_out=None)
    # The first development row is among the rows to train on, which leave it out.
    scored = settings.model_copy(update={"development": Development("ROW number 3 of the text!", "another text")})
    for changed in (scored, settings):
        corpus = build_labelled_corpus(changed, TOKENIZER, kind, cache_dir=cache, workers=1)
        assert texts_of(changed, kind) == trained_texts(corpus)
    assert len(texts_of(scored, kind)) == 39


def test_no_translation_of_a_held_out_text_is_in_a_vocabulary(tmp_path, cache, texts_of):
    # Texts with three translations each, of which the threshold alone would divide some.
    languages = {}
    for language in ("en", "de", "fr", "it"):
        lines = "\n".join(f"{language} sentence number {number}" for number in range(12))
        languages[language] = str(write_packed(tmp_path / f"text.{language}", lines))
    for most in range(1, 12):
        settings = CorpusSettings(sources=[{"parallel": languages}], held_out=0.5, held_out_documents=most)
        corpus = build_corpus(settings, TOKENIZER, teacher_tokenizer=TOKENIZER, cache_dir=cache, workers=1)
        assert texts_of(settings) == trained_texts(corpus)
