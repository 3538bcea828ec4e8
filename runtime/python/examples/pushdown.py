"""Fine-tunes the last block of a ResNet18 with the frozen layers executed next to the images.

Three lines differ from plain.py.

    python pushdown.py photos        # or s3://bucket/prefix, with hosts=[...]
"""

import sys

import torch
import torchvision
import frostline.torch as fl

model = torchvision.models.resnet18(weights=None, num_classes=8)
for name, parameter in model.named_parameters():
    parameter.requires_grad = name.startswith(("layer4.1", "fc"))
for name, part in model.named_modules():
    part.training = name.startswith(("layer4.1", "fc"))
model, data = fl.pushdown(model, sys.argv[1], freeze="layer4.0", batch=32)
batches = torch.utils.data.DataLoader(data, batch_size=None)
optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01, momentum=0.9)
for epoch in range(2):
    for x, y in batches:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
