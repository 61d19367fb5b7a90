"""Models of transformers, from small configurations."""
import dataclasses

import torch
from torch import nn

from .case import Case, network, tokens


class Output(nn.Module):
    """One tensor of what a model of transformers returns, as people wrap it for export."""

    def __init__(self, model, output, *names, **fixed):
        super().__init__()
        self.model, self.output, self.names, self.fixed = model, output, names, fixed

    def forward(self, *inputs):
        return getattr(self.model(**dict(zip(self.names, inputs)), **self.fixed), self.output)


ENCODER = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=64,
               max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
DECODER = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=64,
               max_position_embeddings=32, attention_dropout=0.0, use_cache=False)
GROUPED = dict(DECODER, num_attention_heads=4, num_key_value_heads=2)


def language(kind, config, output="logits", inputs=None, head="ForCausalLM", fixed=None, **more):
    """A model of transformers from its configuration: `kind` is the prefix of its classes."""
    import transformers
    config = getattr(transformers, kind + "Config")(pad_token_id=0, **config)
    model = getattr(transformers, kind + head)(config)
    inputs = inputs or tokens()
    loss = more.pop("loss", "mse" if output == "last_hidden_state" else "ce")
    return Case(Output(model, output, *inputs, **(fixed or {})), inputs, loss, **more)


def with_mask(**more):
    inputs = tokens(**more)
    mask = torch.ones_like(inputs["input_ids"])
    mask[0, -3:] = 0
    return {**inputs, "attention_mask": mask}


@network("BERT, masked words")
def bert():
    return language("Bert", ENCODER, head="ForMaskedLM")


@network("BERT, sequences, attention mask")
def bert_mask():
    return language("Bert", ENCODER, head="ForSequenceClassification", inputs=with_mask())


@network("BERT, masked words, fresh")
def bert_fresh():
    return language("Bert", ENCODER, head="ForMaskedLM", fresh=True)


@network("BERT, masked words, symbolic batch")
def bert_dynamic():
    return language("Bert", ENCODER, head="ForMaskedLM", dynamic=True)


@network("RoBERTa")
def roberta():
    return language("Roberta", ENCODER, head="ForMaskedLM")


@network("DistilBERT")
def distilbert():
    config = dict(dim=32, n_layers=2, n_heads=2, hidden_dim=64, vocab_size=64, max_position_embeddings=32, dropout=0.0,
                  attention_dropout=0.0)
    return language("DistilBert", config, head="ForMaskedLM")


@network("ALBERT")
def albert():
    return language("Albert", dict(ENCODER, embedding_size=16), head="ForMaskedLM")


@network("ELECTRA")
def electra():
    return language("Electra", dict(ENCODER, embedding_size=16), head="ForTokenClassification")


@network("DeBERTa-v2")
def deberta():
    config = dict(ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, norm_rel_ebd="layer_norm",
                  share_att_key=True)
    return language("DebertaV2", config, head="ForTokenClassification")


@network("ModernBERT")
def modernbert():
    config = dict(DECODER, global_attn_every_n_layers=2, local_attention=8, embedding_dropout=0.0, mlp_dropout=0.0)
    config.pop("use_cache")
    return language("ModernBert", config, head="ForMaskedLM")


@network("MPNet")
def mpnet():
    return language("MPNet", ENCODER, head="ForMaskedLM")


@network("Funnel-like pooled BERT (CLS)")
def bert_pooled():
    return language("Bert", ENCODER, head="Model", output="pooler_output", loss="mse")


@network("GPT-2")
def gpt2():
    config = dict(n_embd=32, n_layer=2, n_head=2, vocab_size=64, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0,
                  attn_pdrop=0.0, use_cache=False)
    return language("GPT2", config, head="LMHeadModel")


@network("GPT-2, symbolic batch")
def gpt2_dynamic():
    return dataclasses.replace(gpt2(), dynamic=True)


@network("OPT")
def opt():
    config = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, ffn_dim=64, vocab_size=64, dropout=0.0,
                  max_position_embeddings=32, word_embed_proj_dim=32, use_cache=False)
    return language("OPT", config)


@network("GPT-NeoX")
def gpt_neox():
    return language("GPTNeoX", dict(DECODER, hidden_dropout=0.0))


@network("BLOOM")
def bloom():
    return language("Bloom", dict(hidden_size=32, n_layer=2, n_head=2, vocab_size=64, use_cache=False))


@network("Falcon")
def falcon():
    return language("Falcon", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=64, use_cache=False))


@network("Phi")
def phi():
    return language("Phi", DECODER)


@network("Llama")
def llama():
    return language("Llama", GROUPED)


@network("Mistral")
def mistral():
    return language("Mistral", dict(GROUPED, sliding_window=4))


@network("Mixtral (experts)")
def mixtral():
    return language("Mixtral", dict(GROUPED, num_local_experts=2, num_experts_per_tok=1))


@network("Qwen2")
def qwen2():
    return language("Qwen2", GROUPED)


@network("Qwen3")
def qwen3():
    return language("Qwen3", dict(GROUPED, head_dim=8))


@network("Gemma")
def gemma():
    return language("Gemma", dict(GROUPED, head_dim=8))


@network("Mamba")
def mamba():
    return language("Mamba", dict(hidden_size=16, num_hidden_layers=1, vocab_size=32, state_size=4, use_cache=False),
                    inputs=tokens(32, 4))


@network("T5")
def t5():
    config = dict(d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, vocab_size=64, dropout_rate=0.0,
                  decoder_start_token_id=0, use_cache=False)
    inputs = {**tokens(), "decoder_input_ids": torch.randint(2, 64, (4, 6))}
    return language("T5", config, head="ForConditionalGeneration", inputs=inputs)


@network("T5 encoder")
def t5_encoder():
    config = dict(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, vocab_size=64, dropout_rate=0.0)
    return language("T5", config, head="EncoderModel", output="last_hidden_state")


@network("BART")
def bart():
    config = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
                  encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=64, dropout=0.0, max_position_embeddings=32, use_cache=False)
    inputs = {**tokens(), "decoder_input_ids": torch.randint(2, 64, (4, 6))}
    return language("Bart", config, head="ForConditionalGeneration", inputs=inputs)


@network("Whisper encoder")
def whisper():
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder
    config = WhisperConfig(d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=64, num_mel_bins=16,
                           max_source_positions=8, dropout=0.0)
    return Case(Output(WhisperEncoder(config), "last_hidden_state", "input_features"),
                {"input_features": torch.randn(4, 16, 16)}, "mse", flags=("--freeze=embed_positions",))  # requires_grad=False


@network("wav2vec 2.0")
def wav2vec2():
    config = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, conv_dim=(16, 16),
                  conv_kernel=(6, 3), conv_stride=(4, 2), num_feat_extract_layers=2, num_conv_pos_embeddings=8,
                  num_conv_pos_embedding_groups=2, hidden_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0,
                  final_dropout=0.0, activation_dropout=0.0, layerdrop=0.0, mask_time_prob=0.0, vocab_size=16)
    return language("Wav2Vec2", config, head="ForCTC", inputs={"input_values": torch.randn(4, 160)})


def vision_transformer(kind, head="ForImageClassification", **config):
    image = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32,
                 patch_size=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=10)
    return language(kind, {**image, **config}, head=head, inputs={"pixel_values": torch.randn(4, 3, 32, 32)})


@network("ViT of transformers")
def hf_vit():
    return vision_transformer("ViT")


@network("DeiT")
def deit():
    return vision_transformer("DeiT")


@network("DINOv2")
def dinov2():
    return vision_transformer("Dinov2")


@network("Swin of transformers")
def hf_swin():
    config = dict(embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, patch_size=2, image_size=16, drop_path_rate=0.0, num_labels=10)
    return language("Swin", config, head="ForImageClassification", inputs={"pixel_values": torch.randn(4, 3, 16, 16)})


@network("ConvNeXt of transformers")
def hf_convnext():
    config = dict(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, num_labels=10, drop_path_rate=0.0, layer_scale_init_value=0.5)
    return language("ConvNext", config, head="ForImageClassification", inputs={"pixel_values": torch.randn(4, 3, 32, 32)})


@network("SegFormer")
def segformer():
    config = dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2],
                  num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, hidden_dropout_prob=0.0,
                  attention_probs_dropout_prob=0.0, classifier_dropout_prob=0.0, drop_path_rate=0.0, num_labels=5)
    return language("Segformer", config, head="ForSemanticSegmentation", inputs={"pixel_values": torch.randn(4, 3, 32, 32)},
                    training=True)


@network("CLIP")
def clip():
    text = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=64,
                max_position_embeddings=16, eos_token_id=1, bos_token_id=0)
    image = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, image_size=16, patch_size=8)
    inputs = {**tokens(), "pixel_values": torch.randn(4, 3, 16, 16)}
    inputs["input_ids"][:, -1] = 1
    return language("CLIP", dict(text_config=text, vision_config=image, projection_dim=16), head="Model", inputs=inputs,
                    output="logits_per_image")
