"""What the papers state, by table: nothing here was measured or computed by this project.

Harlap et al., "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", arXiv 1806.03377v1 (2018), and Narayanan et al.,
"PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, DOI 10.1145/3341301.3359646.
"""
from typing import NamedTuple

CLUSTERS = {"A": "Titan X (12 GB), a machine each, 25 Gb/s Ethernet", "B": "V100 (16 GB), a machine each, 10 Gb/s Ethernet"}


class Row(NamedTuple):
    """Of arXiv 1806.03377, Table 1 (Section 5.2): times to the advertised accuracy."""
    network: str
    machines: int
    cluster: str
    data_parallel: float  # speedup of data parallelism (BSP) over one machine
    plan: str  # replicas of the stages
    pipedream: float  # speedup over one machine
    over_data_parallel: float
    less_communication: int  # percent


TABLE_1 = [
    Row("VGG-16", 4, "A", 1.47, "2-1-1", 3.14, 2.13, 90),
    Row("VGG-16", 8, "A", 2.35, "7-1", 7.04, 2.99, 95),
    Row("VGG-16", 16, "A", 3.28, "9-5-1-1", 9.86, 3.00, 91),
    Row("VGG-16", 8, "B", 1.36, "7-1", 6.98, 5.12, 95),
]

# The same paper, Section 5.2: throughput over data parallelism on 8 machines of cluster B.
THROUGHPUT_8B = {"AlexNet": 6.78, "ResNet-50": 1.21}
# SOSP 2019, abstract: the largest speedup to accuracy over data parallelism.
SOSP_LARGEST = 5.3
