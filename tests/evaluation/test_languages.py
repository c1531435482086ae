"""Figures by language: translations that find each other, and text that has none."""

import torch

from limbeck.core.records.run_evaluation import FEWEST_QUERIES
from limbeck.corpus import Document
from limbeck.evaluation.languages import FEWEST_TEXTS, measure_languages


class Numbered:
    """A side whose vector of `Wort 7` lies at the angle of 7, and that of `word 7` too, unless it is confused."""

    def __init__(self, *, confused=False):
        self._confused = confused

    def encode(self, pairs, report):
        angles = []
        for text, _ in pairs:
            word, number = text.split()
            if word == "word" and self._confused:
                number = FEWEST_TEXTS - 1 - int(number)
            angles.append(int(number) / 100)
        angles = torch.tensor(angles)
        vectors = torch.stack([angles.cos(), angles.sin()], 1)
        return vectors, vectors


def measure(side, translated, alone=0):
    documents = [Document(f"Wort {number}", teacher_text=f"word {number}") for number in range(translated)]
    documents += [Document(f"allein {100 + number}") for number in range(alone)]
    (figures,) = measure_languages(side, side, {"de": documents})
    return figures


def test_texts_without_a_translation_do_not_count_as_translations_of_themselves():
    for side, share in ((Numbered(), 1), (Numbered(confused=True), 0)):
        for alone in (0, 30):
            figures = measure(side, FEWEST_TEXTS, alone)
            assert figures.texts == FEWEST_TEXTS + alone
            assert (figures.to_teacher_language, figures.from_teacher_language) == (share, share)


def test_too_few_translations_have_no_figure():
    for translated in (0, FEWEST_TEXTS - 1):
        figures = measure(Numbered(), translated, alone=30)
        assert figures.agreement is not None
        assert figures.to_teacher_language is None and figures.from_teacher_language is None


def test_of_many_languages_enough_texts_of_each_are_compared_for_the_model_card():
    documents = [Document(f"allein {number}") for number in range(FEWEST_QUERIES + 50)]
    side = Numbered()
    figures = measure_languages(side, side, {f"language {number}": documents for number in range(20)})
    assert {each.texts for each in figures} == {FEWEST_QUERIES}
    (alone,) = measure_languages(side, side, {"de": documents})
    assert alone.texts == len(documents)
