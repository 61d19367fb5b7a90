"""Networks for images: torchvision's, and smaller ones of the same blocks."""
import torch
import torchvision
from torch import nn
from torchvision.models import densenet, inception, mobilenet, resnet, squeezenet, vgg, vision_transformer


def alexnet(full):
    """Small: the same convolutions on 64x64 images, a narrow classifier."""
    network = torchvision.models.alexnet(weights=None, num_classes=1000 if full else 10)
    if not full:
        network.avgpool = nn.AdaptiveAvgPool2d(1)
        network.classifier = nn.Sequential(nn.Dropout(0.5), nn.Linear(256, 64), nn.ReLU(), nn.Dropout(0.5),
                                           nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return network


def vgg16(full):
    if full:
        return torchvision.models.vgg16(weights=None)
    network = vgg16_of(8, 64, 10)
    network.classifier = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 10))
    return network


def vgg16_of(width, hidden, classes):
    """For images of 32x32, `width` channels in the first of its 13 convolutions, three linear layers."""
    widths = [width * factor if factor else "M" for factor in (1, 1, 0, 2, 2, 0, 4, 4, 4, 0, 8, 8, 8, 0, 8, 8, 8, 0)]
    network = vgg.VGG(vgg.make_layers(widths), num_classes=classes, init_weights=True)
    network.avgpool = nn.AdaptiveAvgPool2d(1)
    network.classifier = nn.Sequential(nn.Linear(8 * width, hidden), nn.ReLU(), nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(),
                                       nn.Linear(hidden, classes))
    return network


def resnet18(full):
    return resnet.ResNet(resnet.BasicBlock, [2] * 4) if full else resnet.ResNet(resnet.BasicBlock, [1] * 4, 10)


def resnet50(full):
    return resnet.ResNet(resnet.Bottleneck, [3, 4, 6, 3]) if full else resnet.ResNet(resnet.Bottleneck, [1] * 4, 10)


class SmallAuxiliary(nn.Module):
    """Inception's auxiliary classifier for feature maps that are too small for its own."""

    def __init__(self, channels, classes, conv_block=None):
        super().__init__()
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        return self.fc(x.mean((2, 3)))


def inception_v3(full):
    if full:
        return inception.Inception3(aux_logits=True, init_weights=False)
    blocks = [inception.BasicConv2d, inception.InceptionA, inception.InceptionB, inception.InceptionC,
              inception.InceptionD, inception.InceptionE, SmallAuxiliary]
    return inception.Inception3(num_classes=10, aux_logits=True, inception_blocks=blocks, init_weights=False)


def mobilenet_v2(full):
    return mobilenet.MobileNetV2() if full else mobilenet.MobileNetV2(num_classes=10, width_mult=0.25)


def densenet121(full):
    if full:
        return densenet.DenseNet(32, (6, 12, 24, 16), 64)
    return densenet.DenseNet(growth_rate=8, block_config=(2, 3, 3, 2), num_init_features=16, num_classes=10)


def squeezenet1_1(full):
    return squeezenet.SqueezeNet("1_1", num_classes=1000 if full else 10)


def vit_b_16(full):
    if full:
        return vision_transformer.VisionTransformer(224, 16, 12, 12, 768, 3072)
    network = vision_transformer.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10)
    # torchvision starts with a head of zeros, behind which no gradient is anything but zero.
    nn.init.normal_(network.heads.head.weight, std=0.2)
    return network
