"""Networks of other packages, none of which needs torchvision or CUDA: ``pip install --no-deps`` and einops."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from tests.conformance.family import SAMPLES, Family, Problem, Refusal, noise, summary
from tests.conformance.from_config import LENGTHS, TOKENS, VOCABULARY

DIM, SIZE = 16, 16


class Configured(nn.Module):
    """A network that is called with fixed options."""

    def __init__(self, network: nn.Module, **options: Any) -> None:
        super().__init__()
        self.network, self.options = network, options

    def forward(self, *inputs: Tensor) -> Any:
        return self.network(*inputs, **self.options)


class WithMask(nn.Module):
    """A network that takes a padding mask as the keyword ``mask``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        return self.network(x, mask=mask)


def tokens(length: int = TOKENS) -> Tensor:
    return torch.randint(0, VOCABULARY, (SAMPLES, length), generator=torch.Generator().manual_seed(0))


def mask() -> Tensor:
    return torch.tensor([[t < length for t in range(TOKENS)] for length in LENGTHS])


def vectors(length: int = TOKENS, dim: int = DIM) -> Tensor:
    return noise(SAMPLES, length, dim)


def images(size: int = SIZE, channels: int = 3) -> Tensor:
    return noise(SAMPLES, channels, size, size)


def first(result: Any) -> Tensor:
    """The outputs, where a network returns them with other things."""
    return summary(result[0] if isinstance(result, tuple) else result)


def made(module: str, name: str, **options: Any) -> nn.Module:
    """``module.name(**options)``."""
    return getattr(import_module(module), name)(**options)


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


def _cifar(module: str, name: str, **options: Any) -> nn.Module:
    """A network of pytorchcv for small images."""
    shared = {"in_size": (SIZE, SIZE), "num_classes": 3, "init_block_channels": 4}
    return made(f"pytorchcv.models.{module}", name, **(shared | options))


_CHANNELS = [[4, 4], [8, 8]]


class Pooled(nn.Module):
    """A layer that keeps images images, between a convolution and a mean."""

    def __init__(self, layer: nn.Module, channels: int) -> None:
        super().__init__()
        self.stem, self.layer = nn.Conv2d(3, channels, 3, padding=1), layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.stem(x)).mean((2, 3))


class Graph(nn.Module):
    """Two layers of torch_geometric on samples that are graphs with the same edges."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        layer = getattr(import_module("torch_geometric.nn"), kind)
        self.one, self.two = layer(4, 8, **options), layer(8, 3, **options)
        ring = torch.arange(6)
        self.register_buffer("edges", torch.stack([ring, ring.roll(1)]))

    def forward(self, x: Tensor) -> Tensor:
        offsets = 6 * torch.arange(len(x)).repeat_interleave(6)
        edges = self.edges.repeat(1, len(x)) + offsets
        hidden = self.one(x.reshape(-1, 4), edges).tanh()
        return self.two(hidden, edges).reshape(len(x), -1)


class Molecule(nn.Module):
    """Equivariant layers over points, read out from the features."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = made("egnn_pytorch", "EGNN", dim=8, m_dim=8)

    def forward(self, features: Tensor, points: Tensor) -> Tensor:
        return self.layer(features, points)[0]


_LM = {"num_tokens": VOCABULARY, "dim": DIM, "depth": 2}

NETWORKS: dict[str, tuple[str, Callable[[], nn.Module], Callable[[], Any]]] = {
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
    "fast transformer": (
        "fast_transformer_pytorch",
        lambda: WithMask(
            made("fast_transformer_pytorch", "FastTransformer", max_seq_len=TOKENS, heads=2, dim_head=8, **_LM)
        ),
        lambda: (tokens(), mask()),
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
    "h-transformer": (
        "h_transformer_1d",
        lambda: made(
            "h_transformer_1d",
            "HTransformer1D",
            max_seq_len=2 * TOKENS,
            heads=2,
            dim_head=8,
            block_size=4,
            causal=False,
            **_LM,
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
    "perceiver": (
        "perceiver_pytorch",
        lambda: made(
            "perceiver_pytorch",
            "Perceiver",
            input_channels=3,
            num_freq_bands=2,
            max_freq=4.0,
            depth=2,
            num_latents=4,
            latent_dim=DIM,
            cross_dim_head=8,
            latent_heads=2,
            latent_dim_head=8,
            num_classes=3,
        ),
        lambda: noise(SAMPLES, 8, 8, 3),
    ),
    "MLP-Mixer": (
        "mlp_mixer_pytorch",
        lambda: made(
            "mlp_mixer_pytorch", "MLPMixer", image_size=SIZE, channels=3, patch_size=4, dim=DIM, depth=2, num_classes=3
        ),
        images,
    ),
    "permutator": (
        "mlp_mixer_pytorch",
        lambda: made(
            "mlp_mixer_pytorch",
            "Permutator",
            image_size=SIZE,
            patch_size=4,
            dim=DIM,
            depth=2,
            num_classes=3,
            segments=4,
        ),
        images,
    ),
    "ResMLP": (
        "res_mlp_pytorch",
        lambda: made("res_mlp_pytorch", "ResMLP", image_size=SIZE, patch_size=4, dim=DIM, depth=2, num_classes=3),
        images,
    ),
    "lambda layer": (
        "lambda_networks",
        lambda: Pooled(made("lambda_networks", "LambdaLayer", dim=8, dim_out=8, r=3, dim_k=4, heads=2, dim_u=1), 8),
        lambda: images(8),
    ),
    "halo attention": (
        "halonet_pytorch",
        lambda: Pooled(
            made("halonet_pytorch", "HaloAttention", dim=8, block_size=4, halo_size=2, dim_head=4, heads=2), 8
        ),
        lambda: images(8),
    ),
    "involution": (
        "involution_pytorch",
        lambda: Pooled(made("involution_pytorch", "Inv2d", channels=8, kernel_size=3, stride=1, group_ch=4), 8),
        lambda: images(8),
    ),
    "bottleneck transformer": (
        "bottleneck_transformer_pytorch",
        lambda: Pooled(
            made(
                "bottleneck_transformer_pytorch",
                "BottleStack",
                dim=8,
                fmap_size=8,
                dim_out=16,
                num_layers=1,
                heads=2,
                dim_head=4,
                proj_factor=2,
            ),
            8,
        ),
        lambda: images(8),
    ),
    "tab transformer": (
        "tab_transformer_pytorch",
        lambda: made(
            "tab_transformer_pytorch",
            "TabTransformer",
            categories=(5, 6),
            num_continuous=3,
            dim=DIM,
            depth=2,
            heads=2,
            dim_head=8,
            dim_out=3,
            mlp_act=nn.ReLU(),
        ),
        lambda: (tokens(2) % 5, noise(SAMPLES, 3)),
    ),
    "FT-transformer": (
        "tab_transformer_pytorch",
        lambda: made(
            "tab_transformer_pytorch",
            "FTTransformer",
            categories=(5, 6),
            num_continuous=3,
            dim=DIM,
            depth=2,
            heads=2,
            dim_head=8,
            dim_out=3,
        ),
        lambda: (tokens(2) % 5, noise(SAMPLES, 3)),
    ),
    "SIREN": (
        "siren_pytorch",
        lambda: made("siren_pytorch", "SirenNet", dim_in=2, dim_hidden=16, dim_out=3, num_layers=3),
        lambda: noise(SAMPLES, 2),
    ),
    "TCN": (
        "pytorch_tcn",
        lambda: made("pytorch_tcn", "TCN", num_inputs=4, num_channels=[8, 8], kernel_size=3, use_norm="layer_norm"),
        lambda: noise(SAMPLES, 4, 12),
    ),
    "tabular MLP": (
        "rtdl_revisiting_models",
        lambda: made(
            "rtdl_revisiting_models",
            "ResNet",
            d_in=6,
            d_out=3,
            n_blocks=2,
            d_block=16,
            d_hidden=16,
            d_hidden_multiplier=None,
            dropout1=0.1,
            dropout2=0.1,
        ),
        lambda: noise(SAMPLES, 6),
    ),
    "periodic embeddings": (
        "rtdl_num_embeddings",
        lambda: made("rtdl_num_embeddings", "PeriodicEmbeddings", n_features=6, d_embedding=8, lite=False),
        lambda: noise(SAMPLES, 6),
    ),
    "EfficientNet-B0": (
        "efficientnet_pytorch",
        lambda: import_module("efficientnet_pytorch").EfficientNet.from_name(
            "efficientnet-b0", width_coefficient=0.1, depth_coefficient=0.3, image_size=32, num_classes=3
        ),
        lambda: images(32),
    ),
    "EGNN": ("egnn_pytorch", Molecule, lambda: (noise(SAMPLES, 5, 8), noise(SAMPLES, 5, 3, seed=4))),
    "GCN": ("torch_geometric", lambda: Graph("GCNConv"), lambda: noise(SAMPLES, 6, 4)),
    "GAT": ("torch_geometric", lambda: Graph("GATConv"), lambda: noise(SAMPLES, 6, 4)),
    "GraphSAGE": ("torch_geometric", lambda: Graph("SAGEConv"), lambda: noise(SAMPLES, 6, 4)),
    "ResNet (pytorchcv)": (
        "pytorchcv",
        lambda: _cifar("resnet_cifar", "CIFARResNet", channels=_CHANNELS, bottleneck=False),
        images,
    ),
    "PreResNet (pytorchcv)": (
        "pytorchcv",
        lambda: _cifar("preresnet_cifar", "CIFARPreResNet", channels=_CHANNELS, bottleneck=True),
        images,
    ),
    "SE-ResNet (pytorchcv)": (
        "pytorchcv",
        lambda: _cifar("seresnet_cifar", "CIFARSEResNet", channels=[[16, 16], [16, 16]], bottleneck=False),
        images,
    ),
    "DenseNet (pytorchcv)": (
        "pytorchcv",
        lambda: _cifar("densenet_cifar", "CIFARDenseNet", channels=[[8, 12], [10, 14]], bottleneck=True),
        images,
    ),
    "WRN (pytorchcv)": ("pytorchcv", lambda: _cifar("wrn_cifar", "CIFARWRN", channels=_CHANNELS), images),
    "PyramidNet (pytorchcv)": (
        "pytorchcv",
        lambda: _cifar("pyramidnet_cifar", "CIFARPyramidNet", channels=[[6, 8], [10, 12]], bottleneck=False),
        images,
    ),
    "ResNeXt (pytorchcv)": (
        "pytorchcv",
        lambda: _cifar("resnext_cifar", "CIFARResNeXt", channels=[[8, 8], [16]], cardinality=2, bottleneck_width=4),
        images,
    ),
    "ShakeShake (pytorchcv)": (
        "pytorchcv",
        lambda: _cifar("shakeshakeresnet_cifar", "CIFARShakeShakeResNet", channels=_CHANNELS, bottleneck=False),
        images,
    ),
}

REFUSED: dict[str, Refusal] = {}

FAMILIES = [
    Family(
        "packages",
        name,
        lambda make=make, inputs=inputs: Problem(make(), inputs(), first),
        package=package,
        refusal=REFUSED.get(name),
    )
    for name, (package, make, inputs) in NETWORKS.items()
]
