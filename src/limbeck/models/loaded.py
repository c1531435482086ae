"""A model with its tokenizer and how it makes sentence vectors, loaded as its files say."""

from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.models.families import shape_of
from limbeck.models.heads import Head, head_of
from limbeck.models.inference import encoder_of, longest_input
from limbeck.models.loading import load_config, load_model
from limbeck.models.locating import locate_model
from limbeck.models.padding import check_head_padding
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentencePooling
from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.vocabularies import check_fits_model


@dataclass(frozen=True)
class LoadedModel:
    """A model in float32 and eval mode on the CPU, with everything that its files say of its use.

    Attributes:
        name: The place of the model: a folder, `package:NAME` or a Hub name.
        model: The model with its head, and without its pooler.
        tokenizer: Its tokenizer.
        head: Its task head; None for a Transformer alone.
        sentence: How it makes sentence vectors; None where its files do not say.
        longest: The longest input in tokens that tokenizer, model and `sentence` allow.
        revision: The branch, tag or commit of a Hub name; None is `main`.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    head: Head | None
    sentence: SentencePooling | None
    longest: int
    revision: str | None = None


def open_model(name: str | Path, revision: str | None = None) -> LoadedModel:
    """Load a model with its tokenizer.

    A model that makes sentence vectors is loaded without a head, even if its checkpoint holds one.

    Args:
        name: A run's folder, a model's folder, `package:NAME` or a Hub name.
        revision: Of a Hub name: branch, tag or commit; None is `main`.

    Raises:
        ModelError: for everything that `load_model`, `load_tokenizer` and `sentence_pooling` refuse.
    """
    located = locate_model(name)
    config = load_config(located, revision)
    head = None
    sentence = sentence_pooling(located, revision)
    if sentence is None:
        head = head_of(config)
    else:
        # The modules have to take vectors of the Transformer's width, and must not cut their own vectors afterwards.
        hidden = shape_of(config).hidden
        sentence.check_fits(located, hidden)
        sentence.check_whole(located, hidden)

    model = load_model(located, revision=revision, head=head, pooler=False)
    tokenizer = load_tokenizer(located, revision=revision)
    check_fits_model(tokenizer, config.vocab_size)
    check_head_padding(located, model, head, tokenizer)

    # Tokenizer, model and sentence vectors may each bound the input. A tokenizer without a limit has a very large one.
    limits = [tokenizer.model_max_length]
    limit_of_model = longest_input(encoder_of(model))
    if limit_of_model is not None:
        limits.append(limit_of_model)
    if sentence is not None and sentence.max_length is not None:
        limits.append(sentence.max_length)
    return LoadedModel(
        name=located,
        model=model,
        tokenizer=tokenizer,
        head=head,
        sentence=sentence,
        longest=int(min(limits)),
        revision=revision,
    )
