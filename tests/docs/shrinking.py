"""What is made small in a block before it runs: widths, steps, batches, data sets. Nothing else of it is changed."""

from __future__ import annotations

import re

from tests.docs.world import WIDTH

#: Pattern and what takes its place. Depths stay as they are written, so that layers by number keep their meaning.
_SMALLER = (
    (r"\b(\d+)x(?:768|576|384|312|192)\b", rf"\1x{WIDTH}"),
    (r"\bhidden: \d+", f"hidden: {WIDTH}"),
    (r"\bffn: \d+", f"ffn: {2 * WIDTH}"),
    (r"--hidden [\d,]+", f"--hidden 24,{WIDTH}"),
    (r"--max-parameters \w+", "--max-parameters 1M"),
    (r"--max-latency-share [\d.]+", "--max-latency-share 2"),
    (r"\bmax_steps([:=]) ?\d+", r"max_steps\1 6"),
    (r"\bwarmup_steps: \d{2,}", "warmup_steps: 1"),
    (r"\bnum_train_epochs: \d+", "num_train_epochs: 1"),
    (r"\bper_device_train_batch_size: \d+", "per_device_train_batch_size: 4"),
    (r"\bgradient_accumulation_steps: \d+", "gradient_accumulation_steps: 2"),
    (r"\bdataloader_num_workers: \d+", "dataloader_num_workers: 0"),
    (r"\bshuffle_buffer: \d+", "shuffle_buffer: 16"),
    (r"\b(length|save_steps|eval_steps)(:) ?\d+", r"\1\2 32"),
    (r"--steps \d+", "--steps 8"),
    (r"--(length|lengths) [\d,]+", r"--\1 32"),
    (r"--batch-sizes [\d,]+", "--batch-sizes 2"),
    (r"--(generations|population|trials) \d+", r"--\1 2"),
    (r"--(seeds|workers) \d+", r"--\1 1"),
    (r"--preset \w+", "--preset quick"),
    (r"--tasks [a-z0-9_,]+(?=\s|$)", "--tasks rte"),
    (r"\btokens: [\d_]+", "tokens: 800"),
    (r"\btasks: \[[^\]]*\]", "tasks: [rte]"),
    (r"\bseeds: \[[^\]]*\]", "seeds: [1]"),
    (r"\bpreset: \w+", "preset: quick"),
    (r"\binstalled-docs\b", "texts/"),
)


def smaller(text: str) -> str:
    """The block, with its numbers made small."""
    for pattern, small in _SMALLER:
        text = re.sub(pattern, small, text)
    return text
