"""Networks that several tensors cross at the cut."""

import copy
import dataclasses
import importlib
import importlib.util
import pathlib
import tempfile
import unittest
import unittest.mock
import warnings

import numpy
import torch
from PIL import Image
from torchvision.models import resnet
from torchvision.ops import FeaturePyramidNetwork, roi_align

import frostline
import frostline.torch as fl
import small
from frostline.torch._divide import suffix_of
from frostline.torch._model import CannotDivide

SIZE = 32
IMAGES = 12
BATCH = 4
STEPS = 10
SKIPS = ["stem", "blocks.0", "blocks.2"]


class Skips(small.Network):
    """A decoder with skip connections, as in a U-Net: `head` reads the stem, the first and the last block."""

    def __init__(self):
        super().__init__(classes=16)
        self.up = torch.nn.ConvTranspose2d(16, 16, 4, stride=4)
        self.join = torch.nn.Conv2d(48, 3, 1)

    def forward(self, x):
        stem = self.stem(x)
        first = self.blocks[0](stem)
        last = self.blocks[2](self.blocks[1](first))
        return self.join(self.up(torch.cat([stem, first, last], 1)[:, :16]).repeat(1, 3, 1, 1))


class Layers(small.Network):
    """A head that reads the outputs of several blocks, and dropout."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(48, 8)

    def forward(self, x):
        x, outputs = self.stem(x), []
        for block in self.blocks:
            x = block(x)
            outputs.append(x.mean((2, 3)))
        return self.head(torch.nn.functional.dropout(torch.cat(outputs, 1), 0.5, self.training))


@dataclasses.dataclass
class Pyramid:
    low: torch.Tensor
    high: torch.Tensor


torch.utils._pytree.register_dataclass(Pyramid)


class Branches(torch.nn.Module):
    """A backbone whose two branches stay apart, as in HRNet."""

    def __init__(self, form):
        super().__init__()
        self.low, self.high = torch.nn.Conv2d(16, 8, 3, stride=2), torch.nn.Conv2d(16, 4, 1)
        self.form = form

    def forward(self, x):
        return self.form(self.low(x), self.high(x))


FORMS = {
    "tuple": lambda low, high: (low, high),
    "list": lambda low, high: [low, high],
    "dict": lambda low, high: {"low": low, "high": high},
    "dataclass": Pyramid,
}


class Branched(small.Network):
    def __init__(self, form):
        super().__init__()
        self.branches = Branches(FORMS[form])
        self.head = torch.nn.Linear(12, 8)

    def forward(self, x):
        found = self.branches(self.stem(x))
        low, high = torch.utils._pytree.tree_leaves(found)
        return self.head(torch.cat([low.amax((2, 3)), high.mean((2, 3))], 1))


class UNet(torch.nn.Module):
    """A decoder on the four stages of a ResNet, whose output is a mask per class."""

    def __init__(self, classes=3):
        super().__init__()
        self.encoder = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1])
        self.up = torch.nn.ModuleList(torch.nn.Conv2d(deep + skip, skip, 3, padding=1) for deep, skip in ((512, 256), (256, 128), (128, 64)))
        self.masks = torch.nn.Conv2d(64, classes, 1)

    def forward(self, x):
        stages, encoder = [], self.encoder
        x = encoder.maxpool(encoder.relu(encoder.bn1(encoder.conv1(x))))
        for stage in (encoder.layer1, encoder.layer2, encoder.layer3, encoder.layer4):
            x = stage(x)
            stages.append(x)
        for up, skip in zip(self.up, stages[-2::-1], strict=True):
            x = torch.relu(up(torch.cat([torch.nn.functional.interpolate(x, skip.shape[-2:]), skip], 1)))
        return self.masks(x)


class Detector(torch.nn.Module):
    """A feature pyramid on a ResNet, and a box head on fixed proposals."""

    def __init__(self, classes=3):
        super().__init__()
        self.body = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1])
        self.pyramid = FeaturePyramidNetwork([128, 256, 512], 32)
        self.head = torch.nn.Linear(32 * 9, classes + 4)

    def forward(self, x):
        body, found = self.body, {}
        x = body.layer1(body.maxpool(body.relu(body.bn1(body.conv1(x)))))
        for number, stage in enumerate((body.layer2, body.layer3, body.layer4)):
            found[str(number)] = x = stage(x)
        levels = self.pyramid(found).values()
        boxes = torch.tensor([[4.0, 4.0, 20.0, 24.0], [0.0, 8.0, 31.0, 31.0]])
        # The exporter would fix the number of images in a list of boxes per image.
        proposals = torch.cat([torch.arange(x.shape[0]).repeat_interleave(2)[:, None].to(boxes), boxes.repeat(x.shape[0], 1)], 1)
        rois = sum(roi_align(level, proposals, 3, level.shape[-1] / SIZE) for level in levels)
        return self.head(torch.nn.functional.normalize(rois.flatten(1))).unflatten(0, (-1, 2)).mean(1)


def dinov2():
    """DINOv2 whose last four blocks are read by a linear segmentation head."""
    transformers = importlib.import_module("transformers")

    class Segmenter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            sizes = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 5, "image_size": SIZE, "patch_size": 8}
            config = transformers.Dinov2Config(**sizes, out_indices=[2, 3, 4, 5], reshape_hidden_states=True)
            self.backbone = transformers.Dinov2Backbone(config)
            self.head = torch.nn.Conv2d(4 * 24, 3, 1)

        def forward(self, x):
            return self.head(torch.cat(self.backbone(x).feature_maps, 1))

    return Segmenter()


def vit_with_adapters():
    """A ViT with LoRA in its last two blocks."""
    timm, peft = map(importlib.import_module, ("timm", "peft"))
    vit = timm.models.VisionTransformer(img_size=SIZE, patch_size=8, embed_dim=32, depth=4, num_heads=2, num_classes=3)
    adapters = peft.LoraConfig(r=4, target_modules=r"blocks\.[23]\.attn\.qkv", modules_to_save=["head"])
    return peft.get_peft_model(vit, adapters)


def made(network):
    """Return a network with fixed weights."""
    torch.manual_seed(0)
    return network().eval()


def loss_of(output, y):
    return torch.nn.functional.cross_entropy(output.flatten(2).mean(2) if output.dim() == 4 else output, y)


class Features(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.data = pathlib.Path(folder.name)
        numbers = numpy.random.default_rng(0)
        for number in range(IMAGES + 3):
            target = cls.data / ("validation" if number >= IMAGES else "train") / f"class{number % 3}" / f"{number}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(numbers.integers(0, 255, (SIZE, SIZE, 3), dtype=numpy.uint8)).save(target)
        warnings.simplefilter("ignore")
        cls.client = frostline.Client()
        cls.addClassCleanup(cls.client.close)

    def divide(self, model, freeze, **options):
        common = {"client": self.client, "batch": BATCH, "size": SIZE, "pixels": frostline.pixels(SIZE, SIZE), **options}
        suffix, data = fl.pushdown(model, self.data, freeze=freeze, **common)
        self.addCleanup(data.close)
        return suffix, data

    def images(self, model):
        """Return a data set with the pixels of the same batches."""
        _, data = self.divide(model, "none")
        return data

    def assert_trains_alike(self, network, freeze, **options):
        """Compare `STEPS` steps of the suffix with those of the whole network, whose frozen layers stay in evaluation mode."""
        whole, model = made(network), made(network)
        # The layers of a model with adapters, by their names in the suffix.
        whole = whole.get_base_model() if hasattr(whole, "get_base_model") else whole
        suffix, data = self.divide(model, freeze, **options)
        pixels = self.images(whole)
        names = [name for name, weight in suffix.named_parameters() if weight.requires_grad]
        frozen = [whole.get_submodule(path) for path in suffix.silent]
        theirs = dict(whole.named_parameters())
        weights = [(part, copy.deepcopy(part.state_dict())) for part in (suffix, whole)]
        for training in (False, True):
            for part, state in weights:
                part.load_state_dict(state)
            optimizers = [torch.optim.SGD([parameters[name] for name in names], 0.05) for parameters in (dict(suffix.named_parameters()), theirs)]
            steps = 0
            while steps < STEPS:
                for (features, y), (x, same) in zip(data, pixels, strict=True):
                    self.assertTrue(torch.equal(y, same))
                    whole.train(training)
                    suffix.train(training)
                    for part in frozen:
                        part.eval()
                    losses = []
                    for optimizer, run in zip(optimizers, (lambda: suffix(*(features if isinstance(features, tuple) else [features])), lambda: whole(x)), strict=True):
                        torch.manual_seed(steps)
                        optimizer.zero_grad()
                        losses.append(loss_of(run(), y))
                        losses[-1].backward()
                    self.assertAlmostEqual(losses[0].item(), losses[1].item(), delta=1e-4 * max(1, losses[1].item()))
                    ours = dict(suffix.named_parameters())
                    self.assertEqual(*([name for name in names if parameters[name].grad is not None] for parameters in (ours, theirs)))
                    used = [name for name in names if theirs[name].grad is not None]
                    largest = max(float(theirs[name].grad.abs().max()) for name in used)
                    for name in used:
                        self.assertLessEqual(float((ours[name].grad - theirs[name].grad).abs().max()), 1e-3 * largest, name)
                    for optimizer in optimizers:
                        optimizer.step()
                    steps += 1
        return suffix, data

    def test_skip_connections(self):
        for split in ("auto", "none", "stem.0", ",".join(SKIPS)):
            with self.subTest(split):
                suffix, data = self.assert_trains_alike(Skips, SKIPS, split=split)
                self.assertEqual(suffix.row_shapes, ((16, 7, 7),) * 3)
                self.assertIn("rows 16x7x7 and 16x7x7 and 16x7x7", repr(data))

    def test_encodings_round_all_tensors(self):
        for encoding, off in (("f16", 1e-3), ("int8", 2e-2)):
            pairs = [iter(self.divide(made(Skips), SKIPS, encoding=each)[1]) for each in ("f32", encoding)]
            (exact, _), (rounded, _) = map(next, pairs)
            for one, other in zip(exact, rounded, strict=True):
                self.assertLess(float((one - other).abs().max()), off * float(max(each.abs().max() for each in exact)))

    def test_layers_compute_in_int8(self):
        int8 = fl.Prefix(precision="int8", allow_imprecise=True)
        _, exact = self.divide(made(Skips), SKIPS)
        for split in ("auto", "none"):
            exact.set_epoch(0)
            _, data = self.divide(made(Skips), SKIPS, split=split, prefix=int8)
            (ours, _), (theirs, _) = next(iter(data)), next(iter(exact))
            for one, other in zip(ours, theirs, strict=True):
                self.assertFalse(torch.equal(one, other))
                self.assertGreater(torch.nn.functional.cosine_similarity(one.flatten(1), other.flatten(1)).min(), 0.99)

    def test_outputs_of_several_layers_in_any_order(self):
        self.assert_trains_alike(Layers, ["blocks.2", "blocks.0", "blocks.1"])

    def test_a_module_with_several_output_tensors(self):
        for form in FORMS:
            with self.subTest(form):
                suffix, _ = self.assert_trains_alike(lambda form=form: Branched(form), "branches")
                self.assertEqual(suffix.row_shapes, ((8, 3, 3), (4, 7, 7)))

    def test_each_tensor_is_extracted_to_its_own_column(self):
        model = made(lambda: Branched("tuple"))
        keys = [value.key for value in self.client.objects(self.data)][:4]
        reader = fl.extract(model, "branches", self.data, keys=keys, client=self.client, pixels=frostline.pixels(SIZE, SIZE), size=SIZE)
        table = reader.read_all()
        columns = [name for name in table.column_names if name.startswith("activation")]
        self.assertEqual(table.column_names, ["key", "split", "label", *columns])
        pixels = self.client.extract(self.data, None, "none", keys=keys, parameters=frostline.pixels(SIZE, SIZE)).read_all()
        images = torch.from_numpy(pixels["activation"].combine_chunks().to_numpy_ndarray())
        with torch.no_grad():
            expected = torch.utils._pytree.tree_leaves(model.branches(model.stem(images)))
        self.assertEqual(len(columns), len(expected))
        for name, tensor in zip(columns, expected, strict=True):
            found = torch.from_numpy(table[name].combine_chunks().to_numpy_ndarray())
            torch.testing.assert_close(found, tensor, rtol=1e-4, atol=1e-5)

    def test_a_u_net_on_a_resnet(self):
        self.assert_trains_alike(UNet, [f"encoder.layer{number}" for number in range(1, 5)])

    def test_frozen_layers_are_split_at_several_tensors(self):
        freeze = [f"encoder.layer{number}" for number in range(1, 5)]
        _, data = self.assert_trains_alike(UNet, freeze, split="encoder.layer1,encoder.layer2")
        self.assertEqual(data.source.split.count(","), 1)
        with self.assertRaisesRegex(ValueError, "no cut"):
            self.divide(made(UNet), freeze, split="encoder.layer3,encoder.layer1")

    def test_a_detector_with_a_feature_pyramid(self):
        self.assert_trains_alike(Detector, ["body.layer2", "body.layer3", "body.layer4"])

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_dinov2_with_a_linear_segmentation_head(self):
        self.assert_trains_alike(dinov2, [f"backbone.encoder.layer.{number}" for number in range(1, 5)])

    @unittest.skipUnless(importlib.util.find_spec("peft"), "peft is not installed")
    def test_a_vit_with_lora_in_its_last_blocks(self):
        self.assert_trains_alike(vit_with_adapters, "blocks.1")

    def test_features_are_cached_and_read_by_index(self):
        model = made(Layers)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with unittest.mock.patch.dict("os.environ", FROSTLINE_FEATURE_FOLDER=folder.name):
            suffix, data = self.divide(model, ["blocks.0", "blocks.1", "blocks.2"], feature_cache="1GiB")
            loader = torch.utils.data.DataLoader(data.as_map(), batch_size=BATCH)
            outputs = torch.cat([suffix(*x) for x, _ in loader])
            again = torch.cat([suffix(x) for x, _ in loader])
        whole, count = self.images(model), 0
        expected = torch.cat([model(x) for x, _ in torch.utils.data.DataLoader(whole.as_map(), batch_size=BATCH)])
        self.assertTrue(torch.equal(outputs, again))
        self.assertLess(float((outputs - expected).abs().max()), 1e-3 * float(expected.abs().max()))

    def test_a_suffix_of_the_user(self):
        class Head(torch.nn.Module):
            def __init__(self, head):
                super().__init__()
                self.head = head

            def forward(self, *features):
                return self.head(torch.cat([each.mean((2, 3)) for each in features], 1))

        model = made(Layers)
        head = Head(copy.deepcopy(model.head))
        suffix, data = self.divide(model, ["blocks.0", "blocks.1", "blocks.2"], suffix=head)
        self.assertIs(suffix, head)
        ((features, _), *_) = data
        self.assertEqual(len(features), 3)

    def test_modules_that_do_not_separate_the_network_are_refused(self):
        for modules, words in (
            (["blocks.0", "blocks.2"], "'blocks.0' and 'blocks.2' also reads values that do not pass through it"),
            ("blocks.2", "'blocks.2' also reads values that do not pass through it"),
        ):
            with self.assertRaisesRegex(CannotDivide, words) as refused:
                suffix_of(made(Layers), modules, torch.randn(2, 3, SIZE, SIZE))
            self.assertEqual(refused.exception.modules, ("blocks.0", "blocks.1", "blocks.2"))
            self.assertIn("freeze=['blocks.0', 'blocks.1', 'blocks.2'] includes these values", str(refused.exception))
        with self.assertRaisesRegex(CannotDivide, "no module 'blocks.9'"):
            suffix_of(made(Layers), ["blocks.0", "blocks.9"], torch.randn(2, 3, SIZE, SIZE))
        suffix = suffix_of(made(Layers), ["blocks.0", "blocks.1", "blocks.2"], torch.randn(2, 3, SIZE, SIZE))
        with self.assertRaisesRegex(TypeError, "1 tensors of activations instead of 3"):
            suffix(torch.zeros(1, 16, 7, 7))


if __name__ == "__main__":
    unittest.main()
