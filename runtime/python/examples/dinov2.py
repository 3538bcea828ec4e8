"""Fine-tunes the last layer of DINOv2 (transformers) with all other layers executed next to the images.

Three lines differ from a plain training loop. `labels=` and the output class work as in the model.

    python dinov2.py photos          # or s3://bucket/prefix, with hosts=[...]
"""

import sys

import torch
import transformers
import frostline.torch as fl

config = transformers.Dinov2Config(hidden_size=192, num_hidden_layers=6, num_attention_heads=3, image_size=224, num_labels=8)
model = transformers.Dinov2ForImageClassification(config)
suffix, data = fl.pushdown(model, sys.argv[1], freeze="dinov2.encoder.layer.4", batch=32)
batches = torch.utils.data.DataLoader(data, batch_size=None)
optimizer = torch.optim.AdamW(suffix.parameters(), lr=1e-3)
suffix.train()
for epoch in range(2):
    for x, y in batches:
        loss = suffix(x, labels=y).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
