"""Tokenizers of the kinds whose vocabulary can be cut, trained on text in eight scripts."""

import json
import random
from functools import cache

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from limbeck.models.wordpieces import train_wordpieces

WORDS = {
    "latin": "all human beings are born free and equal in dignity and rights naïve façade",
    "cyrillic": "все люди рождаются свободными и равными в своем достоинстве и правах",
    "greek": "όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια",
    "arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق",
    "devanagari": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता",
    "han": "人人 生而 自由 在 尊严 和 权利 上 一律 平等",
    "kana": "すべての にんげんは うまれながらに して じゆうで あり ビョウドウ",
    "hangul": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다",
}
"""Words of a sentence in each of eight scripts."""
ALL_WORDS = [word for sentence in WORDS.values() for word in sentence.split()]
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_BYTES = [f"<0x{number:02X}>" for number in range(256)]
KINDS = ("wordpiece", "byte_level_bpe", "byte_fallback_bpe", "unigram")


def random_texts(count: int, seed: int = 0, words: int = 12) -> list[str]:
    """Make texts of words, and of words put together."""
    generator = random.Random(seed)
    texts = []
    for _ in range(count):
        joined = [generator.choice((1, 1, 1, 2)) for _ in range(generator.randint(1, words))]
        texts.append(" ".join("".join(generator.choices(ALL_WORDS, k=count)) for count in joined))
    return texts


@cache
def trained_tokenizer(kind: str) -> PreTrainedTokenizerBase:
    """Train a tokenizer of one of `KINDS`; nobody may change it."""
    texts = random_texts(600)
    if kind == "wordpiece":
        return train_wordpieces(lambda: texts, 900, lowercase=False)
    make = {"byte_level_bpe": _byte_level, "byte_fallback_bpe": _byte_fallback, "unigram": _unigram}[kind]
    backend = make(texts)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(name, backend.token_to_id(name)) for name in ("<s>", "</s>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
    )


def _byte_level(texts: list[str]) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def _byte_fallback(texts: list[str]) -> Tokenizer:
    """A BPE as SentencePiece makes it: rare characters are written as their bytes."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(
        vocab_size=1000, special_tokens=[*_SPECIAL, *_BYTES], limit_alphabet=120, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    document = json.loads(backend.to_str())
    # Bytes are pieces of the model, which the trainer cannot know.
    document["added_tokens"] = [token for token in document["added_tokens"] if token["content"] not in _BYTES]
    backend = Tokenizer.from_str(json.dumps(document))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return backend


def _unigram(texts: list[str]) -> Tokenizer:
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=900, special_tokens=_SPECIAL, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(texts, trainer)
    return backend
