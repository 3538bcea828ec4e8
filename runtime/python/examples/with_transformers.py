"""Trains on activations with Hugging Face's Trainer. Each item of the dataset is a complete batch.

    python with_transformers.py photos

With multiple processes, pass `sampling=fl.Sampling(rank=0, world=1)` to `pushdown`, because accelerate divides the batches.
"""

import sys
import tempfile

import torch
import torchvision
import transformers

import frostline.torch as fl


class Classifier(torch.nn.Module):
    """Wraps the suffix in a model that returns the loss, as the Trainer requires."""

    def __init__(self, suffix):
        super().__init__()
        self.suffix = suffix

    def forward(self, activations, labels):
        logits = self.suffix(activations)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def one_batch(items):
    ((activations, labels),) = items
    return {"activations": activations, "labels": labels}


if __name__ == "__main__":
    model = torchvision.models.resnet18(weights=None, num_classes=8)
    suffix, data = fl.pushdown(model, sys.argv[1], freeze="layer4.0", batch=32)
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            folder, num_train_epochs=2, per_device_train_batch_size=1, learning_rate=1e-3, use_cpu=True, save_strategy="no", report_to=[]
        )
        trainer = transformers.Trainer(Classifier(suffix), settings, data_collator=one_batch, train_dataset=data)
        print(trainer.train().metrics)
