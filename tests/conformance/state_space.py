"""State space and linear recurrent networks of ``transformers``, alone and with attention layers between them."""

from typing import Any

from tests.conformance import reasons
from tests.conformance.family import Family
from tests.conformance.from_config import sentences, text

_MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 4}
_MAMBA2 |= {"mamba_expand": 2, "mamba_d_conv": 4}
_DELTA = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
_MIXED = {"layer_types": ["linear_attention", "full_attention"]}
_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager"}
_EXPERTS |= {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 24}

SETTINGS: dict[str, dict[str, Any]] = {
    "bamba": _MAMBA2 | {"attn_layer_indices": [1]},
    "falcon_h1": _MAMBA2 | {"mamba_d_ssm": 64},
    "falcon_mamba": {"state_size": 4},
    "granitemoehybrid": _MAMBA2 | {"layer_types": ["mamba", "attention"], "shared_intermediate_size": 24} | _EXPERTS,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4, "mamba_dt_rank": 4} | _EXPERTS,
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_multiple_of": 8},
    "mamba": {"state_size": 4},
    "mamba2": {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1, "chunk_size": 4},
    "olmo_hybrid": _DELTA | _MIXED,
    "qwen3_5_text": _DELTA | _MIXED,
    "qwen3_next": _DELTA | _MIXED | _EXPERTS,
    "recurrent_gemma": {"lru_width": 32, "block_types": ["recurrent", "attention"], "attention_window_size": 4},
    "rwkv": {"attention_hidden_size": 32, "context_length": 16, "use_cache": False},
    "zamba": {
        "mamba_d_state": 4,
        "mamba_dt_rank": 4,
        "n_mamba_heads": 2,
        "attention_head_dim": 16,
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "head_dim": None,
        "num_key_value_heads": 4,
        "num_hidden_layers": 4,
    },
    "zamba2": {
        "mamba_d_state": 8,
        "n_mamba_heads": 4,
        "mamba_headdim": 16,
        "chunk_size": 4,
        "mamba_ngroups": 1,
        "layers_block_type": ["mamba", "hybrid"],
        "head_dim": None,
        "num_mem_blocks": 1,
        "adapter_rank": 4,
        "num_key_value_heads": 4,
    },
}

KNOWN: dict[str, dict[str, Any]] = {
    "recurrent_gemma": reasons.KEEPS_ITS_STATE,
}

FAST = {"lfm2"}


def _family(name: str) -> Family:
    build = text("AutoModelForCausalLM", name, SETTINGS[name], inputs=lambda: sentences("left"))
    return Family("state space", name, build, name in FAST, **KNOWN.get(name, {}))


FAMILIES = [*map(_family, SETTINGS)]
