"""Order of samples and division among processes, tested without hosts."""

import dataclasses
import json
import pickle
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

import numpy
import torch

import frostline
import frostline.torch as fl
import small
from frostline._samples import Samples
from frostline.torch import Activations, _activations, _network, _pushdown, mean
from frostline.torch._steps import Share, Steps
from processes import together


class Named:
    """A source that returns the index of each sample as its row. Samples in `bad` fail."""

    def __init__(self, bad=()):
        self.bad, self.asked = set(bad), []

    def rows(self, samples, batch, *_):
        for first in range(0, len(samples), batch):
            numbers = [int(key) for key, *_ in samples[first : first + batch]]
            self.asked += numbers
            kept = [place for place, number in enumerate(numbers) if number not in self.bad]
            rows = numpy.array([[numbers[place]] for place in kept], dtype=numpy.float32).reshape(len(kept), 1)
            yield rows, [first + place for place in kept], [(str(n), "broken") for n in numbers if n in self.bad]


def activations(count=50, batch=8, bad=(), **options):
    samples = Samples([str(n) for n in range(count)], [f"v{n}" for n in range(count)], [1] * count, numpy.arange(count))
    return Activations(Named(bad), samples, batch=batch, **options)


def loader(data, **options):
    return torch.utils.data.DataLoader(data, batch_size=None, **options)


def numbers(batches):
    """Return the sample indices of each batch, and check that the labels match the rows."""
    found = []
    for x, y in batches:
        assert x[:, 0].tolist() == y.tolist(), (x, y)
        found.append(y.tolist())
    return found


class Orders(unittest.TestCase):
    def test_every_pass_is_an_epoch_with_every_sample_once(self):
        data = activations()
        first, second = numbers(loader(data)), numbers(loader(data))
        self.assertEqual([len(batch) for batch in first], [8] * 6 + [2])
        self.assertEqual(len(data), 7)
        for epoch in (first, second):
            self.assertEqual(sorted(sum(epoch, [])), list(range(50)))
        self.assertNotEqual(first, second)
        data.set_epoch(0)
        self.assertEqual(numbers(data), first)
        self.assertEqual(numbers(activations()), first)
        self.assertNotEqual(numbers(activations(seed=1)), first)
        self.assertEqual(sum(numbers(activations(shuffle=False)), []), list(range(50)))

    def test_an_epoch_that_is_asked_for_in_stretches_is_the_same(self):
        whole = activations(bad=[3, 30])
        expected = [numbers(whole) for _ in range(2)]
        with mock.patch.object(_activations, "STRETCH", 3):
            data = activations(bad=[3, 30])
            self.assertEqual([numbers(data) for _ in range(2)], expected)
            data.set_epoch(1)
            passed = iter(data)
            self.assertEqual(numbers(next(passed) for _ in range(4)), expected[1][:4])
            again = activations(bad=[3, 30])
            again.load_state_dict(data.state_dict())
            self.assertEqual(numbers(again), expected[1][4:])

    def test_a_short_last_batch_may_be_dropped(self):
        self.assertEqual([len(batch) for batch in numbers(activations(drop_last=True))], [8] * 6)

    def test_batches_are_not_put_into_batches(self):
        data = activations(10, batch=4)
        with self.assertRaisesRegex(ValueError, "batch_size=None"):
            next(iter(torch.utils.data.DataLoader(data)))

    def test_tensors_may_be_written_to(self):
        for x, y in activations():
            x += 1
            y += 1

    def test_batches_tell_columns_of_their_samples(self):
        data = activations(10, batch=4, bad=[3], columns=["key", "version", "size", "index"])
        seen = []
        for x, y, columns in loader(data):
            self.assertEqual(columns.pop("index").tolist(), y.tolist())
            self.assertEqual(columns, {"key": [str(n) for n in y.tolist()], "version": [f"v{n}" for n in y.tolist()], "size": [1] * len(x)})
            seen += y.tolist()
        self.assertEqual(sorted(seen), [0, 1, 2, 4, 5, 6, 7, 8, 9])

    def test_samples_are_taken_by_their_number(self):
        samples = activations(10, bad=[3]).as_map()
        weights = torch.zeros(len(samples))
        weights[[2, 7]] = 1.0
        sampler = torch.utils.data.WeightedRandomSampler(weights, 20)
        found = numbers(torch.utils.data.DataLoader(samples, batch_size=8, sampler=sampler))
        self.assertEqual([len(batch) for batch in found], [8, 8, 4])
        self.assertEqual(set(sum(found, [])), {2, 7})
        self.assertEqual([float(part) for part in samples[9]], [9.0, 9.0])
        self.assertEqual(samples.labels.tolist(), list(range(10)))
        part, _ = torch.utils.data.random_split(activations(10).as_map(), [4, 6])
        self.assertEqual(sorted(y for _, y in map(part.__getitem__, range(4))), sorted(part.indices))
        part, _ = torch.utils.data.random_split(activations(10, batch=1), [4, 6])
        with self.assertRaisesRegex(TypeError, "data.as_map.. instead.* or pass validation="):
            part[0]
        with self.assertRaisesRegex(frostline.BadSample, "'3' cannot be used: broken; exclude its index"):
            samples[3]

    def test_invalid_options_are_refused(self):
        for options in ({"batch": 0}, {"batch": "8"}, {"seed": -1}, {"seed": "0"}, {"rank": 0}, {"rank": 2, "world": 2}, {"columns": ["path"]}, {"columns": "key"}):
            with self.assertRaises(ValueError):
                activations(**options)
        with self.assertRaisesRegex(TypeError, "pass a frostline.torch.Augmentation"):
            activations(augment={"hflip": 0.5})

    def test_groups_of_settings_are_checked_at_once(self):
        for group, values, expected in (
            (fl.Sampling, {"rank": 1}, "pass both or none"),
            (fl.Sampling, {"rank": 2, "world": 2}, "rank less than world"),
            (fl.Prefix, {"precision": "int4"}, "'int8' or 'auto'"),
            (fl.Prefix, {"precision": "int8", "guest": "guest.wasm"}, "requires the stock guest"),
            (fl.Prefix, {"threads": "all"}, "invalid threads 'all'"),
        ):
            with self.assertRaisesRegex(ValueError, expected):
                group(**values)

    def test_augmentations_out_of_range_are_refused(self):
        for values, expected in (
            ({"hflip": 2.0}, "hflip is 2.0; it must be 0 to 1"),
            ({"color_jitter": fl.ColorJitter(hue=1.0)}, "the hue of color_jitter"),
            ({"random_resized_crop": fl.RandomResizedCrop(scale=(1.0, 0.5))}, "the scale of random_resized_crop"),
            ({"rand_augment": fl.RandAugment(num_ops="2")}, "augment: rand_augment.num_ops"),
        ):
            with self.assertRaisesRegex(frostline.SettingsError, expected):
                fl.Augmentation(**values)
        augmentation = fl.Augmentation(hflip=0.5, random_erasing=fl.RandomErasing())
        self.assertEqual(activations(augment=augmentation).augment, augmentation)

    def test_augmentations_have_the_fields_of_requests(self):
        reference = Path(__file__).parents[2] / "docs" / "reference" / "openapi-tenants.json"
        schemas = json.loads(reference.read_text())["components"]["schemas"]
        for kind in (fl.Augmentation, fl.RandomResizedCrop, fl.RandAugment, fl.ColorJitter, fl.RandomErasing):
            fields = {field.name for field in dataclasses.fields(kind)}
            self.assertEqual(fields, set(schemas[kind.__name__]["properties"]), kind.__name__)

    def test_settings_are_refused_before_the_export(self):
        fetching = [{"fetching": fl.Fetching(**each)} for each in ({"memory": "1GiB"}, {"priority": "high"}, {"open_requests": -1})]
        for options in (*fetching, {"encoding": "f8"}, {"batch": 0}, {"columns": ["path"]}, {"views": 2}, {"sampling": {"rank": 0}}, {"size": "224"}, {"feature_cache": "4GB"}):
            with mock.patch.object(_network, "export", side_effect=AssertionError), self.assertRaises((ValueError, TypeError)):
                _pushdown.pushdown(small.network(), "/photos", ["http://127.0.0.1:9"], freeze="blocks.1", **options)


def listed_by_each():
    """Return the samples of a process if a photo is added after rank 0 has listed the data."""
    rank = torch.distributed.get_rank()

    def listed(config, **wanted):
        count = 8 + rank
        samples = Samples([f"{n}.jpg" for n in range(count)], [None] * count, [1] * count, numpy.arange(count))
        none = Samples([], [], [], numpy.arange(0))
        return samples, none, none, ["a", "b"]

    with mock.patch.object(_pushdown, "listed", listed):
        _, data = _pushdown.pushdown(torch.nn.Identity(), "/photos", ["http://127.0.0.1:9"], freeze="none", feature_cache="off")
    return data.state_dict()["samples"], data.classes


class Ranks(unittest.TestCase):
    def test_all_processes_train_on_what_the_first_one_listed(self):
        first, second = together(2, listed_by_each)
        self.assertEqual(first, second)

    def test_global_batches_are_the_same_for_every_world(self):
        alone = numbers(activations())
        for world in (2, 3):
            each = [numbers(activations(rank=rank, world=world, drop_last=world == 3)) for rank in range(world)]
            joined = [sum(parts, []) for parts in zip(*each, strict=True)]
            self.assertEqual(joined, alone[: len(joined)])
            self.assertGreaterEqual(len(joined), 6)
        # The last batch has two samples, so one of three processes would have none.
        with self.assertRaisesRegex(ValueError, "drop_last=True"):
            next(iter(activations(rank=0, world=3)))

    def test_batches_that_accelerate_divides_are_not_divided_before(self):
        several = types.SimpleNamespace(PartialState=types.SimpleNamespace(_shared_state={"num_processes": 2}))
        with mock.patch.dict(sys.modules, {"accelerate.state": several}):
            with self.assertRaisesRegex(ValueError, "accelerate runs 2 processes .* pass Sampling\(rank=0, world=1\)"):
                next(iter(activations()))
            self.assertEqual(len(sum(numbers(activations(rank=0, world=1)), [])), 50)

    def test_parts_are_even(self):
        for world in range(1, 9):
            parts = [Share(rank, world).of(19) for rank in range(world)]
            self.assertEqual([first for first, _ in parts], [0] + [end for _, end in parts[:-1]])
            self.assertEqual(parts[-1][1], 19)
            sizes = [end - first for first, end in parts]
            self.assertLessEqual(max(sizes) - min(sizes), 1)
        self.assertEqual(len(Steps(0, 4)), 0)

    def test_a_bad_sample_costs_its_row_and_no_step(self):
        bad = numbers(activations())[2][:5]
        each = [numbers(activations(rank=rank, world=2, bad=bad)) for rank in range(2)]
        self.assertEqual([len(steps) for steps in each], [7, 7])
        self.assertEqual([len(steps[2]) for steps in each], [0, 3])
        self.assertEqual(sorted(sum(each[0] + each[1], [])), sorted(set(range(50)) - set(bad)))
        data = activations(bad=[7])
        self.assertEqual(len(numbers(data)) + len(numbers(data)), 14)
        self.assertEqual(data.skipped, {"7": 2})


class States(unittest.TestCase):
    def test_resume_fetches_no_earlier_batches(self):
        data = activations()
        data.set_epoch(3)
        passed = iter(loader(data))
        before = numbers(next(passed) for _ in range(3))
        state = pickle.loads(pickle.dumps(data.state_dict()))
        self.assertEqual((state["epoch"], state["step"]), (3, 3))
        rest, following = numbers(passed), numbers(data)
        again = activations(seed=9)
        again.load_state_dict(state)
        again.set_epoch(3)
        self.assertEqual(numbers(loader(again)), rest)
        self.assertEqual(again.source.asked, sum(rest, []))
        self.assertEqual(numbers(again), following)
        self.assertEqual(sorted(sum(before + rest, [])), list(range(50)))

    def test_the_number_of_processes_may_change(self):
        data = activations()
        passed = iter(data)
        numbers(next(passed) for _ in range(2))
        state, rest = data.state_dict(), numbers(passed)
        each = []
        for rank in range(2):
            part = activations(rank=rank, world=2)
            part.load_state_dict(state)
            each.append(numbers(part))
        self.assertEqual([sum(parts, []) for parts in zip(*each, strict=True)], rest)

    def test_after_its_last_step_comes_the_next_epoch(self):
        data = activations()
        numbers(data)
        self.assertEqual((data.state_dict()["epoch"], data.state_dict()["step"]), (1, 0))
        state = activations().state_dict(step=7)
        self.assertEqual((state["epoch"], state["step"]), (1, 0))

    def test_a_state_of_other_data_is_refused(self):
        state = activations().state_dict()
        for other in (activations(count=51), activations(batch=9)):
            with self.assertRaises(ValueError):
                other.load_state_dict(state)
        labeled = activations()
        labeled.samples.labels[0] = 1
        with self.assertRaisesRegex(ValueError, "the samples differ"):
            labeled.load_state_dict(state)


class Workers(unittest.TestCase):
    def test_workers_divide_the_steps_in_order(self):
        alone = activations()
        epochs = [numbers(alone) for _ in range(3)]
        # Spawned workers need seconds to start, so test them only once.
        for method, persistent in (("fork", False), ("fork", True), ("spawn", True)):
            batches = loader(activations(), num_workers=2, multiprocessing_context=method, persistent_workers=persistent)
            with self.subTest(method=method, persistent=persistent):
                self.assertEqual([numbers(batches) for _ in range(3)], epochs)
                batches.dataset.set_epoch(1)
                self.assertEqual(numbers(batches), epochs[1])

    def test_the_number_of_workers_may_change_between_passes(self):
        alone = activations()
        epochs = [numbers(alone) for _ in range(4)]
        data = activations()
        self.assertEqual([numbers(loader(data, num_workers=workers)) for workers in (0, 2, 0, 1)], epochs)
        self.assertEqual(data.state_dict(step=7)["epoch"], 4)

    def test_a_copy_has_a_separate_position(self):
        alone = activations()
        epochs = [numbers(alone) for _ in range(2)]
        data = activations()
        copied = loader(pickle.loads(pickle.dumps(data)), num_workers=2)
        self.assertEqual([numbers(copied) for _ in range(2)], epochs)
        self.assertEqual(numbers(data), epochs[0])

    def test_resume_with_workers(self):
        first, second = (numbers(activation) for activation in [activations()] * 2)
        data = activations()
        batches = loader(data, num_workers=2, persistent_workers=True)
        passed = iter(batches)
        self.assertEqual(numbers(next(passed) for _ in range(4)), first[:4])
        with self.assertRaisesRegex(ValueError, "step="):
            data.state_dict()
        state = data.state_dict(step=4)
        again = activations()
        again.load_state_dict(state)
        batches = loader(again, num_workers=2, persistent_workers=True)
        self.assertEqual(numbers(batches), first[4:])
        self.assertEqual(numbers(batches), second)

    def test_an_abandoned_pass_does_not_shorten_the_next(self):
        data = activations()
        for options in ({"num_workers": 0}, {"num_workers": 2}):
            next(iter(loader(data, **options)))
        batches = loader(data, num_workers=2)
        self.assertEqual(sorted(sum(numbers(batches), [])), list(range(50)))

    def test_torchdatas_loader_keeps_its_workers_places(self):
        try:
            from torchdata.stateful_dataloader import StatefulDataLoader
        except ImportError:
            self.skipTest("torchdata is not installed")
        alone = activations(seed=3)
        whole, following = numbers(alone), numbers(alone)
        for workers in (0, 2):
            for steps in range(1, 8):
                batches = StatefulDataLoader(activations(seed=3), batch_size=None, num_workers=workers)
                passed = iter(batches)
                numbers(next(passed) for _ in range(steps))
                again = StatefulDataLoader(activations(), batch_size=None, num_workers=workers)
                again.load_state_dict(batches.state_dict())
                with self.subTest(workers=workers, steps=steps):
                    rest = numbers(again)
                    # A loader that was saved after the last step still has to detect the end of the epoch.
                    self.assertEqual(rest or numbers(again), whole[steps:] or following)
                    if steps < 7:
                        self.assertEqual(numbers(again), following)


def train(bad, batch):
    """Train a linear regression for an epoch, alone or in a process group, and return the losses."""
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1).double()
    if torch.distributed.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer, losses = torch.optim.SGD(model.parameters(), 1e-3), []
    for x, y in loader(activations(bad=bad, batch=batch)):
        loss = mean(torch.nn.functional.mse_loss(model(x.double())[:, 0], torch.sqrt(y.double()), reduction="none"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(loss)
            loss /= torch.distributed.get_world_size()
        losses.append(float(loss))
    return losses


class Validation(unittest.TestCase):
    def test_a_batch_of_fewer_samples_than_processes_goes_to_some(self):
        # With 50 samples in batches of 16, the last batch has 2 samples for three processes.
        parts = [numbers(activations(batch=16, shuffle=False, rank=rank, world=3)) for rank in range(3)]
        self.assertEqual(sorted(sum((sum(part, []) for part in parts), [])), list(range(50)))
        self.assertEqual([len(part) for part in parts], [4, 4, 3])
        with self.assertRaises(ValueError):
            numbers(activations(batch=16, rank=0, world=3))

    def test_the_mean_of_no_rows_is_nothing(self):
        self.assertEqual(float(mean(torch.zeros(0))), 0.0)
        self.assertEqual(float(mean(torch.tensor([1.0, 3.0]))), 2.0)


class Together(unittest.TestCase):
    def test_losses_of_two_processes_are_those_of_one(self):
        bad = numbers(activations(batch=9))[2][:4]
        for left_out in ([], bad):
            alone = train(left_out, 9)
            for losses in together(2, train, left_out, 9):
                for mine, expected in zip(losses, alone, strict=True):
                    self.assertAlmostEqual(mine, expected, delta=1e-9)


if __name__ == "__main__":
    unittest.main()
