"""Images, tables and graphs: networks of other packages, none of which needs torchvision or CUDA."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from tests.conformance.family import SAMPLES, noise
from tests.conformance.from_packages import DIM, SIZE, Network, families, images, made, tokens


def _cifar(module: str, name: str, **options: Any) -> nn.Module:
    """A network of pytorchcv for small images."""
    shared = {"in_size": (SIZE, SIZE), "num_classes": 3, "init_block_channels": 4}
    return made(f"pytorchcv.models.{module}", name, **(shared | options))


_TABULAR: dict[str, Any] = {
    "categories": (5, 6),
    "num_continuous": 3,
    "dim": DIM,
    "depth": 2,
    "heads": 2,
    "dim_head": 8,
    "dim_out": 3,
}
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


NETWORKS: dict[str, Network] = {
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
            **_TABULAR,
            mlp_act=nn.ReLU(),
        ),
        lambda: (tokens(2) % 5, noise(SAMPLES, 3)),
    ),
    "FT-transformer": (
        "tab_transformer_pytorch",
        lambda: made("tab_transformer_pytorch", "FTTransformer", **_TABULAR),
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
    "ShakeShake (pytorchcv)": (
        "pytorchcv",
        lambda: _cifar("shakeshakeresnet_cifar", "CIFARShakeShakeResNet", channels=_CHANNELS, bottleneck=False),
        images,
    ),
}

FAMILIES = families(NETWORKS)
