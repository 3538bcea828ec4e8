"""Targets that are loaded with the samples, and the position of inputs in their images."""

import pathlib
import tempfile
import threading
import unittest
import warnings

import numpy
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2

import frostline
import frostline.torch as fl
import small
from small import SIZE

SHAPES = [(80, 120), (120, 80), (64, 64), (200, 90)]
"""Height and width of images."""
DARK, BRIGHT = 60, 200
"""Values that operations of the color do not exchange, up to `MAGNITUDE`."""
MAGNITUDE = 5
SPREAD = fl.Augmentation(
    random_resized_crop=fl.RandomResizedCrop(scale=(0.3, 1.0)), hflip=0.5, rand_augment=fl.RandAugment(num_ops=3, magnitude=MAGNITUDE)
)


def object_in(height, width):
    """Return the box of the bright object in an image: (left, top, right, bottom)."""
    return width // 8, height // 4, width // 2, height * 3 // 4


def mask_of(shape):
    left, top, right, bottom = object_in(*shape)
    mask = torch.zeros(shape, dtype=torch.uint8)
    mask[top:bottom, left:right] = 1
    return mask


def shape_of(key):
    return SHAPES[int(pathlib.PurePath(key).stem) % len(SHAPES)]


def masks(samples):
    """Return the moved masks of the samples."""
    return torch.stack([sample.transform.mask(mask_of(shape_of(sample.key))) for sample in samples])


def fail(samples):
    raise KeyError("no such mask")


class Targets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.data = pathlib.Path(folder.name)
        for number in range(16):
            name = f"{number}.png"
            file = self.data / ("a" if number % 2 else "b") / name
            file.parent.mkdir(exist_ok=True)
            values = DARK + (BRIGHT - DARK) * mask_of(shape_of(name)).numpy()
            Image.fromarray(numpy.repeat(values[:, :, None], 3, 2)).save(file)

    def pushdown(self, **options):
        common = {"freeze": "none", "validation": 0.25, "size": SIZE, "batch": 4, "columns": ["key"], "pixels": frostline.pixels(round(SIZE / 0.875), SIZE, (0.0,) * 3, (1.0,) * 3)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, data = fl.pushdown(small.network(), self.data, **{**common, **options})
        self.addCleanup(data.close)
        return data

    def test_masks_are_moved_like_the_pixels(self):
        for augment in (None, SPREAD):
            data, areas = self.pushdown(augment=augment, targets=masks), set()
            for _ in range(2):
                for x, mask, columns in data:
                    self.assertEqual(mask.shape, (4, SIZE, SIZE))
                    for row, moved, key in zip(x, mask, columns["key"]):
                        # Stretched histograms move the threshold.
                        bright = row[0] > (row.min() + row.max()) / 2
                        same = (bright == (moved == 1)).float().mean()
                        self.assertGreater(float(same), 0.95, f"{key} {augment}")
                        areas.add(int(moved.sum()))
            self.assertEqual(len(areas) > len(SHAPES), augment is not None)

    def test_masks_and_boxes_equal_those_of_torchvision(self):
        crop = fl.Augmentation(random_resized_crop=fl.RandomResizedCrop(), hflip=0.5)
        data, plain = self.pushdown(augment=crop), self.pushdown()
        nearest = {"interpolation": v2.InterpolationMode.NEAREST_EXACT}
        center = v2.Compose([v2.Resize(round(SIZE / 0.875), **nearest), v2.CenterCrop(SIZE)])
        flipped = 0
        for key in (f"a/{number}.png" for number in range(1, 16, 2)):
            shape = shape_of(key)
            # Masks of torchvision are resized with `NEAREST`, which is off by half a pixel, for every interpolation.
            mask = tv_tensors.Image(mask_of(shape)[None])
            box = tv_tensors.BoundingBoxes([object_in(*shape)], format="XYXY", canvas_size=shape, dtype=torch.float32)
            expected = [(plain.transform_of(key), center(mask), center(box))]
            for epoch in range(3):
                transform = data.transform_of(key, epoch)
                (across, _, left), (_, down, top) = transform.matrix(*shape).tolist()
                flip = across < 0
                flipped += flip
                # The matrix begins at the right side of a mirrored crop.
                width, height = round(abs(across) * SIZE), round(down * SIZE)
                area = [round(top), round(left) - width * flip, height, width]
                moved = [v2.functional.resized_crop(each, *area, [SIZE, SIZE], **kind) for each, kind in ((mask, nearest), (box, {}))]
                expected.append((transform, *(map(v2.functional.horizontal_flip, moved) if flip else moved)))
            for transform, their_mask, their_box in expected:
                self.assertGreater(float((transform.mask(mask_of(shape)[None]) == their_mask).float().mean()), 0.98, key)
                torch.testing.assert_close(transform.boxes(box.as_subclass(torch.Tensor), *shape), their_box.as_subclass(torch.Tensor), rtol=0, atol=0.5)
        self.assertTrue(0 < flipped < 24)

    def test_positions_outside_of_the_image_are_filled(self):
        padded = frostline.pixels(SIZE, SIZE, resize_mode="pad")
        transform = self.pushdown(pixels=padded).transform_of("a/1.png")
        moved = transform.mask(torch.ones(2, 20, 40), fill=-1)
        self.assertEqual(moved.shape, (2, SIZE, SIZE))
        self.assertEqual(moved[0].unique().tolist(), [-1, 1])
        self.assertEqual(transform.boxes(torch.tensor([[-9.0, -9, -5, 99]]), 20, 40).tolist()[0][::2], [0, 0])
        with self.assertRaisesRegex(ValueError, "height and width"):
            transform.matrix(0, 40)

    def test_targets_are_loaded_by_threads_for_the_samples_of_each_batch(self):
        seen, names = [], set()

        def described(samples):
            names.add(threading.current_thread().name)
            seen.append({sample.key for sample in samples})
            return [(sample.key, sample.index, sample.epoch, sample.label) for sample in samples]

        data = self.pushdown(targets=described)
        for epoch in range(2):
            for _, targets, columns in data:
                self.assertEqual([key for key, *_ in targets], columns["key"])
                for key, index, its_epoch, label in targets:
                    self.assertEqual((data.samples.take([index])[0][0], its_epoch, data.classes[label]), (key, epoch, key[0]))
        self.assertEqual(sorted(key for batch in seen[:3] for key in batch), sorted(data.samples.take([index])[0][0] for index in range(12)))
        self.assertNotIn(threading.current_thread().name, names)
        self.assertEqual(len(next(iter(data.validation))[1]), 4)

    def test_bad_samples_have_no_targets(self):
        bad = self.pushdown().samples.take([2])[0][0]
        (self.data / bad).write_bytes(b"no image")
        data = self.pushdown(targets=masks, on_bad_sample="skip")
        for x, mask, columns in data:
            self.assertEqual((len(x), len(mask)), (len(columns["key"]),) * 2)
        self.assertEqual(list(data.skipped), [bad])

    def test_workers_load_targets(self):
        data = self.pushdown(targets=masks, augment=SPREAD)
        alone = [mask for _, mask, _ in data]
        data.set_epoch(0)
        loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="spawn")
        for (_, mask, _), expected in zip(loader, alone, strict=True):
            self.assertTrue(torch.equal(mask, expected))

    def test_errors_reach_the_loop(self):
        with self.assertRaisesRegex(KeyError, "no such mask"):
            list(self.pushdown(targets=fail))
        with self.assertRaisesRegex(TypeError, "list of samples"):
            self.pushdown(targets="masks")

    def test_custom_guests_have_no_transform(self):
        guest = self.data / "guest.wasm"
        guest.write_bytes(frostline._native.stock_guest())
        guests = {"pixels": None, "prefix": fl.Prefix(guest=guest), "split": "none"}
        data = self.pushdown(targets=lambda samples: [sample.key for sample in samples], **guests)
        self.assertTrue(all(keys == columns["key"] for _, keys, columns in data))
        with self.assertRaisesRegex(ValueError, "custom guest"):
            data.transform_of("a/1.png")
        with self.assertRaisesRegex(ValueError, "custom guest"):
            list(self.pushdown(targets=masks, **guests))


if __name__ == "__main__":
    unittest.main()
