"""An encoder that neither limbeck nor transformers knows: its own names, norms before its maps, two kinds of layers."""

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class AlembicConfig(PreTrainedConfig):
    """`oddity` is what makes one of a model's streams none that a tap may give out."""

    model_type = "alembic"
    attribute_map = {"num_hidden_layers": "floors", "hidden_size": "girth", "num_attention_heads": "eyes"}  # noqa: RUF012

    vocab_size: int = 130
    floors: int = 4
    girth: int = 48
    eyes: int = 4
    intermediate_size: int = 96
    vapour_dropout: float = 0.1
    layer_doors: list[str] | None = None
    pad_token_id: int | None = 0
    oddity: str = ""


class Floor(nn.Module):
    def __init__(self, config, place):
        super().__init__()
        self.config, self.is_causal = config, False
        self.before, self.between = nn.LayerNorm(config.girth), nn.LayerNorm(config.girth)
        self.look = nn.Linear(config.girth, 3 * config.girth)
        self.tell = nn.Linear(config.girth, config.girth)
        self.up, self.down = nn.Linear(config.girth, 96), nn.Linear(96, config.girth)
        self.drop = nn.Dropout(config.vapour_dropout)
        self.door = nn.Linear(config.girth, config.girth) if config.layer_doors[place] == "wide" else None

    def forward(self, flow, mask):
        query, key, value = self.look(self.before(flow)).unflatten(-1, (3, self.config.eyes, -1)).unbind(2)
        query = query.tanh() if self.config.oddity == "query" else query
        attend = sdpa_attention_forward
        if self.config.oddity != "attention":
            attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, sdpa_attention_forward)
        context, _ = attend(self, *(x.transpose(1, 2) for x in (query, key, value)), mask, is_causal=False)
        flow = flow + self.drop(self.tell(context.flatten(2)))
        flow = flow + self.drop(self.down(self.up(self.between(flow)).relu()))
        return flow if self.door is None else flow + self.door(flow)


class AlembicModel(PreTrainedModel):
    config_class = AlembicConfig
    base_model_prefix = "still"
    _supports_sdpa = _supports_attention_backend = True

    def __init__(self, config):
        super().__init__(config)
        config.layer_doors = config.layer_doors or (["wide", "none"] * config.floors)[: config.floors]
        self.words, self.places = nn.Embedding(config.vocab_size, config.girth), nn.Embedding(128, config.girth)
        self.tower = nn.ModuleList(Floor(config, place) for place in range(config.floors))
        self.last = nn.LayerNorm(config.girth)
        # A parameter that a configuration does without, as torch notes it.
        self.register_parameter("scale", None)
        self.post_init()

    def get_input_embeddings(self):
        return self.words

    def forward(self, input_ids, attention_mask=None, output_hidden_states=None, **_):
        flow = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1], device=input_ids.device))
        mask = create_bidirectional_mask(config=self.config, inputs_embeds=flow, attention_mask=attention_mask)
        states = [flow]
        for floor in self.tower:
            flow = floor(flow, mask) * (2 if self.config.oddity == "between" else 1)
            states.append(flow)
        flow = states[-1] = self.last(flow)
        return BaseModelOutput(flow, tuple(states) if output_hidden_states else None)


AutoConfig.register("alembic", AlembicConfig)
AutoModel.register(AlembicConfig, AlembicModel)
