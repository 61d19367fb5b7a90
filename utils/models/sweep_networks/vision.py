"""Networks of torchvision, from their constructors."""
import torch
from torch import nn

from .case import Case, images, network


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
