"""Images: transformers, convolutional networks and mixtures of both, of ``transformers``."""

from collections.abc import Callable
from typing import Any

from tests.conformance.family import SAMPLES, Family, Problem, noise, part
from tests.conformance.from_config import model_of

SIZE = 32
_VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "image_size": SIZE,
    "patch_size": 8,
    "num_labels": 3,
}
_STAGES = {"num_labels": 3, "hidden_sizes": [8, 16], "depths": [1, 1]}
_RESNET = _STAGES | {"embedding_size": 8}
_SWIN = {"num_labels": 3, "image_size": SIZE, "patch_size": 4, "embed_dim": 8, "depths": [2, 1], "num_heads": [2, 2]}
_PYRAMID = {
    "num_labels": 3,
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "hidden_sizes": [8, 16],
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
    "decoder_hidden_size": 16,
    "image_size": SIZE,
}
_TOWER = {k: v for k, v in _VIT.items() if k != "num_labels"}
_TOWERS = {
    "vision_config": _TOWER,
    "text_config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
    "num_labels": 3,
}

CLASSIFIERS: dict[str, dict[str, Any]] = {
    "beit": _VIT | {"use_relative_position_bias": True, "layer_scale_init_value": 0.5},
    "bit": _RESNET | {"num_groups": 4, "layer_type": "preactivation"},
    "clip": _TOWERS,
    "convnext": _STAGES | {"num_stages": 2, "layer_scale_init_value": 0.5},
    "convnextv2": _STAGES | {"num_stages": 2},
    "data2vec-vision": _VIT | {"use_relative_position_bias": True},
    "deit": _VIT | {"architectures": ["DeiTForImageClassification"]},
    "dinov2": _VIT,
    "dinov2_with_registers": _VIT,
    "donut-swin": _SWIN | {"window_size": 4},
    "efficientnet": {
        "num_labels": 3,
        "image_size": SIZE,
        "width_coefficient": 1.0,
        "depth_coefficient": 1.0,
        "hidden_dim": 1280,
        "kernel_sizes": [3, 5],
        "in_channels": [32, 8],
        "out_channels": [8, 16],
        "strides": [1, 2],
        "num_block_repeats": [1, 2],
        "expand_ratios": [1, 4],
        "depthwise_padding": [],
    },
    "focalnet": _STAGES | {"image_size": SIZE, "embed_dim": 8, "focal_levels": [2, 2], "focal_windows": [3, 3]},
    "hgnet_v2": {
        "num_labels": 3,
        "embedding_size": 8,
        "depths": [1, 1],
        "hidden_sizes": [16, 16],
        "stem_channels": [3, 8, 8],
        "stem_strides": [2, 1, 1, 2, 1],
        "stage_in_channels": [8, 16],
        "stage_mid_channels": [8, 8],
        "stage_out_channels": [16, 16],
        "stage_num_blocks": [1, 1],
        "stage_downsample": [False, True],
        "stage_downsample_strides": [2, 2],
        "stage_light_block": [False, True],
        "stage_kernel_size": [3, 3],
        "stage_numb_of_layers": [2, 2],
    },
    "hiera": {
        "num_labels": 3,
        "embed_dim": 8,
        "image_size": [SIZE, SIZE],
        "patch_size": [7, 7],
        "patch_stride": [4, 4],
        "depths": [1, 1],
        "num_heads": [1, 2],
        "num_query_pool": 1,
        "masked_unit_size": [2, 2],
        "masked_unit_attention": [True, False],
        "patch_padding": [3, 3],
    },
    "ijepa": _VIT,
    "levit": {
        "num_labels": 3,
        "image_size": SIZE,
        "patch_size": 16,
        "hidden_sizes": [16, 16, 16],
        "depths": [1, 1, 1],
        "num_attention_heads": [2, 2, 2],
        "key_dim": [8, 8, 8],
        "mlp_ratio": [2, 2, 2],
        "architectures": ["LevitForImageClassification"],
    },
    "metaclip_2": _TOWERS,
    "mobilenet_v1": {"num_labels": 3, "image_size": SIZE, "depth_multiplier": 0.05, "min_depth": 4},
    "mobilenet_v2": {
        "num_labels": 3,
        "image_size": SIZE,
        "depth_multiplier": 0.05,
        "min_depth": 4,
        "depth_divisible_by": 4,
    },
    "mobilevit": {
        "num_labels": 3,
        "image_size": SIZE,
        "hidden_sizes": [16, 16, 16],
        "num_attention_heads": 2,
        "neck_hidden_sizes": [4, 8, 8, 8, 8, 8, 16],
        "expand_ratio": 2.0,
    },
    "mobilevitv2": {
        "num_labels": 3,
        "image_size": SIZE,
        "width_multiplier": 0.1,
        "base_attn_unit_dims": [32, 32, 32],
        "output_stride": 8,
        "n_attn_blocks": [1, 1, 1],
    },
    "poolformer": {
        "num_labels": 3,
        "depths": [1, 1],
        "hidden_sizes": [8, 16],
        "num_encoder_blocks": 2,
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "padding": [2, 1],
        "layer_scale_init_value": 0.5,
    },
    "pvt": _PYRAMID | {"patch_sizes": [4, 2], "sequence_reduction_ratios": [2, 1]},
    "pvt_v2": _PYRAMID | {"patch_sizes": [7, 3], "sr_ratios": [2, 1]},
    "regnet": _RESNET | {"groups_width": 4, "layer_type": "y"},
    "resnet": _RESNET | {"layer_type": "bottleneck"},
    "segformer": _PYRAMID | {"patch_sizes": [7, 3], "sr_ratios": [2, 1]},
    "siglip": _TOWERS,
    "swiftformer": {
        "num_labels": 3,
        "image_size": SIZE,
        "depths": [1, 1],
        "embed_dims": [8, 16],
        "mlp_ratio": 2,
        "downsamples": [True, True],
        "layer_scale_init_value": 0.5,
    },
    "swin": _SWIN | {"window_size": 4},
    "swinv2": _SWIN | {"window_size": 4},
    "textnet": {
        "num_labels": 3,
        "stem_out_channels": 8,
        "hidden_sizes": [8, 8, 16],
        "image_size": [SIZE, SIZE],
        "conv_layer_kernel_sizes": [[[3, 3]], [[3, 1], [1, 3]]],
        "conv_layer_strides": [[2], [2, 1]],
    },
    "vit": _VIT,
    "vit_msn": _VIT,
}

BACKBONES: dict[str, tuple[str, dict[str, Any]]] = {
    "aimv2_vision_model": ("AutoModel", _TOWER),
    "dinov3_convnext": ("AutoModel", {"hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1], "image_size": SIZE}),
    "dinov3_vit": ("AutoModel", _TOWER | {"num_register_tokens": 2}),
    "glpn": (
        "AutoModelForDepthEstimation",
        {
            "num_encoder_blocks": 4,
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [8, 8, 8, 16],
            "decoder_hidden_size": 8,
            "num_attention_heads": [1, 1, 2, 2],
            "sr_ratios": [4, 2, 1, 1],
            "mlp_ratios": [2, 2, 2, 2],
        },
    ),
    "dpt": (
        "AutoModelForDepthEstimation",
        _TOWER
        | {
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 8, 8],
            "fusion_hidden_size": 8,
            "reassemble_factors": [4, 2, 1, 0.5],
            "is_hybrid": False,
        },
    ),
    "pixio": ("AutoModel", _TOWER),
    "mlcd_vision_model": ("AutoModel", _TOWER),
    "siglip_vision_model": ("AutoModel", _TOWER),
    "swin2sr": (
        "AutoModelForImageToImage",
        {
            "image_size": SIZE,
            "embed_dim": 8,
            "depths": [2],
            "num_heads": [2],
            "window_size": 4,
            "upscale": 2,
        },
    ),
    "yolos": ("AutoModel", _TOWER | {"image_size": [SIZE, SIZE], "num_detection_tokens": 3}),
}
_FIELDS = {
    "AutoModel": "last_hidden_state",
    "AutoModelForDepthEstimation": "predicted_depth",
    "AutoModelForImageToImage": "reconstruction",
}

FAST = {"vit", "bit", "resnet", "convnext"}


def images(channels: int = 3, size: int = SIZE) -> dict[str, Any]:
    return {"pixel_values": noise(SAMPLES, channels, size, size)}


def _builder(auto: str, name: str, settings: dict[str, Any], field: str) -> Callable[[], Problem]:
    return lambda: Problem(model_of(auto, name, settings, {}), images(), part(field))


def _family(name: str, auto: str, settings: dict[str, Any], field: str = "logits") -> Family:
    return Family("vision", name, _builder(auto, name, settings, field), name in FAST)


FAMILIES = [
    *(_family(name, "AutoModelForImageClassification", settings) for name, settings in CLASSIFIERS.items()),
    *(_family(name, auto, settings, _FIELDS[auto]) for name, (auto, settings) in BACKBONES.items()),
]
