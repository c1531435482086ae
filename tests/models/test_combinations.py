"""Vectors and scores of several teachers as one, against numpy and scipy in float64."""

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes
from scipy.special import log_softmax, softmax

from limbeck.errors import CorpusError
from limbeck.models.score_combination import combine_scores
from limbeck.models.vector_combination import VectorCombination, averaged, concatenated

WEIGHTS = (0.7, 0.2, 0.5)
WIDTHS = (6, 4, 9)


def draw(texts, seed=0):
    """Vectors of three teachers that say similar things of the same texts, of very different lengths."""
    generator = np.random.default_rng(seed)
    latent = generator.standard_normal((texts, 12))
    vectors = []
    for width, scale in zip(WIDTHS, (1.0, 50.0, 0.01), strict=True):
        mixing = generator.standard_normal((12, width))
        vectors.append(scale * (latent @ mixing + 0.3 * generator.standard_normal((texts, width))))
    return vectors


def unit(values):
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def tensors(vectors):
    return [torch.from_numpy(values) for values in vectors]


def test_concatenated_vectors_are_those_of_numpy():
    sample = draw(200)
    combination = concatenated(tensors(sample), WEIGHTS, width=10)
    shares = np.array(WEIGHTS) / sum(WEIGHTS)
    new = draw(30, seed=1)

    def joined(vectors):
        return np.concatenate([np.sqrt(share) * unit(part) for share, part in zip(shares, vectors, strict=True)], 1)

    assert np.allclose(np.linalg.norm(joined(new), axis=1), 1)
    # Right singular vectors are the principal directions without centring; their signs are arbitrary.
    _, _, directions = np.linalg.svd(joined(sample), full_matrices=False)
    expected = unit(joined(new) @ directions[:10].T)
    result = combination.combine(tensors(new)).numpy()
    assert result.dtype == np.float32
    np.testing.assert_allclose(np.abs(result), np.abs(expected), atol=1e-5)
    # What a student learns are angles, and these have no sign.
    np.testing.assert_allclose(result @ result.T, expected @ expected.T, atol=1e-5)


def test_all_directions_keep_the_weighted_mean_of_the_cosines():
    sample = draw(100)
    result = concatenated(tensors(sample), WEIGHTS, width=sum(WIDTHS)).combine(tensors(sample)).numpy()
    shares = np.array(WEIGHTS) / sum(WEIGHTS)
    cosines = [unit(part) @ unit(part).T for part in sample]
    expected = sum(share * matrix for share, matrix in zip(shares, cosines, strict=True))
    np.testing.assert_allclose(result @ result.T, expected, atol=1e-5)


def test_averaged_vectors_are_those_of_scipy():
    sample = draw(200)
    combination = averaged(tensors(sample), WEIGHTS)
    shares = np.array(WEIGHTS) / sum(WEIGHTS)
    new = draw(30, seed=1)
    expected = shares[0] * unit(new[0])
    for share, part, of_new in zip(shares[1:], sample[1:], new[1:], strict=True):
        # Scipy takes matrices of one width: zeros are put behind the narrower one.
        width = max(part.shape[1], sample[0].shape[1])
        padded = np.zeros((len(part), width))
        padded[:, : part.shape[1]] = unit(part)
        target = np.zeros((len(part), width))
        target[:, : sample[0].shape[1]] = unit(sample[0])
        rotation, _ = orthogonal_procrustes(padded, target)
        expected = expected + share * unit(of_new) @ rotation[: part.shape[1], : sample[0].shape[1]]
    np.testing.assert_allclose(combination.combine(tensors(new)).numpy(), unit(expected), atol=1e-5)


def test_a_teacher_that_is_another_one_turned_changes_nothing():
    first = draw(100)[0]
    rotation, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((6, 6)))
    combination = averaged(tensors([first, 3 * first @ rotation]), (1.0, 4.0))
    np.testing.assert_allclose(combination.combine(tensors([first, first @ rotation])).numpy(), unit(first), atol=1e-5)


def test_a_combination_is_read_as_it_was_saved(tmp_path):
    sample = tensors(draw(50))
    combination = concatenated(sample, WEIGHTS, width=8)
    combination.save(tmp_path / "maps.safetensors")
    again = VectorCombination.load(tmp_path / "maps.safetensors")
    assert torch.equal(again.combine(sample), combination.combine(sample))


def test_too_few_texts_have_no_directions():
    with pytest.raises(CorpusError, match=r"onto 10 principal directions of the text, but 9 texts are too few"):
        concatenated(tensors(draw(9)), WEIGHTS, width=10)


@pytest.mark.parametrize("classes", [2, 5])
def test_probabilities_are_averaged(classes):
    scores = np.random.default_rng(0).normal(scale=4, size=(3, 20, classes))
    shares = np.array(WEIGHTS) / sum(WEIGHTS)
    expected = np.tensordot(shares, softmax(scores, axis=-1), 1)
    result = combine_scores(tensors(scores), WEIGHTS, mean_of="probabilities").numpy()
    np.testing.assert_allclose(softmax(result, axis=-1), expected, atol=1e-5)
    np.testing.assert_allclose(result, np.log(expected), atol=1e-4)
    # One teacher alone is itself, up to the constant that a softmax does not see.
    np.testing.assert_allclose(
        combine_scores(tensors(scores[:1]), [3.0], mean_of="probabilities").numpy(),
        log_softmax(scores[0], axis=-1),
        atol=1e-5,
    )


def test_scores_are_averaged():
    scores = np.random.default_rng(0).normal(scale=4, size=(3, 20, 1))
    shares = np.array(WEIGHTS) / sum(WEIGHTS)
    result = combine_scores(tensors(scores), WEIGHTS, mean_of="logits").numpy()
    np.testing.assert_allclose(result, np.tensordot(shares, scores, 1), atol=1e-5)
