"""Models with the rows of some tokens: the same outputs for these tokens, with a head or without, tied or not."""

import pytest
import torch

from limbeck.errors import ModelError
from limbeck.models.heads import has_head
from limbeck.models.vocabulary_rows import cut_config, cut_rows
from tests.support.models import ALL_FAMILIES, UNLISTED, special_names, tiny_config, tiny_model, vocabulary


def old_ids_of(family):
    """Every third token has gone, but for special ones."""
    special = len({*special_names(family).values()})
    return [number for number in range(len(vocabulary(family))) if number < special or number % 3]


def batch_of(old_ids, special):
    generator = torch.Generator().manual_seed(2)
    new = torch.randint(special, len(old_ids), (3, 12), generator=generator)
    return new, torch.tensor(old_ids)[new]


def families_with_heads():
    """Each family with each of the three heads that it has."""
    pairs = []
    for family in [*ALL_FAMILIES, *UNLISTED]:
        if family == "alembic":
            continue
        pairs += [
            (family, head) for head in (None, "masked_lm", "classification") if has_head(tiny_config(family), head)
        ]
    return pairs


@pytest.mark.parametrize(("family", "head"), families_with_heads())
def test_outputs_of_tokens_that_stay_are_the_same(family, head):
    model = tiny_model(family, head=head)
    old_ids = old_ids_of(family)
    smaller = cut_rows(model, old_ids)
    new, old = batch_of(old_ids, len({*special_names(family).values()}))
    with torch.no_grad():
        after = smaller(input_ids=new, attention_mask=torch.ones_like(new))
        before = model(input_ids=old, attention_mask=torch.ones_like(old))
    if head == "masked_lm":
        assert torch.allclose(after.logits, before.logits[..., old_ids], atol=1e-4)
        assert after.logits.shape[-1] == len(old_ids)
    else:
        assert torch.equal(after[0], before[0])
    whole, cut = (dict(each.named_parameters()) for each in (model, smaller))
    # Whatever is tied in the whole model is tied in the smaller one.
    assert whole.keys() == cut.keys()
    assert smaller.config.vocab_size == len(old_ids) and model.config.vocab_size == len(vocabulary(family))
    assert not smaller.training


def test_untied_output_layers_keep_rows_of_their_own():
    model = tiny_model("bert", head="masked_lm", tie_word_embeddings=False)
    old_ids = old_ids_of("bert")
    smaller = cut_rows(model, old_ids)
    decoder = smaller.get_output_embeddings()
    assert torch.equal(decoder.weight, model.get_output_embeddings().weight[old_ids])
    assert not torch.equal(decoder.weight, smaller.get_input_embeddings().weight)
    assert torch.equal(decoder.bias, model.get_output_embeddings().bias[old_ids])


def test_special_ids_of_a_configuration_follow_their_tokens():
    config = tiny_config("bert", eos_token_id=[2, 3], decoder_start_token_id=4, pad_token_id=6)
    smaller = cut_config(config, [0, 2, 3, 6, 9])
    assert smaller.eos_token_id == [1, 2] and smaller.pad_token_id == 3 and smaller.decoder_start_token_id is None
    assert config.pad_token_id == 6


def test_what_cannot_be_cut_is_refused():
    roberta = tiny_model("roberta")
    with pytest.raises(
        ModelError, match=r"counts positions from the id of its padding \(1\), which cutting would change to 0"
    ):
        cut_rows(roberta, [1, 2, 3, 4, 20])
    with pytest.raises(ModelError, match="tokens to keep has the id 9000"):
        cut_rows(roberta, [0, 1, 9000])
