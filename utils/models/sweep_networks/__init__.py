"""The architectures of sweep.py: torchvision's and transformers' from their constructors, small, and some written here.

Every function returns a Case. Weights are random; nothing is downloaded. Modules are made by functions, because the
packages are imported only where a case needs them. The order of the imports is that of the table.
"""
from .case import NETWORKS, Case
from . import vision, language, recurrent, convolutional, others

__all__ = ["NETWORKS", "Case"]
