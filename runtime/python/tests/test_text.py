"""Training of a text encoder from transformers, whose token ids and mask a guest reads from objects."""

import json
import os
import pathlib
import struct
import unittest

import bundled
import frostline
import onnx
import torch
import transformers

LENGTH = 16
CLASSES = 3
STEPS = 10
RATE = 0.05
MOMENTUM = 0.9


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = transformers.BertConfig(
            vocab_size=60,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=LENGTH,
        )
        self.bert = transformers.BertModel(config, add_pooling_layer=False)
        self.classifier = torch.nn.Linear(32, CLASSES)

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        return self.classifier((hidden * mask).sum(1) / mask.sum(1))


def texts(count):
    """Return the ids and the class of `count` texts of each class. Texts of a class share their vocabulary."""
    rows = []
    for label in range(CLASSES):
        for number in range(count):
            length = 4 + (label * 5 + number * 3) % (LENGTH - 3)
            rows.append(([1 + label * 15 + (place * 7 + number * 4) % 20 for place in range(length)], label))
    return rows


def batch(rows):
    ids = torch.zeros(len(rows), LENGTH, dtype=torch.int64)
    mask = torch.zeros(len(rows), LENGTH, dtype=torch.int64)
    for row, (text, _) in enumerate(rows):
        ids[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = 1
    return ids, mask, torch.tensor([label for _, label in rows])


@unittest.skipUnless("FROSTLINE_GUESTS_DIR" in os.environ, "the guests are not built; run cargo xtask guests")
class Text(bundled.Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(7)
        self.network = Classifier().eval()
        self.model = self.folder / "encoder.onnx"
        ids, mask, _ = batch(texts(1))
        names = ["input_ids", "attention_mask"]
        axes = {name: {0: "batch"} for name in [*names, "scores"]}
        options = {"input_names": names, "output_names": ["scores"], "dynamic_axes": axes, "opset_version": 17, "dynamo": False}
        torch.onnx.export(self.network, (ids, mask), self.model, **options)
        # A classifier can only be kept if the classes of its outputs are known.
        exported = onnx.load(self.model)
        names = json.dumps([f"class{label}" for label in range(CLASSES)])
        exported.metadata_props.add(key="frostline.classes", value=names)
        onnx.save(exported, self.model)
        self.rows = texts(8)
        for part, rows in [("train", self.rows), ("validation", texts(2))]:
            for number, (text, label) in enumerate(rows):
                folder = self.folder / "texts" / part / f"class{label}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{number}.ids").write_bytes(struct.pack(f"<{len(text)}I", *text))

    def losses_of_pytorch(self, frozen):
        """Train with all texts in one batch, and return the loss of each step."""
        for name, parameter in self.network.named_parameters():
            parameter.requires_grad = not name.startswith(frozen)
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=RATE, momentum=MOMENTUM)
        ids, mask, labels = batch(self.rows)
        losses = []
        for _ in range(STEPS):
            loss = torch.nn.functional.cross_entropy(self.network(ids, mask), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, {name: parameter.detach() for name, parameter in self.network.named_parameters()}

    def test_losses_and_weights_are_those_of_pytorch(self):
        events = []
        out = self.folder / "tuned.onnx"
        with frostline.Client() as client:
            client.train(
                self.model,
                self.folder / "texts",
                freeze="bert.encoder.layer.1,attention_mask",
                guest=pathlib.Path(os.environ["FROSTLINE_GUESTS_DIR"]) / "tokens.wasm",
                head="keep",
                epochs=STEPS,
                batch=len(self.rows),
                lr=RATE,
                momentum=MOMENTUM,
                weight_decay=0,
                lr_scheduler="constant",
                warmup_ratio=0,
                keep="last",
                out=out,
                runs=self.folder / "runs",
                on_event=events.append,
            )
        ours = [event["loss"] for event in events if event["event"] == "step"]
        frozen = ("bert.embeddings", "bert.encoder.layer.0", "bert.encoder.layer.1")
        theirs, weights = self.losses_of_pytorch(frozen)
        self.assertEqual(len(ours), STEPS)
        for ours_at, theirs_at in zip(ours, theirs):
            self.assertAlmostEqual(ours_at, theirs_at, delta=1e-4)
        self.assertLess(ours[-1], ours[0])

        tuned = onnx.load(out)
        self.assertEqual([value.name for value in tuned.graph.input], ["input_ids", "attention_mask"])
        onnx.checker.check_model(tuned)
        stored = {weight.name: onnx.numpy_helper.to_array(weight) for weight in tuned.graph.initializer}
        for name in ["classifier.weight", "bert.encoder.layer.2.output.LayerNorm.weight"]:
            torch.testing.assert_close(torch.from_numpy(stored[name].copy()), weights[name], atol=1e-4, rtol=1e-3)
