"""Sound: networks on waveforms and on spectrograms, of ``transformers``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.conformance.family import SAMPLES, Family, Problem, noise, part
from tests.conformance.from_config import TINY, model_of, targets

_SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "num_labels": 3,
    "vocab_size": 50,
    "pad_token_id": 0,
    "classifier_proj_size": 16,
}
_WAVE = _SIZE | {
    "conv_dim": [8, 8, 8],
    "conv_stride": [5, 4, 2],
    "conv_kernel": [10, 4, 3],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 3,
    "apply_spec_augment": False,
}
_SPEECH = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 40,
    "num_mel_bins": 8,
    "max_target_positions": 16,
    "hidden_size": None,
    "num_hidden_layers": None,
    "num_attention_heads": None,
    "decoder_start_token_id": 1,
    "num_key_value_heads": None,
    "head_dim": None,
    "apply_spec_augment": False,
}
FRAMES, LENGTHS = 32, (32, 20, 12, 28, 24)


def waves(steps: int = 800) -> dict[str, Tensor]:
    """Waveforms of different lengths, padded with silence and masked."""
    mask = torch.zeros(SAMPLES, steps, dtype=torch.long)
    for row, length in enumerate(LENGTHS):
        mask[row, : length * steps // FRAMES] = 1
    return {"input_values": noise(SAMPLES, steps) * mask, "attention_mask": mask}


def frames(features: int, *, mask: bool = True) -> dict[str, Tensor]:
    """Frames of features, (N, frames, features), and a mask."""
    kept = torch.tensor([[int(t < length) for t in range(FRAMES)] for length in LENGTHS])
    inputs = {"input_features": noise(SAMPLES, FRAMES, features)}
    return inputs | ({"attention_mask": kept} if mask else {})


WAVES: dict[str, dict[str, Any]] = {
    "data2vec-audio": _WAVE | {"conv_pos_kernel_size": 3, "num_conv_pos_embeddings": 2},
    "hubert": _WAVE,
    "sew": _WAVE | {"squeeze_factor": 2},
    "sew-d": _WAVE | {"squeeze_factor": 2, "position_buckets": 8, "max_position_embeddings": 64},
    "unispeech": _WAVE,
    "unispeech-sat": _WAVE,
    "wav2vec2": _WAVE,
    "wav2vec2-conformer": _WAVE | {"conv_depthwise_kernel_size": 3},
    "wavlm": _WAVE | {"num_buckets": 8, "max_bucket_distance": 16},
}

FRAMED: dict[str, tuple[str, dict[str, Any], Callable[[], dict[str, Any]]]] = {
    "audio-spectrogram-transformer": (
        "AutoModelForAudioClassification",
        _SIZE | {"patch_size": 8, "frequency_stride": 4, "time_stride": 4, "max_length": FRAMES, "num_mel_bins": 16},
        lambda: {"input_values": noise(SAMPLES, FRAMES, 16)},
    ),
    "wav2vec2-bert": (
        "AutoModelForAudioClassification",
        _SIZE | {"feature_projection_input_dim": 8, "conv_depthwise_kernel_size": 3, "apply_spec_augment": False},
        lambda: frames(8),
    ),
    "whisper": (
        "AutoModelForSpeechSeq2Seq",
        TINY | _SPEECH | {"max_source_positions": FRAMES // 2, "begin_suppress_tokens": []},
        lambda: {"input_features": noise(SAMPLES, 8, FRAMES), "decoder_input_ids": targets()},
    ),
    "whisper classifier": (
        "AutoModelForAudioClassification",
        TINY | _SPEECH | {"max_source_positions": FRAMES // 2, "begin_suppress_tokens": [], "classifier_proj_size": 16},
        lambda: {"input_features": noise(SAMPLES, 8, FRAMES)},
    ),
    "speech_to_text": (
        "AutoModelForSpeechSeq2Seq",
        TINY
        | _SPEECH
        | {
            "input_feat_per_channel": 8,
            "conv_channels": 16,
            "conv_kernel_sizes": [3, 3],
            "num_conv_layers": 2,
            "max_source_positions": 64,
        },
        lambda: frames(8) | {"decoder_input_ids": targets()},
    ),
    "moonshine": (
        "AutoModelForSpeechSeq2Seq",
        TINY
        | {
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "num_hidden_layers": None,
            "num_attention_heads": None,
            "num_key_value_heads": None,
            "head_dim": None,
            "decoder_start_token_id": 1,
        },
        lambda: {"input_values": noise(SAMPLES, 2400), "decoder_input_ids": targets()},
    ),
    "parakeet_encoder": (
        "AutoModel",
        _SIZE
        | {
            "num_mel_bins": 16,
            "subsampling_conv_channels": 8,
            "conv_kernel_size": 3,
            "subsampling_factor": 4,
            "max_position_embeddings": 64,
            "num_key_value_heads": 4,
        },
        lambda: frames(16),
    ),
}

FAST = {"wav2vec2", "whisper"}


def _wave(name: str, auto: str = "AutoModelForAudioClassification") -> Family:
    return Family(
        "audio",
        name,
        lambda: Problem(model_of(auto, name, WAVES[name], {}), waves(), part("logits")),
        name in FAST,
    )


def _framed(name: str) -> Family:
    auto, settings, inputs = FRAMED[name]
    field = "last_hidden_state" if auto == "AutoModel" else "logits"
    return Family(
        "audio",
        name,
        lambda: Problem(model_of(auto, name.partition(" ")[0], settings, {}), inputs(), part(field)),
        name in FAST,
    )


FAMILIES = [*map(_wave, WAVES), *map(_framed, FRAMED)]
