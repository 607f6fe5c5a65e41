"""Sequences: networks of other packages, none of which needs torchvision or CUDA."""

from typing import Any

from torch import nn

from tests.conformance import reasons
from tests.conformance.from_config import TOKENS, VOCABULARY
from tests.conformance.from_packages import DIM, SIZE, Network, WithMask, families, images, made, mask, tokens, vectors


def _x_decoder(**options: Any) -> nn.Module:
    layers = made("x_transformers", "Decoder", dim=DIM, depth=2, heads=2, attn_dim_head=8, **options)
    return made("x_transformers", "TransformerWrapper", num_tokens=VOCABULARY, max_seq_len=TOKENS, attn_layers=layers)


def _x_encoder(**options: Any) -> nn.Module:
    layers = made("x_transformers", "Encoder", dim=DIM, depth=2, heads=2, attn_dim_head=8, **options)
    return made("x_transformers", "TransformerWrapper", num_tokens=VOCABULARY, max_seq_len=TOKENS, attn_layers=layers)


def _x_vision() -> nn.Module:
    layers = made("x_transformers", "Encoder", dim=DIM, depth=2, heads=2, attn_dim_head=8)
    options = {"image_size": SIZE, "patch_size": 4, "num_classes": 3, "attn_layers": layers}
    return made("x_transformers", "ViTransformerWrapper", **options)


_LM = {"num_tokens": VOCABULARY, "dim": DIM, "depth": 2}

NETWORKS: dict[str, Network] = {
    "x-transformers decoder": ("x_transformers", _x_decoder, tokens),
    "x-transformers rotary": ("x_transformers", lambda: _x_decoder(rotary_pos_emb=True, use_rmsnorm=True), tokens),
    "x-transformers alibi": ("x_transformers", lambda: _x_decoder(alibi_pos_bias=True, ff_glu=True), tokens),
    "x-transformers talking heads": ("x_transformers", lambda: _x_decoder(attn_pre_talking_heads=True), tokens),
    "x-transformers sparse": ("x_transformers", lambda: _x_decoder(attn_sparse_topk=2), tokens),
    "x-transformers macaron": ("x_transformers", lambda: _x_encoder(macaron=True, ff_swish=True), tokens),
    "x-transformers masked": ("x_transformers", lambda: WithMask(_x_encoder()), lambda: (tokens(), mask())),
    "x-transformers memory": ("x_transformers", lambda: _x_encoder(attn_num_mem_kv=2, gate_residual=True), tokens),
    "x-transformers vision": ("x_transformers", _x_vision, images),
    "linformer": (
        "linformer",
        lambda: made("linformer", "LinformerLM", seq_len=TOKENS, heads=2, k=4, **_LM),
        tokens,
    ),
    "linear attention": (
        "linear_attention_transformer",
        lambda: made(
            "linear_attention_transformer", "LinearAttentionTransformerLM", heads=2, max_seq_len=TOKENS, **_LM
        ),
        tokens,
    ),
    "performer": (
        "performer_pytorch",
        lambda: made("performer_pytorch", "PerformerLM", max_seq_len=TOKENS, heads=2, dim_head=8, **_LM),
        tokens,
    ),
    "local attention": (
        "local_attention",
        lambda: made(
            "local_attention",
            "LocalTransformer",
            max_seq_len=TOKENS,
            heads=2,
            dim_head=8,
            local_attn_window_size=4,
            causal=True,
            **_LM,
        ),
        tokens,
    ),
    "gMLP": ("g_mlp_pytorch", lambda: made("g_mlp_pytorch", "gMLP", seq_len=TOKENS, **_LM), tokens),
    "gMLP vision": (
        "g_mlp_pytorch",
        lambda: made("g_mlp_pytorch", "gMLPVision", image_size=SIZE, patch_size=4, num_classes=3, dim=DIM, depth=2),
        images,
    ),
    "nystromformer package": (
        "nystrom_attention",
        lambda: made("nystrom_attention", "Nystromformer", dim=DIM, dim_head=8, heads=2, depth=2, num_landmarks=4),
        vectors,
    ),
    "conformer": (
        "conformer",
        lambda: made("conformer", "Conformer", dim=DIM, depth=2, dim_head=8, heads=2, conv_kernel_size=3),
        vectors,
    ),
    "gated state spaces": (
        "gated_state_spaces_pytorch",
        lambda: made("gated_state_spaces_pytorch", "GatedStateSpacesLM", dss_kernel_N=8, dss_kernel_H=8, **_LM),
        tokens,
    ),
    "mega": (
        "mega_pytorch",
        lambda: made("mega_pytorch", "Mega", ema_heads=4, attn_dim_qk=8, attn_dim_value=16, **_LM),
        tokens,
    ),
    "minGRU": ("minGRU_pytorch", lambda: made("minGRU_pytorch.minLM", "minLM", **_LM), tokens),
    "mambapy": (
        "mambapy",
        lambda: made("mambapy.mamba", "Mamba", config=made("mambapy.mamba", "MambaConfig", d_model=DIM, n_layers=2)),
        vectors,
    ),
    "hourglass": (
        "hourglass_transformer_pytorch",
        lambda: made(
            "hourglass_transformer_pytorch",
            "HourglassTransformerLM",
            num_tokens=VOCABULARY,
            dim=DIM,
            max_seq_len=TOKENS,
            heads=2,
            dim_head=8,
            shorten_factor=2,
            depth=(1, 1, 1),
        ),
        tokens,
    ),
    "sinkhorn": (
        "sinkhorn_transformer",
        lambda: made(
            "sinkhorn_transformer", "SinkhornTransformerLM", max_seq_len=TOKENS, heads=2, bucket_size=4, **_LM
        ),
        tokens,
    ),
    "routing": (
        "routing_transformer",
        lambda: made("routing_transformer", "RoutingTransformerLM", max_seq_len=TOKENS, heads=2, window_size=4, **_LM),
        tokens,
    ),
    "reformer package": (
        "reformer_pytorch",
        lambda: made("reformer_pytorch", "ReformerLM", max_seq_len=TOKENS, heads=2, bucket_size=4, n_hashes=2, **_LM),
        tokens,
    ),
    "charformer": (
        "charformer_pytorch",
        lambda: made(
            "charformer_pytorch", "GBST", num_tokens=VOCABULARY, dim=DIM, max_block_size=2, downsample_factor=2
        ),
        tokens,
    ),
    "soft MoE": (
        "soft_moe_pytorch",
        lambda: made("soft_moe_pytorch", "SoftMoE", dim=DIM, seq_len=TOKENS, num_experts=4),
        vectors,
    ),
    "mixture of experts": (
        "mixture_of_experts",
        lambda: made("mixture_of_experts", "MoE", dim=DIM, num_experts=4, hidden_dim=16),
        vectors,
    ),
    "ST-MoE": ("st_moe_pytorch", lambda: made("st_moe_pytorch", "MoE", dim=DIM, num_experts=4), vectors),
    "PEER": (
        "PEER_pytorch",
        lambda: made("PEER_pytorch", "PEER", dim=DIM, heads=2, num_experts=16, num_experts_per_head=2, dim_key=4),
        vectors,
    ),
    "memory-efficient attention": (
        "memory_efficient_attention_pytorch",
        lambda: made(
            "memory_efficient_attention_pytorch",
            "Attention",
            dim=DIM,
            dim_head=8,
            heads=2,
            memory_efficient=True,
            q_bucket_size=4,
            k_bucket_size=4,
        ),
        vectors,
    ),
}

KNOWN: dict[str, dict[str, Any]] = {
    "mambapy": reasons.ONE_DERIVATIVE,
    "memory-efficient attention": reasons.NO_GRADIENT_OF_A_CHECKPOINT,
    "mixture of experts": reasons.ROUTES_AT_RANDOM,
    "nystromformer package": reasons.INFLUENCE,
    "reformer package": reasons.HASHES_AT_RANDOM,
    "routing": reasons.HOOK_RAISES,
    "ST-MoE": reasons.ROUTES_AT_RANDOM,
}

FAMILIES = families(NETWORKS, KNOWN)
