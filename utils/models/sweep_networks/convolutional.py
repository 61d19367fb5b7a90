"""Convolutional networks, and layers that exporters change."""
import torch
from torch import nn
from torch.nn import functional

from .case import Case, images, network


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
