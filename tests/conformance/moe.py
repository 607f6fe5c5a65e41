"""Mixtures of experts of ``transformers``: which weights a token meets depends on its content."""

from typing import Any

import torch

from tests.conformance.family import Family, Problem, part
from tests.conformance.from_config import model_of, sentences, targets, text
from tests.conformance.text import ENCODER_DECODERS

_EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 24,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    # The default multiplies all experts at once by an operation that does not know float64.
    "experts_implementation": "eager",
}
_LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
_LATENT |= {"num_key_value_heads": 4, "head_dim": None}

SETTINGS: dict[str, dict[str, Any]] = {
    "afmoe": {"num_dense_layers": 1, "num_shared_experts": 1},
    "aria_text": {"moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 1},
    "cohere2_moe": {},
    "dbrx": {
        "d_model": 32,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 64,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2},
        "hidden_size": None,
        "num_hidden_layers": None,
        "num_attention_heads": None,
    },
    "deepseek_v2": _LATENT | {"first_k_dense_replace": 1},
    "deepseek_v3": _LATENT | {"first_k_dense_replace": 1},
    "dots1": {"first_k_dense_replace": 1},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1, "moe_layer_start_index": 1},
    "exaone_moe": {"first_k_dense_replace": 1, "num_shared_experts": 1},
    "flex_olmo": {},
    "glm4_moe": {"first_k_dense_replace": 1},
    "glm4_moe_lite": _LATENT | {"first_k_dense_replace": 1},
    "gpt_oss": {},
    "granitemoe": {},
    "granitemoeshared": {"shared_intermediate_size": 24},
    "hunyuan_v1_moe": {"num_shared_expert": 1, "moe_topk": 2},
    "jetmoe": {"kv_channels": 8, "num_key_value_heads": 4},
    "llama4_text": {"intermediate_size_mlp": 40, "interleave_moe_layer_step": 1},
    "longcat_flash": _LATENT
    | {"head_dim": 4, "num_layers": 1, "ffn_hidden_size": 40, "expert_ffn_hidden_size": 24, "moe_topk": 2},
    "minimax": {},
    "minimax_m2": {},
    "mixtral": {},
    "olmoe": {},
    "phimoe": {},
    "qwen2_moe": {},
    "qwen3_moe": {},
    "solar_open": {"first_k_dense_replace": 1},
    "youtu": _LATENT,
}
_BART_EXPERTS = {"num_experts": 4, "encoder_sparse_step": 2, "decoder_sparse_step": 2, "expert_capacity": 3}
ENCODER_DECODERS_OF_EXPERTS: dict[str, dict[str, Any]] = {
    "nllb-moe": ENCODER_DECODERS["bart"] | _BART_EXPERTS,
    "switch_transformers": ENCODER_DECODERS["t5"] | _BART_EXPERTS | {"num_sparse_encoder_layers": 1},
}

FAST = {"mixtral"}


def _decoder(name: str) -> Family:
    settings = _EXPERTS | SETTINGS[name]
    build = text("AutoModelForCausalLM", name, settings, inputs=lambda: sentences("left"))
    return Family("moe", name, build, name in FAST)


def _encoder_decoder(name: str) -> Family:
    def build() -> Problem:
        model = model_of("AutoModelForSeq2SeqLM", name, ENCODER_DECODERS_OF_EXPERTS[name])
        for module in model.modules():
            if type(module).__name__.endswith("Router"):
                module.dtype = torch.float64  # or it converts its weights to float32 at every call
        return Problem(model, sentences() | {"decoder_input_ids": targets()}, part("logits"))

    return Family("moe", name, build, name in FAST)


FAMILIES = [*map(_decoder, SETTINGS), *map(_encoder_decoder, ENCODER_DECODERS_OF_EXPERTS)]
