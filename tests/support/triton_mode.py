"""Triton runs its kernels in its interpreter where there is no GPU.

Triton reads the variable once, when it is first imported, as transformers do: who imports those imports this before.
"""

import os

import torch

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")
