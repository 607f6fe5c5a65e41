"""Text: encoders, decoders and encoder-decoders of ``transformers``."""

from typing import Any

from tests.conformance import reasons
from tests.conformance.family import Family
from tests.conformance.from_config import VOCABULARY, sentences, targets, text

ENCODERS = """
    albert bert big_bird camembert convbert data2vec-text deberta deberta-v2 electra ernie esm eurobert flaubert fnet
    gte ibert jina_embeddings_v3 layoutlm longformer markuplm megatron-bert mobilebert modernbert mpnet nomic_bert
    nystromformer rembert roberta roberta-prelayernorm roformer tapas ultrabert xlm xlm-roberta xlm-roberta-xl
    distilbert funnel roc_bert squeezebert xlnet lilt yoso luke reformer xmod canine
""".split()

DECODERS = """
    apertus arcee beam bert-generation biogpt bitnet bloom codegen cohere cohere2 ctrl cwm diffllama doge ernie4_5
    exaone4 falcon flint gemma gemma2 gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gptj
    granite granite_swa helium hrm_text hunyuan_v1_dense hyperclovax jais2 llama ministral ministral3 mistral
    modernbert-decoder mpt nanochat nemotron olmo olmo2 olmo3 openai-gpt opt persimmon phi phi3 qwen2 qwen3 seed_oss
    smollm3 stablelm starcoder2 trocr vaultgemma cpmant minicpm3
""".split()

_BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "decoder_start_token_id": 2,
    "hidden_size": None,
    "num_hidden_layers": None,
    "num_attention_heads": None,
}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
_T5 |= {"hidden_size": None, "num_hidden_layers": None, "num_attention_heads": None, "decoder_start_token_id": 0}

ENCODER_DECODERS: dict[str, dict[str, Any]] = {
    "bart": _BART,
    "bigbird_pegasus": _BART,
    "blenderbot": _BART,
    "blenderbot-small": _BART,
    "fsmt": _BART | {"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY, "langs": ["en", "de"]},
    "led": _BART | {"attention_window": [4, 4], "max_encoder_position_embeddings": 64},
    "longt5": _T5 | {"local_radius": 3},
    "m2m_100": _BART,
    "marian": _BART,
    "mbart": _BART,
    "mt5": _T5,
    "mvp": _BART,
    "pegasus": _BART,
    "pegasus_x": _BART | {"block_size": 4, "num_global_tokens": 2},
    "plbart": _BART,
    "t5": _T5,
    "umt5": _T5,
}

_PATHS = {"tag_pad_id": 7, "subs_pad_id": 7, "max_xpath_subs_unit_embeddings": 8}

SETTINGS: dict[str, dict[str, Any]] = {
    "codegen": {"rotary_dim": 4},
    "cpmant": {
        "prompt_types": 4,
        "prompt_length": 4,
        "segment_types": 4,
        "dim_head": 8,
        "position_bias_num_buckets": 8,
    },
    "canine": {
        "num_hash_functions": 4,
        "num_hash_buckets": 64,
        "local_transformer_stride": 8,
        "downsampling_rate": 2,
        "upsampling_kernel_size": 4,
    },
    "convbert": {"embedding_size": 16},
    "ctrl": {"dff": 40},
    "distilbert": {"hidden_dim": 40},
    "electra": {"embedding_size": 16},
    "falcon": {"head_dim": None, "num_key_value_heads": None, "ffn_hidden_size": 40},
    "funnel": {
        "block_sizes": [1, 1],
        "d_model": 32,
        "n_head": 4,
        "d_head": 8,
        "d_inner": 40,
        "num_decoder_layers": 1,
        "hidden_size": None,
        "num_hidden_layers": None,
        "num_attention_heads": None,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_heads": 4, "num_layers": 2, "window_size": 4},
    "gptj": {"rotary_dim": 4},
    "lilt": {"channel_shrink_ratio": 2, "hidden_size": 24, "num_attention_heads": 2},
    "longformer": {"attention_window": [4, 4]},
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 8},
    "markuplm": {
        "max_tree_id_unit_embeddings": 4,
        "max_xpath_tag_unit_embeddings": 8,
        "xpath_unit_hidden_size": 4,
        **_PATHS,
    },
    "minicpm3": {
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "num_key_value_heads": 4,
        "head_dim": None,
    },
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    "opt": {"ffn_dim": 40, "word_embed_proj_dim": 32},
    "reformer": {
        "axial_pos_embds": False,
        "attention_head_size": 8,
        "attn_layers": ["local", "lsh"],
        "feed_forward_size": 40,
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
        "num_buckets": 2,
        "hash_seed": 0,
        "is_decoder": False,
        "num_hidden_layers": None,
    },
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "roc_bert": {
        "pronunciation_vocab_size": 20,
        "shape_vocab_size": 20,
        "pronunciation_embed_dim": 8,
        "shape_embed_dim": 8,
    },
    "squeezebert": {"embedding_size": 32},
    "trocr": {
        "d_model": 32,
        "decoder_layers": 2,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 40,
        "hidden_size": None,
        "num_hidden_layers": None,
        "num_attention_heads": None,
    },
    "xlnet": {
        "d_model": 32,
        "n_layer": 2,
        "n_head": 4,
        "d_inner": 40,
        "max_position_embeddings": None,
        "hidden_size": None,
        "num_hidden_layers": None,
        "num_attention_heads": None,
    },
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX", "adapter_reduction_factor": 4},
}

KNOWN: dict[str, dict[str, Any]] = {
    "canine": reasons.NOT_A_NUMBER,
    "led": reasons.NAN_GRADIENT,
    "reformer": reasons.BACKWARD_RAISES,
}

PADDED_RIGHT = {"bloom", "gemma2", "granite_swa", "mpt", "vaultgemma"}

FAST = {"bert", "deberta-v2", "gpt2", "llama", "t5", "bart"}


def _encoder(name: str) -> Family:
    build = text("AutoModelForSequenceClassification", name, SETTINGS.get(name))
    return Family("text", name, build, name in FAST, **KNOWN.get(name, {}))


def _decoder(name: str) -> Family:
    # Padding on the left, as for generation, except where a query that sees no word makes NaN.
    side = "right" if name in PADDED_RIGHT else "left"
    build = text("AutoModelForCausalLM", name, SETTINGS.get(name), inputs=lambda: sentences(side))
    return Family("text", name, build, name in FAST, **KNOWN.get(name, {}))


def _encoder_decoder(name: str) -> Family:
    build = text(
        "AutoModelForSeq2SeqLM",
        name,
        ENCODER_DECODERS[name],
        inputs=lambda: sentences() | {"decoder_input_ids": targets()},
    )
    return Family("text", name, build, name in FAST, **KNOWN.get(name, {}))


FAMILIES = [*map(_encoder, ENCODERS), *map(_decoder, DECODERS), *map(_encoder_decoder, ENCODER_DECODERS)]
