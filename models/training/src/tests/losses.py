"""Prints the expected losses and gradients in losses.rs, computed by PyTorch in f64."""

import torch
from torch.nn import functional

LOGITS = torch.tensor(
    [[2.0, -1.0, 0.5], [30.0, -40.0, 3.0], [0.0, 0.1, -0.2], [-1.5, 1.5, 0.25]], dtype=torch.float64
)
CLASSES = torch.tensor([0, 1, 2, 1])
PROBABILITIES = torch.tensor(
    [[0.7, 0.3, 0.0], [0.0, 0.0, 1.0], [0.2, 0.2, 0.6], [0.5, 0.5, 0.0]], dtype=torch.float64
)
YES = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)


def entropy(target, **settings):
    return lambda logits: functional.cross_entropy(logits, target, **settings)


CASES = {
    "cross_entropy": ("smoothed(0.0, None, false)", entropy(CLASSES)),
    "label_smoothing": ("smoothed(0.1, None, false)", entropy(CLASSES, label_smoothing=0.1)),
    "class_weights": ("smoothed(0.0, Some(&WEIGHTS), false)", entropy(CLASSES, weight=WEIGHTS)),
    "smoothing_with_class_weights": (
        "smoothed(0.1, Some(&WEIGHTS), false)",
        entropy(CLASSES, weight=WEIGHTS, label_smoothing=0.1),
    ),
    "mixed_targets": ("smoothed(0.0, None, true)", entropy(PROBABILITIES)),
    "mixed_targets_smoothed_with_class_weights": (
        "smoothed(0.1, Some(&WEIGHTS), true)",
        entropy(PROBABILITIES, weight=WEIGHTS, label_smoothing=0.1),
    ),
    "binary_cross_entropy": (
        "Loss::BinaryCrossEntropy { positive_weights: None }",
        lambda logits: functional.binary_cross_entropy_with_logits(logits, YES),
    ),
    "positive_weights": (
        "Loss::BinaryCrossEntropy { positive_weights: Some(WEIGHTS.to_vec()) }",
        lambda logits: functional.binary_cross_entropy_with_logits(logits, YES, pos_weight=WEIGHTS),
    ),
    "mean_squared": ("Loss::MeanSquared", lambda logits: functional.mse_loss(logits, PROBABILITIES)),
}

for name, (words, loss) in CASES.items():
    logits = LOGITS.clone().requires_grad_()
    value = loss(logits)
    value.backward()
    gradient = ", ".join(repr(number) for number in logits.grad.flatten().tolist())
    print(f"#[test]\nfn {name}() {{\n    expect({words}, {value.item()!r}, [{gradient}]);\n}}\n")
