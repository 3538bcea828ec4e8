"""Fine-tunes the last block of a ResNet18 on a folder of images without Frostline. Each epoch computes the whole network.

    python plain.py photos/train
"""

import sys

import torch
import torchvision
from torchvision import transforms

model = torchvision.models.resnet18(weights=None, num_classes=8)
for name, parameter in model.named_parameters():
    parameter.requires_grad = name.startswith(("layer4.1", "fc"))
for name, part in model.named_modules():
    part.training = name.startswith(("layer4.1", "fc"))
normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
pixels = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), normalize])
data = torchvision.datasets.ImageFolder(sys.argv[1], transform=pixels)
batches = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, num_workers=2)
optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01, momentum=0.9)
for epoch in range(2):
    for x, y in batches:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
