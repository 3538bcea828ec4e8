"""Trains on activations with Lightning, using an ordinary module and a DataLoader with `batch_size=None`.

    python with_lightning.py photos
"""

import sys

import lightning
import torch
import torchvision

import frostline.torch as fl


class Classifier(lightning.LightningModule):
    def __init__(self, suffix):
        super().__init__()
        self.suffix = suffix

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.suffix(x), y)
        self.log("loss", loss, batch_size=len(y), prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("accuracy", (self.suffix(x).argmax(1) == y).float().mean(), batch_size=len(y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


def batches(data):
    return torch.utils.data.DataLoader(data, batch_size=None)


if __name__ == "__main__":
    model = torchvision.models.resnet18(weights=None, num_classes=8)
    suffix, data = fl.pushdown(model, sys.argv[1], freeze="layer4.0", batch=32)
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(Classifier(suffix), batches(data), batches(data.validation))
    print({name: round(float(value), 3) for name, value in trainer.callback_metrics.items()})
