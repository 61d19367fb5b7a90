"""The architectures of sweep.py: torchvision's and transformers' from their constructors, small, and some written here.

Every function returns a Case. Weights are random; nothing is downloaded. Modules are made by functions, because the
packages are imported only where a case needs them.
"""
import dataclasses

import torch
from torch import nn
from torch.nn import functional

NETWORKS = {}  # name: (title, function)


@dataclasses.dataclass
class Case:
    module: nn.Module
    inputs: dict  # name: tensor, in the order of forward
    loss: str = "ce"  # of logits, or mse
    training: bool = False  # exported in training mode, because of BatchNorm
    flags: tuple = ()  # that a user has to give beside batch and loss
    batch: int = 4
    fresh: bool = False  # exported before anything was learned, with the equal parameters of initialisation
    dynamic: bool = False  # exported with a symbolic batch
    classes: int | None = None  # of the labels, where it is not the outputs' last axis


def network(title):
    def add(function):
        NETWORKS[function.__name__.replace("_", "-")] = (title, function)
        return function
    return add


def images(size=32, channels=3, batch=4):
    return {"x": torch.randn(batch, channels, size, size)}


def tokens(vocabulary=64, length=8, batch=4):
    return {"input_ids": torch.randint(2, vocabulary, (batch, length))}


class Output(nn.Module):
    """One tensor of what a model of transformers returns, as people wrap it for export."""

    def __init__(self, model, output, *names, **fixed):
        super().__init__()
        self.model, self.output, self.names, self.fixed = model, output, names, fixed

    def forward(self, *inputs):
        return getattr(self.model(**dict(zip(self.names, inputs)), **self.fixed), self.output)


# --- torchvision --------------------------------------------------------------------------------------------------

def vision(module, training=True, size=32, **more):
    return Case(module, images(size), training=training, **more)


@network("AlexNet's layers")
def alexnet():
    import torchvision
    model = torchvision.models.AlexNet(num_classes=10, dropout=0.0)
    model.features[6] = nn.Conv2d(192, 32, 3, padding=1)
    model.features[8] = nn.Conv2d(32, 32, 3, padding=1)
    model.features[10] = nn.Conv2d(32, 16, 3, padding=1)
    model.avgpool = nn.AdaptiveAvgPool2d((1, 1))
    model.classifier[1], model.classifier[4], model.classifier[6] = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 10)
    return vision(model, training=False, size=64)


def vgg(batch_norm):
    import torchvision
    model = torchvision.models.VGG(torchvision.models.vgg.make_layers([8, "M", 16, "M", 16, 16, "M"], batch_norm), 10,
                                   dropout=0.0)
    model.avgpool = nn.AdaptiveAvgPool2d((2, 2))
    model.classifier = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return model


@network("VGG")
def vgg_plain():
    return vision(vgg(False), training=False)


@network("VGG with BatchNorm")
def vgg_bn():
    return vision(vgg(True))


def residual(block, **more):
    import torchvision
    from torchvision.models.resnet import BasicBlock, Bottleneck
    blocks = {"basic": BasicBlock, "bottleneck": Bottleneck}
    model = torchvision.models.ResNet(blocks[block], [1, 1, 1, 1], num_classes=10, **more)
    model.layer3, model.layer4 = nn.Identity(), nn.Identity()  # most of the weights, and no other kind of layer
    model.fc = nn.Linear(128 * blocks[block].expansion, 10)
    return model


@network("ResNet, basic blocks")
def resnet():
    return vision(residual("basic"))


@network("ResNet, basic blocks, fresh")
def resnet_fresh():
    return vision(residual("basic"), fresh=True)


@network("ResNet, basic blocks, symbolic batch")
def resnet_dynamic():
    return vision(residual("basic"), dynamic=True)


@network("ResNet, basic blocks, inference mode")
def resnet_inference():
    return vision(residual("basic"), training=False)


@network("ResNet, bottlenecks")
def resnet_bottleneck():
    return vision(residual("bottleneck", width_per_group=8))


@network("ResNeXt")
def resnext():
    return vision(residual("bottleneck", groups=4, width_per_group=4))


@network("MobileNetV2")
def mobilenet_v2():
    import torchvision
    return vision(torchvision.models.mobilenet_v2(num_classes=10, width_mult=0.25, dropout=0.0))


@network("MobileNetV2, inference mode")
def mobilenet_v2_inference():
    import torchvision
    return vision(torchvision.models.mobilenet_v2(num_classes=10, width_mult=0.25, dropout=0.0), training=False)


@network("MobileNetV3 small")
def mobilenet_v3():
    import torchvision
    return vision(torchvision.models.mobilenet_v3_small(num_classes=10, dropout=0.0, width_mult=0.5), size=64)


@network("MnasNet")
def mnasnet():
    import torchvision
    return vision(torchvision.models.MNASNet(0.35, num_classes=10, dropout=0.0))


@network("ShuffleNetV2")
def shufflenet():
    import torchvision
    return vision(torchvision.models.ShuffleNetV2([1, 2, 1], [8, 16, 32, 64, 64], num_classes=10))


@network("SqueezeNet 1.1")
def squeezenet():
    import torchvision
    return vision(torchvision.models.squeezenet1_1(num_classes=10, dropout=0.0), training=False, size=48)


@network("DenseNet")
def densenet():
    import torchvision
    return vision(torchvision.models.DenseNet(8, (2, 2, 2), 16, num_classes=10))


@network("GoogLeNet")
def googlenet():
    import torchvision
    return vision(torchvision.models.GoogLeNet(num_classes=10, aux_logits=False, init_weights=False, dropout=0.0))


@network("EfficientNet")
def efficientnet():
    import torchvision
    from torchvision.models.efficientnet import MBConvConfig
    setting = [MBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(4, 3, 2, 8, 16, 2), MBConvConfig(4, 5, 2, 16, 24, 1)]
    return vision(torchvision.models.EfficientNet(setting, 0.0, stochastic_depth_prob=0.0, num_classes=10, last_channel=64))


@network("EfficientNetV2")
def efficientnet_v2():
    import torchvision
    from torchvision.models.efficientnet import FusedMBConvConfig, MBConvConfig
    setting = [FusedMBConvConfig(1, 3, 1, 8, 8, 1), FusedMBConvConfig(4, 3, 2, 8, 16, 1), MBConvConfig(4, 3, 2, 16, 24, 1)]
    return vision(torchvision.models.EfficientNet(setting, 0.0, stochastic_depth_prob=0.0, num_classes=10, last_channel=64))


@network("RegNet")
def regnet():
    import torchvision
    from torchvision.models.regnet import BlockParams
    params = BlockParams(depths=[1, 1], widths=[16, 32], group_widths=[8, 8], bottleneck_multipliers=[1.0, 1.0],
                         strides=[2, 2], se_ratio=0.25)
    return vision(torchvision.models.RegNet(params, num_classes=10, stem_width=8))


@network("ConvNeXt")
def convnext():
    import torchvision
    from torchvision.models.convnext import CNBlockConfig
    setting = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)]
    return vision(torchvision.models.ConvNeXt(setting, num_classes=10, layer_scale=0.5), training=False)


@network("Swin")
def swin():
    import torchvision
    model = torchvision.models.SwinTransformer([2, 2], 16, [2, 2], [2, 4], [4, 4], num_classes=10, stochastic_depth_prob=0.0)
    return vision(model, training=False)


@network("Swin V2")
def swin_v2():
    import torchvision
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformerBlockV2
    model = torchvision.models.SwinTransformer([2, 2], 16, [2, 2], [2, 4], [4, 4], num_classes=10, stochastic_depth_prob=0.0,
                                               block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2)
    return vision(model, training=False)


@network("ViT")
def vit():
    import torchvision
    return vision(torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10), training=False)


@network("MaxViT")
def maxvit():
    import torchvision
    model = torchvision.models.MaxVit((32, 32), 8, 4, [8, 16], [1, 1], 8, num_classes=10, stochastic_depth_prob=0.0)
    return vision(model)


class OneOutput(nn.Module):
    def __init__(self, model, name="out"):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x):
        return self.model(x)[self.name]


@network("LR-ASPP on MobileNetV3")
def lraspp():
    import torchvision
    backbone = torchvision.models.mobilenet_v3_small(width_mult=0.5).features
    backbone = torchvision.models._utils.IntermediateLayerGetter(backbone, {"3": "low", "11": "high"})
    return vision(OneOutput(torchvision.models.segmentation.LRASPP(backbone, 16, 48, 5, 16)), size=64)


@network("FCN head on ResNet")
def fcn():
    import torchvision
    backbone = torchvision.models._utils.IntermediateLayerGetter(residual("basic"), {"layer2": "out"})
    head = torchvision.models.segmentation.fcn.FCNHead(128, 5)
    head[3].p = 0.0
    return vision(OneOutput(torchvision.models.segmentation.FCN(backbone, head)))


@network("DeepLabV3 head")
def deeplab():
    import torchvision
    backbone = torchvision.models._utils.IntermediateLayerGetter(residual("basic"), {"layer1": "out"})
    head = torchvision.models.segmentation.deeplabv3.DeepLabHead(64, 5, (2, 4))
    head[0].project[3].p = 0.0
    return vision(OneOutput(torchvision.models.segmentation.DeepLabV3(backbone, head)))


@network("Feature pyramid")
def feature_pyramid():
    import torchvision
    from torchvision.ops import FeaturePyramidNetwork

    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torchvision.models._utils.IntermediateLayerGetter(residual("basic"), {"layer1": "a", "layer2": "b"})
            self.pyramid = FeaturePyramidNetwork([64, 128], 16)
            self.head = nn.Conv2d(16, 5, 1)

        def forward(self, x):
            return self.head(self.pyramid(self.body(x))["a"])
    return vision(Pyramid())


@network("3-D ResNet")
def r3d():
    from torchvision.models.video.resnet import BasicBlock, BasicStem, Conv3DSimple, VideoResNet
    model = VideoResNet(BasicBlock, [Conv3DSimple] * 4, [1, 1, 1, 1], BasicStem, num_classes=10)
    model.layer3, model.layer4, model.fc = nn.Identity(), nn.Identity(), nn.Linear(128, 10)
    return Case(model, {"x": torch.randn(4, 3, 4, 16, 16)}, training=True)


# --- transformers -------------------------------------------------------------------------------------------------

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
                {"input_features": torch.randn(4, 16, 16)}, "mse")


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


# --- recurrent ----------------------------------------------------------------------------------------------------

class Recurrent(nn.Module):
    def __init__(self, layer, features=16, time_axis=1):
        super().__init__()
        self.rnn, self.head, self.time_axis = layer, nn.Linear(features, 5), time_axis

    def forward(self, x):
        return self.head(self.rnn(x)[0].select(self.time_axis, -1))


def recurrent(layer, features=16, time_major=False, **more):
    x = torch.randn(*((6, 4) if time_major else (4, 6)), 8)
    flags = ("--batch-axis=x:1",) if time_major else ()
    return Case(Recurrent(layer, features, 0 if time_major else 1), {"x": x}, flags=flags, **more)


@network("LSTM")
def lstm():
    return recurrent(nn.LSTM(8, 16, batch_first=True))


@network("LSTM, time first")
def lstm_time_major():
    return recurrent(nn.LSTM(8, 16), time_major=True)


@network("LSTM, symbolic batch")
def lstm_dynamic():
    return recurrent(nn.LSTM(8, 16, batch_first=True), dynamic=True)


@network("LSTM, two layers, both directions")
def lstm_bidirectional():
    return recurrent(nn.LSTM(8, 8, 2, batch_first=True, bidirectional=True))


@network("LSTM with projection")
def lstm_projection():
    return recurrent(nn.LSTM(8, 16, batch_first=True, proj_size=4), features=4)


@network("GRU")
def gru():
    return recurrent(nn.GRU(8, 16, batch_first=True))


@network("GRU, two layers, time first")
def gru_time_major():
    return recurrent(nn.GRU(8, 16, 2), time_major=True)


@network("RNN, tanh")
def rnn():
    return recurrent(nn.RNN(8, 16, batch_first=True))


@network("RNN, ReLU, time first")
def rnn_relu():
    return recurrent(nn.RNN(8, 16, nonlinearity="relu"), time_major=True)


@network("LSTM with its state as an input")
def lstm_state():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 5)

        def forward(self, x, h, c):
            return self.head(self.rnn(x, (h, c))[0][:, -1])
    inputs = {"x": torch.randn(4, 6, 8), "h": torch.randn(1, 4, 16), "c": torch.randn(1, 4, 16)}
    return Case(Stateful(), inputs, flags=("--batch-axis=h:1", "--batch-axis=c:1"))


@network("LSTM cells in a loop of Python, a learned first state")
def lstm_cells():
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTMCell(8, 16), nn.Linear(16, 5)
            self.h, self.c = nn.Parameter(torch.randn(1, 16)), nn.Parameter(torch.randn(1, 16))

        def forward(self, x):
            h, c = self.h.expand(x.shape[0], -1), self.c.expand(x.shape[0], -1)
            for step in range(4):
                h, c = self.cell(x[:, step], (h, c))
            return self.head(h)
    return Case(Cells(), {"x": torch.randn(4, 4, 8)})


@network("Words through embedding, LSTM, tied classifier")
def tied_lstm():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.rnn = nn.Embedding(32, 16), nn.LSTM(16, 16, batch_first=True)
            self.head = nn.Linear(16, 32)
            self.head.weight = self.words.weight

        def forward(self, x):
            return self.head(self.rnn(self.words(x))[0])
    return Case(Tied(), {"x": torch.randint(0, 32, (4, 6))})


@network("CRNN (convolutions, then a GRU)")
def crnn():
    class Crnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
            self.rnn, self.head = nn.GRU(32, 8, bidirectional=True, batch_first=True), nn.Linear(16, 5)

        def forward(self, x):
            x = self.conv(x).permute(0, 3, 1, 2).flatten(2)
            return self.head(self.rnn(x)[0])
    return Case(Crnn(), {"x": torch.randn(4, 1, 8, 12)}, training=True)


# --- convolutional ------------------------------------------------------------------------------------------------

def convolution(channels, *more):
    return nn.Conv2d(3, channels, 3, padding=1), *more, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)


@network("GroupNorm")
def group_norm():
    return Case(nn.Sequential(*convolution(8, nn.GroupNorm(2, 8), nn.ReLU())), images(8))


@network("InstanceNorm with scale and shift")
def instance_norm():
    return Case(nn.Sequential(*convolution(8, nn.InstanceNorm2d(8, affine=True), nn.ReLU())), images(8))


@network("BatchNorm without running statistics")
def batch_norm_untracked():
    return Case(nn.Sequential(*convolution(8, nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU())), images(8), training=True)


@network("BatchNorm of vectors")
def batch_norm_1d():
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 5))
    return Case(model, {"x": torch.randn(16, 8)}, batch=16, training=True)


@network("Pre-activation ResNet, fresh")
def preactivation():
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.b1, self.c1 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.b2, self.c2 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, padding=1, bias=False)

        def forward(self, x):
            return x + self.c2(torch.relu(self.b2(self.c1(torch.relu(self.b1(x))))))
    return Case(nn.Sequential(*convolution(8, Block(8), Block(8))), images(8), training=True, fresh=True)


@network("Siamese, no norms")
def siamese():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

        def forward(self, a, b):
            return functional.cosine_similarity(self.tower(a), self.tower(b)).unsqueeze(1)
    return Case(Siamese(), {"a": torch.randn(4, 8), "b": torch.randn(4, 8)}, "mse")


@network("Siamese with a shared BatchNorm")
def siamese_bn():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = nn.Sequential(*convolution(8, nn.BatchNorm2d(8), nn.ReLU()))

        def forward(self, a, b):
            return self.tower(a) - self.tower(b)
    return Case(Siamese(), {"a": images(8)["x"], "b": images(8)["x"]}, "mse", training=True)


@network("U-Net")
def unet():
    def step(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down1, self.down2, self.bottom = step(3, 8), step(8, 16), step(16, 16)
            self.up2, self.up1 = nn.ConvTranspose2d(16, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
            self.out2, self.out1, self.head = step(32, 16), step(16, 8), nn.Conv2d(8, 5, 1)

        def forward(self, x):
            a = self.down1(x)
            b = self.down2(functional.max_pool2d(a, 2))
            c = self.bottom(functional.max_pool2d(b, 2))
            b = self.out2(torch.cat([self.up2(c), b], 1))
            return self.head(self.out1(torch.cat([self.up1(b), a], 1)))
    return Case(UNet(), images(16), training=True)


@network("Weight norm (temporal convolutions)")
def weight_norm():
    from torch.nn.utils.parametrizations import weight_norm as normalised
    model = nn.Sequential(normalised(nn.Conv1d(4, 8, 3, dilation=2, padding=2)), nn.ReLU(), normalised(nn.Conv1d(8, 5, 3)))
    return Case(model, {"x": torch.randn(4, 4, 12)}, "mse")


@network("Spectral norm")
def spectral_norm():
    from torch.nn.utils.parametrizations import spectral_norm as normalised
    return Case(nn.Sequential(normalised(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, 5)), {"x": torch.randn(4, 8)})


@network("Squeeze and excitation")
def squeeze_excite():
    class Gate(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 4, 1), nn.SiLU(), nn.Conv2d(4, width, 1),
                                      nn.Hardsigmoid())

        def forward(self, x):
            return x * self.gate(x)
    return Case(nn.Sequential(*convolution(8, nn.Hardswish(), Gate(8))), images(8))


@network("Autoencoder, transposed convolutions")
def autoencoder():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 8, 3, 2, 1), nn.ELU(),
                          nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh())
    return Case(model, images(16), "mse")


@network("Super-resolution (pixel shuffle)")
def pixel_shuffle():
    return Case(nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.PReLU(8), nn.Conv2d(8, 12, 3, padding=1), nn.PixelShuffle(2)),
                images(8), "mse")


@network("PReLU with one slope, ReZero gate")
def scalars():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.slope, self.second = nn.Linear(8, 8), nn.PReLU(), nn.Linear(8, 5)
            self.gate = nn.Parameter(torch.tensor(0.3))

        def forward(self, x):
            return self.second(x + self.gate * self.slope(self.first(x)))
    return Case(Gated(), {"x": torch.randn(4, 8)})


@network("Upsampling decoder, nearest and bilinear")
def upsampling():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Mish(), nn.Upsample(scale_factor=2), nn.Conv2d(8, 8, 3, padding=1),
                          nn.Softplus(), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(8, 3, 3, padding=1))
    return Case(model, images(8), "mse")


@network("Text CNN")
def text_cnn():
    class TextCnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(32, 8, padding_idx=0)
            self.convs = nn.ModuleList(nn.Conv1d(8, 8, k) for k in (2, 3, 4))
            self.head = nn.Linear(24, 5)

        def forward(self, x):
            x = self.words(x).transpose(1, 2)
            return self.head(torch.cat([torch.relu(conv(x)).amax(-1) for conv in self.convs], 1))
    return Case(TextCnn(), {"x": torch.randint(1, 32, (4, 8))})


# --- attention, experts, graphs, tables ---------------------------------------------------------------------------

@network("Transformer encoder of PyTorch")
def transformer_encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return Case(nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 5)),
                {"x": torch.randn(4, 6, 16)}, training=True)


@network("Transformer encoder of PyTorch, before norms, fresh")
def transformer_encoder_fresh():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
    return Case(nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 5)),
                {"x": torch.randn(4, 6, 16)}, training=True, fresh=True)


@network("Transformer of PyTorch, encoder and decoder")
def transformer():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
            self.head = nn.Linear(16, 5)

        def forward(self, source, target):
            mask = nn.Transformer.generate_square_subsequent_mask(6)
            return self.head(self.net(source, target, tgt_mask=mask))
    return Case(Both(), {"source": torch.randn(4, 8, 16), "goal": torch.randn(4, 6, 16)}, training=True)


@network("Attention with a learned scale, rotary positions")
def learned_scale():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 5)
            self.log_scale = nn.Parameter(torch.tensor(-0.7))
            angles = torch.arange(6)[:, None] / 100 ** (torch.arange(4) / 4)
            self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
            self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

        def turned(self, x):
            return x * self.cos + torch.cat([-x[..., 4:], x[..., :4]], -1) * self.sin

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
            scores = self.turned(q) @ self.turned(k).transpose(-1, -2) * self.log_scale.exp()
            return self.head(self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))
    return Case(Attention(), {"x": torch.randn(4, 6, 16)})


@network("Causal attention, mask as a buffer, fixed positions")
def causal():
    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.attention = nn.Embedding(32, 16), nn.MultiheadAttention(16, 2, batch_first=True)
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 32)
            self.register_buffer("mask", torch.full((6, 6), float("-inf")).triu(1))
            self.register_buffer("positions", torch.randn(6, 16))

        def forward(self, x):
            x = self.words(x) + self.positions
            y = self.norm(x)
            return self.head(x + self.attention(y, y, y, attn_mask=self.mask, need_weights=False)[0])
    return Case(Causal(), {"x": torch.randint(0, 32, (4, 6))})


@network("Mixture of experts, all computed")
def experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 3)
            self.up, self.down = nn.Parameter(torch.randn(3, 8, 16) / 4), nn.Parameter(torch.randn(3, 16, 8) / 4)
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            weight, choice = self.gate(x).softmax(-1).topk(2)
            share = torch.zeros_like(self.gate(x)).scatter(1, choice, weight)
            each = torch.relu(torch.einsum("bi,eij->bej", x, self.up))
            return self.head(torch.einsum("bej,ejk,be->bk", each, self.down, share))
    return Case(Experts(), {"x": torch.randn(4, 8)})


@network("EmbeddingBag")
def embedding_bag():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.EmbeddingBag(32, 8, mode="mean"), nn.Linear(8, 5)

        def forward(self, x):
            return self.head(self.words(x))
    return Case(Bag(), {"x": torch.randint(0, 32, (4, 6))})


@network("Factorisation of users and items")
def factorisation():
    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.items = nn.Embedding(16, 8), nn.Embedding(16, 8)
            self.bias = nn.Embedding(16, 1)

        def forward(self, user, item):
            return (self.users(user) * self.items(item)).sum(-1, keepdim=True) + self.bias(item)
    return Case(Factors(), {"user": torch.randint(0, 16, (4,)), "item": torch.randint(0, 16, (4,))}, "mse")


@network("Click prediction (DLRM)")
def dlrm():
    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(16, 8) for _ in range(3))
            self.bottom, self.top = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(14, 2)
            self.register_buffer("pairs", torch.triu_indices(4, 4, 1))

        def forward(self, dense, sparse):
            x = self.bottom(dense)
            rows = torch.stack([x, *[table(sparse[:, i]) for i, table in enumerate(self.tables)]], 1)
            products = rows @ rows.transpose(1, 2)
            return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1))
    return Case(Dlrm(), {"dense": torch.randn(4, 4), "sparse": torch.randint(0, 16, (4, 3))})


@network("Points (PointNet)")
def pointnet():
    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.each = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 16, 1))
            self.head = nn.Linear(16, 5)

        def forward(self, x):
            return self.head(self.each(x).max(-1).values)
    return Case(PointNet(), {"x": torch.randn(4, 3, 16)}, training=True)


@network("Graph convolution, dense adjacency")
def graph_dense():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 16), nn.Linear(16, 5)

        def forward(self, x, adjacency):
            x = torch.relu(adjacency @ self.first(x))
            return self.second(adjacency @ x)
    return Case(Graph(), {"x": torch.randn(4, 6, 4), "adjacency": torch.rand(4, 6, 6).softmax(-1)})


@network("Graph attention, edges gathered and scattered")
def graph_edges():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.head = nn.Linear(8, 16), nn.Linear(16, 5)
            self.register_buffer("source", torch.tensor([0, 1, 2, 3, 4, 5, 0]))
            self.register_buffer("goal", torch.tensor([1, 2, 3, 4, 5, 0, 3]))

        def forward(self, x):
            messages = torch.relu(self.message(torch.cat([x[:, self.source], x[:, self.goal]], -1)))
            summed = torch.zeros(x.shape[0], 6, 16).index_add(1, self.goal, messages)
            return self.head(summed)
    return Case(Graph(), {"x": torch.randn(4, 6, 4)})


@network("MLP, mixed activations")
def mlp():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.SELU(), nn.Linear(16, 16), nn.GLU(), nn.LayerNorm(8),
                          nn.Linear(8, 16), nn.CELU(), nn.RMSNorm(16), nn.Linear(16, 16), nn.Softsign(), nn.Linear(16, 5))
    return Case(model, {"x": torch.randn(4, 8)})


@network("MLP that ends in LogSoftmax")
def log_softmax():
    return Case(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5), nn.LogSoftmax(-1)), {"x": torch.randn(4, 8)})


@network("Bilinear and cosine features")
def bilinear():
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.pair, self.waves, self.head = nn.Bilinear(8, 8, 16), nn.Linear(16, 16), nn.Linear(32, 5)

        def forward(self, a, b):
            waves = self.waves(self.pair(a, b))
            return self.head(torch.cat([waves.cos(), waves.sin()], -1))
    return Case(Features(), {"a": torch.randn(4, 8), "b": torch.randn(4, 8)})


@network("MLP-Mixer")
def mixer():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 16, 8, 8)
            self.n1, self.n2, self.n3 = nn.LayerNorm(16), nn.LayerNorm(16), nn.LayerNorm(16)
            self.across = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
            self.within = nn.Sequential(nn.Linear(16, 32), nn.GELU(approximate="tanh"), nn.Linear(32, 16))
            self.head = nn.Linear(16, 5)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = x + self.across(self.n1(x).transpose(1, 2)).transpose(1, 2)
            x = x + self.within(self.n2(x))
            return self.head(self.n3(x).mean(1))
    return Case(Mixer(), images())


@network("Frozen backbone (requires_grad=False)")
def frozen_backbone():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))
    model[0].requires_grad_(False)
    return Case(model, {"x": torch.randn(4, 8)}, flags=("--freeze=^0[.]",))
