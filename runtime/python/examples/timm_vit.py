"""Fine-tunes a timm ViT with the first eleven blocks executed next to the images.

Three lines differ from a plain training loop.

    python timm_vit.py photos        # or s3://bucket/prefix, with hosts=[...]
"""

import sys

import timm
import torch
import frostline.torch as fl

model = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=8, drop_path_rate=0.1)
suffix, data = fl.pushdown(model, sys.argv[1], freeze="blocks.10", batch=32)
batches = torch.utils.data.DataLoader(data, batch_size=None)
optimizer = torch.optim.AdamW(suffix.parameters(), lr=1e-3)
suffix.train()
for epoch in range(2):
    for x, y in batches:
        loss = torch.nn.functional.cross_entropy(suffix(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
