//! Measurements of real networks for testing the choice of a split.

/// Splits of a network: seconds on the host and on the trainer for a batch of 8, using a single core each,
/// and bytes per batch with cuts in f16. Measured with `frostline plan --json` on 2026-11-23.
pub(super) const NETWORKS: [&[(&str, f64, f64, f64)]; 6] = [
    // AlexNet, classifier.2
    &[
        ("none", 0.0004, 0.1067, 895e3),
        ("input", 0.0141, 0.0932, 1206e3),
        ("features.2", 0.0199, 0.0869, 747e3),
        ("features.5", 0.0379, 0.0694, 520e3),
        ("features.12", 0.0653, 0.0416, 148e3),
        ("classifier.2", 0.0741, 0.0324, 66e3),
    ],
    // ResNet18, layer4.0
    &[
        ("none", 0.0004, 0.1819, 895e3),
        ("input", 0.0143, 0.1681, 1206e3),
        ("layer2.0", 0.0689, 0.1120, 1606e3),
        ("layer2.1", 0.0862, 0.0956, 1606e3),
        ("layer3.1", 0.1166, 0.0654, 804e3),
        ("layer4.0", 0.1310, 0.0503, 402e3),
    ],
    // ViT-B/16, the last block
    &[
        ("none", 0.0007, 1.5045, 895e3),
        ("input", 0.0145, 1.4886, 1206e3),
        ("layer_3", 0.9207, 0.9834, 2421e3),
        ("layer_6", 1.5750, 0.6085, 2421e3),
        ("layer_11", 2.8642, 0.0019, 2421e3),
    ],
    // DenseNet121, features.norm5
    &[
        ("none", 0.0005, 0.5582, 895e3),
        ("input", 0.0165, 0.5444, 1206e3),
        ("transition1", 0.3463, 0.2951, 1606e3),
        ("transition2", 0.3661, 0.1550, 804e3),
        ("transition3", 0.3762, 0.0092, 402e3),
        ("norm5", 0.3791, 0.0003, 804e3),
    ],
    // ResNet50, avgpool
    &[
        ("none", 0.0007, 0.3407, 895e3),
        ("input", 0.0142, 0.3260, 1206e3),
        ("layer2.3", 0.1641, 0.1913, 6423e3),
        ("layer3.2", 0.2369, 0.1258, 3212e3),
        ("layer4.0", 0.3357, 0.0394, 1606e3),
        ("avgpool", 0.3784, 0.0, 33e3),
    ],
    // VGG11, classifier.1
    &[
        ("none", 0.0005, 0.8774, 895e3),
        ("input", 0.0143, 0.8618, 1206e3),
        ("features.10", 0.4089, 0.4899, 3212e3),
        ("features.15", 0.6868, 0.2165, 1606e3),
        ("features.20", 0.7891, 0.0791, 402e3),
        ("classifier.1", 0.8253, 0.0380, 66e3),
    ],
];

/// Results of `grid --quick` for a network and a link.
pub(super) struct Cell {
    /// Name of the network and link rate in Mbit/s.
    pub(super) name: &'static str,
    /// Seconds per batch on host, link and trainer, and the measured seconds per iteration.
    pub(super) splits: &'static [(&'static str, f64, f64, f64, f64)],
}

/// Two benchmark runs, on 2026-11-22 and 2026-11-23. Cells with only a single candidate in addition to `none`
/// are omitted.
///
/// The link time is the measured number of bytes divided by the rate. The plans only contained the seconds
/// per iteration. The times on host and trainer are therefore taken from [`NETWORKS`] and multiplied by a
/// factor per run and tier, so that the slowest tier matches the printed value (to 2 % in the median).
pub(super) const CELLS: [Cell; 12] = [
    Cell {
        name: "alexnet 5",
        splits: &[
            ("classifier.2", 0.105, 0.088, 0.040, 0.120),
            ("features.12", 0.093, 0.142, 0.051, 0.161),
            ("none", 0.001, 1.402, 0.131, 1.430),
        ],
    },
    Cell {
        name: "alexnet 50",
        splits: &[
            ("features.2", 0.028, 0.087, 0.107, 0.112),
            ("features.5", 0.054, 0.083, 0.085, 0.117),
            ("features.12", 0.093, 0.047, 0.051, 0.117),
            ("classifier.2", 0.105, 0.021, 0.040, 0.124),
            ("none", 0.001, 0.140, 0.131, 0.139),
        ],
    },
    Cell {
        name: "alexnet 500",
        splits: &[
            ("features.5", 0.054, 0.017, 0.085, 0.093),
            ("features.2", 0.028, 0.024, 0.107, 0.101),
            ("input", 0.020, 0.019, 0.114, 0.105),
            ("classifier.2", 0.105, 0.002, 0.040, 0.114),
            ("features.12", 0.093, 0.005, 0.051, 0.116),
            ("none", 0.001, 0.014, 0.131, 0.126),
        ],
    },
    Cell {
        name: "resnet18 50",
        splits: &[
            ("layer2.0", 0.096, 0.119, 0.131, 0.169),
            ("layer2.1", 0.119, 0.156, 0.112, 0.175),
            ("layer3.1", 0.162, 0.129, 0.077, 0.196),
            ("layer4.0", 0.182, 0.129, 0.059, 0.220),
            ("none", 0.001, 0.140, 0.214, 0.238),
            ("input", 0.020, 0.193, 0.197, 0.257),
        ],
    },
    Cell {
        name: "resnet18 500",
        splits: &[
            ("layer2.0", 0.096, 0.051, 0.131, 0.143),
            ("layer2.1", 0.119, 0.051, 0.112, 0.167),
            ("layer3.1", 0.162, 0.026, 0.077, 0.189),
            ("layer4.0", 0.182, 0.013, 0.059, 0.201),
            ("none", 0.001, 0.014, 0.214, 0.223),
            ("input", 0.020, 0.019, 0.197, 0.264),
        ],
    },
    Cell {
        name: "alexnet 5",
        splits: &[
            ("classifier.2", 0.088, 0.064, 0.031, 0.152),
            ("features.12", 0.078, 0.149, 0.040, 0.241),
            ("none", 0.000, 1.466, 0.103, 1.489),
        ],
    },
    Cell {
        name: "alexnet 50",
        splits: &[
            ("features.5", 0.045, 0.064, 0.067, 0.075),
            ("features.2", 0.024, 0.077, 0.084, 0.091),
            ("classifier.2", 0.088, 0.021, 0.031, 0.115),
            ("none", 0.000, 0.147, 0.103, 0.116),
            ("features.12", 0.078, 0.047, 0.040, 0.249),
        ],
    },
    Cell {
        name: "alexnet 500",
        splits: &[
            ("features.5", 0.045, 0.017, 0.067, 0.070),
            ("features.2", 0.024, 0.024, 0.084, 0.087),
            ("input", 0.017, 0.019, 0.090, 0.093),
            ("features.12", 0.078, 0.005, 0.040, 0.097),
            ("classifier.2", 0.088, 0.002, 0.031, 0.105),
            ("none", 0.000, 0.015, 0.103, 0.106),
        ],
    },
    Cell {
        name: "resnet18 50",
        splits: &[
            ("layer2.0", 0.077, 0.123, 0.106, 0.125),
            ("layer2.1", 0.096, 0.157, 0.091, 0.166),
            ("none", 0.000, 0.147, 0.172, 0.182),
            ("input", 0.016, 0.193, 0.159, 0.200),
            ("layer4.0", 0.146, 0.129, 0.048, 0.245),
            ("layer3.1", 0.130, 0.129, 0.062, 0.259),
        ],
    },
    Cell {
        name: "resnet18 500",
        splits: &[
            ("layer2.0", 0.077, 0.052, 0.106, 0.113),
            ("layer2.1", 0.096, 0.052, 0.091, 0.157),
            ("layer3.1", 0.130, 0.026, 0.062, 0.158),
            ("input", 0.016, 0.019, 0.159, 0.162),
            ("layer4.0", 0.146, 0.013, 0.048, 0.167),
            ("none", 0.000, 0.015, 0.172, 0.177),
        ],
    },
    Cell {
        name: "vit_b_16 50",
        splits: &[
            ("layer_3", 0.503, 0.843, 0.956, 1.175),
            ("layer_6", 0.860, 0.843, 0.592, 1.309),
            ("layer_11", 1.564, 0.844, 0.002, 1.634),
            ("input", 0.008, 0.210, 1.447, 1.688),
            ("none", 0.000, 0.160, 1.463, 1.695),
        ],
    },
    Cell {
        name: "vit_b_16 500",
        splits: &[
            ("layer_6", 0.860, 0.083, 0.592, 0.925),
            ("layer_3", 0.503, 0.083, 0.956, 1.016),
            ("layer_11", 1.564, 0.083, 0.002, 1.538),
            ("none", 0.000, 0.016, 1.463, 1.574),
            ("input", 0.008, 0.021, 1.447, 1.663),
        ],
    },
];
