from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limbeck.corpus import Corpus, MixSpec, RowMix
from limbeck.corpus.batches.mixing import draw_counts
from limbeck.corpus.settings import CorpusSettings
from limbeck.corpus.settings.mix import LanguageShares
from limbeck.errors import CorpusError
from limbeck.training.sampler import LengthGroupedSampler
from tests.support.corpora import TOKENIZER
from tests.support.streams import build_text, make_texts, text_settings, write_texts


@pytest.mark.parametrize(
    ("mix", "sizes", "expected"),
    [
        (MixSpec(weights=(1, 3)), [10, None], [0.25, 0.75]),
        (MixSpec(exponent=1), [10, 30], [0.25, 0.75]),
        (MixSpec(exponent=0), [10, 30, 0], [0.5, 0.5, 0.0]),
        (MixSpec(exponent=0.5), [1, 9], [0.25, 0.75]),
        (MixSpec(exponent=0.5), [9000, 1000], [0.75, 0.25]),
        # English has nine times the text of German, in two sources.
        (LanguageShares(0.5, ("en", "de", "en")), [60, 10, 30], [0.5, 0.25, 0.25]),
        (LanguageShares(0.0, ("en", "de", "en", "sw")), [60, 10, 0, 0], [0.5, 0.5, 0.0, 0.0]),
    ],
)
def test_shares(mix, sizes, expected):
    assert mix.shares(sizes) == pytest.approx(expected)


def test_sources_of_one_language_share_its_part():
    sources = [{"source": "a", "language": "en"}, {"source": "b"}, {"source": "c", "language": "en"}]
    mixed = CorpusSettings(sources=sources, mix={"exponent": 0.5})
    assert mixed.languages == ("en", "", "en")
    assert mixed.mixing == LanguageShares(0.5, ("en", "b", "en"))
    # Where no language has several sources, the mix is that of the sources.
    apart = CorpusSettings(sources=sources[:2], mix={"exponent": 0.5})
    assert apart.mixing == MixSpec(exponent=0.5)
    assert CorpusSettings(sources=["a", "b"]).languages == ()


def test_the_values_of_a_placeholder_are_languages_where_it_says_so(tmp_path):
    for name in ("de", "en"):
        (tmp_path / f"{name}.txt").write_text("text")
    by_language = CorpusSettings(mix={"by": f"{tmp_path}/{{language}}.txt", "exponent": 0.3})
    assert by_language.languages == ("de", "en")
    assert CorpusSettings(mix={"by": f"{tmp_path}/{{site}}.txt", "exponent": 0.3}).languages == ()


@settings(deadline=None)
@given(st.integers(1, 5000), st.lists(st.floats(0.01, 100), min_size=1, max_size=9), st.floats(0, 0.999))
def test_counts_are_shares_rounded_up_or_down(total, weights, offset):
    shares = [weight / sum(weights) for weight in weights]
    counts = draw_counts(total, shares, offset)
    assert sum(counts) == total
    assert all(abs(count - total * share) < 1 + 1e-6 for count, share in zip(counts, shares, strict=True))


def test_counts_are_the_shares_on_average():
    shares = [0.001, 0.299, 0.7]
    counts = np.mean([draw_counts(10, shares, offset) for offset in np.linspace(0, 1, 5000, endpoint=False)], axis=0)
    assert counts == pytest.approx([10 * share for share in shares], abs=0.01)


def test_rounding_gives_a_source_without_a_share_no_row():
    shares = [0.1] * 10
    assert np.cumsum(shares)[-1] < 1
    counts = draw_counts(10, [*shares, 0.0, 0.0], offset=0.0)
    assert sum(counts) == 10 and counts[10:] == [0, 0]


def test_a_language_needs_a_block_and_not_each_of_its_sources(tmp_path, cache):
    for name, count in (("en", 60), ("de", 20)):
        write_texts(tmp_path / f"{name}.txt", make_texts(name, count))
    for name in ("en", "de"):
        (tmp_path / f"{name}_again.txt").write_bytes((tmp_path / f"{name}.txt").read_bytes())

    def sources(**language_of_file):
        return [{"source": str(tmp_path / f"{name}.txt"), "language": code} for name, code in language_of_file.items()]

    listed = sources(en="en", de="de", en_again="en")
    corpus = build_text(cache, TOKENIZER, *listed, mix=MixSpec(exponent=0.5))
    rows = corpus.manifest["source_rows"]
    assert rows[2] == 0
    drawn = corpus.row_mix(1)
    assert drawn.sources(drawn.draw(0)) == drawn.counts(0) and drawn.counts(0)[2] == 0
    expected = rows[0] ** 0.5 / (rows[0] ** 0.5 + rows[1] ** 0.5)
    assert corpus.shares_of_languages()["en"] == pytest.approx(expected)

    # All text of Dutch is that of German.
    listed = sources(de="de", en="en", de_again="nl", en_again="en")
    repeated = build_text(cache, TOKENIZER, *listed, mix=MixSpec(exponent=0.5))
    with pytest.raises(CorpusError, match="The language 'nl' has no block to train on"):
        repeated.row_mix(1)
    by_language = build_text(cache, TOKENIZER, mix=MixSpec(exponent=0.5, by=f"{tmp_path}/{{language}}.txt"))
    with pytest.raises(CorpusError, match="The language 'de_again' has no block to train on"):
        by_language.row_mix(1)

    # With weights each source has a share of its own.
    listed = sources(en="en", en_again="en")
    weighted = build_text(cache, TOKENIZER, *listed, mix=MixSpec(weights=(1, 1)))
    with pytest.raises(CorpusError, match="The source '.*en_again.txt' has no block to train on"):
        weighted.row_mix(1)


@pytest.mark.parametrize("keys", ["weights", "shares"])
def test_a_source_is_not_listed_twice_with_two_shares(tmp_path, cache, keys):
    source = str(write_texts(tmp_path / "en.txt", make_texts("en", 60)))
    listed = [{"source": source, "share": 0.5}] * 2 if keys == "shares" else [source, source]
    mix = MixSpec(weights=(1, 1)) if keys == "weights" else None
    with pytest.raises(CorpusError, match="is listed twice with the same settings: list it once"):
        text_settings(*listed, mix=mix)
    # Also where a corpus is opened with such a mix, no share is one of nothing.
    twice = build_text(cache, TOKENIZER, source, source)
    assert twice.manifest["source_rows"][1] == 0
    with pytest.raises(CorpusError, match="The source '.*en.txt' has no block to train on"):
        Corpus(twice.path, MixSpec(weights=(1, 1))).row_mix(1)
    drawn = Corpus(twice.path, MixSpec(exponent=0.5)).row_mix(1)
    assert drawn is not None and drawn.counts(0)[1] == 0


def test_a_row_comes_again_only_after_all_others_of_its_source():
    mix = RowMix([100, 7, 30], [0.5, 0.25, 0.25], seed=1)
    seen = Counter()
    for epoch in range(9):
        rows = mix.draw(epoch)
        assert len(rows) == 137
        assert mix.sources(rows) == mix.counts(epoch)
        assert (rows == RowMix([100, 7, 30], [0.5, 0.25, 0.25], seed=1).draw(epoch)).all()
        seen.update(rows.tolist())
        for start, stop in ((0, 100), (100, 107), (107, 137)):
            times = [seen[row] for row in range(start, stop)]
            assert max(times) - min(times) <= 1, (epoch, start)
    assert (mix.draw(0) != RowMix([100, 7, 30], [0.5, 0.25, 0.25], seed=2).draw(0)).any()


def test_a_mixed_sampler_tells_what_it_drew():
    lengths = list(range(1, 138))
    sampler = LengthGroupedSampler(lengths, 8, 3, RowMix([100, 7, 30], [0.5, 0.25, 0.25], seed=1))
    bounds = [0, 100, 107, 137]
    drawn = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        drawn.append(list(sampler))
    for rows in ([0], [1], [100], [137, 0], [137, 63], [137, 137, 137, 0], [136, 136, 5]):
        met = [row for epoch, count in zip(drawn, rows, strict=False) for row in epoch[:count]]
        assert sampler.drawn(rows) == np.histogram(met, bounds)[0].tolist()


def test_without_a_mix_the_order_is_that_of_all_rows():
    sampler = LengthGroupedSampler([5, 4, 3, 2, 1, 9, 9], 2, 3)
    assert sorted(sampler) == list(range(7))
