"""The Siamese network of Appendix C.2: distances between pictures as between hidden states."""

from nearl.siamese.metric import ConcatenatingMetric, SiameseMetric, load_metric
from nearl.siamese.networks import SiameseNetwork
from nearl.siamese.settings import SiameseSettings
from nearl.siamese.training import train

__all__ = [
    "ConcatenatingMetric",
    "SiameseMetric",
    "SiameseNetwork",
    "SiameseSettings",
    "load_metric",
    "train",
]
