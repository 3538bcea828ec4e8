"""Frostline for PyTorch: run the frozen layers of a network next to the images, and train the rest in your own loop.

    import frostline.torch as fl
    suffix, data = fl.pushdown(model, "s3://photos/clothing", hosts=[...], freeze="layer4.0", batch=64, seed=0)
    for x, y in torch.utils.data.DataLoader(data, batch_size=None): ...
"""

from frostline.torch._activations import ActivationMap, Activations, mean
from frostline.torch._augmentation import Augmentation, ColorJitter, RandAugment, RandomErasing, RandomResizedCrop
from frostline.torch._divide import FreezePoint, freeze_points
from frostline.torch._model import CannotDivide
from frostline.torch._options import Fetching, Prefix, Sampling
from frostline.torch._pixels import pixels_of
from frostline.torch._pushdown import extract, pushdown
from frostline.torch._targets import Sample, Targets, Transform

__all__ = [
    "ActivationMap",
    "Activations",
    "Augmentation",
    "CannotDivide",
    "ColorJitter",
    "Fetching",
    "FreezePoint",
    "Prefix",
    "RandAugment",
    "RandomErasing",
    "RandomResizedCrop",
    "Sample",
    "Sampling",
    "Targets",
    "Transform",
    "extract",
    "freeze_points",
    "mean",
    "pixels_of",
    "pushdown",
]
