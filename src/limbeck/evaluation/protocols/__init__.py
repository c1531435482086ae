"""Protocols: how papers fine-tune on the tasks, and the figures that they publish.

`settings` are the settings of one task, `protocol` gives them as a paper does, `overrides` reads a user's changes of
them, and `published` has the printed rows of tables.
"""

from limbeck.evaluation.protocols.protocol import PROTOCOLS as PROTOCOLS
from limbeck.evaluation.protocols.protocol import Protocol as Protocol
