"""Activations as a Ray dataset, for embeddings and whatever else `map_batches` does with them.

    suffix, data = frostline.torch.pushdown(model, "s3://photos/clothing", hosts=[...], freeze="avgpool")
    rows = ray.data.read_datasource(frostline.ray.ActivationsDatasource(data))

Tested with Ray 2.60; what a read task is may change with its minor versions. To train, take the `Activations` in each worker of Ray Train instead:
they keep the order and the batches.
"""

import numpy
from ray.data import Datasource, ReadTask
from ray.data.block import BlockAccessor, BlockMetadata

# What one read task holds at once is a few batches of this many rows.
ROWS = 64


class ActivationsDatasource(Datasource):
    """The samples of `data`, each once, in the order of the listing: `activations` float32 of one shape, `label` and `key`, none of them null.

    A sample that cannot be used ends the reading, or with `on_bad_sample="skip"` has no row.
    """

    def __init__(self, data, rows=ROWS):
        """`data`: an `Activations`; `rows`: the most rows of a block."""
        super().__init__()
        if rows < 1:
            raise ValueError(f"rows is {rows}; it must be at least 1")
        self._source, self._samples, self._rows = data.source, data.samples, rows

    def get_name(self):
        return "Activations"

    def estimate_inmemory_data_size(self):
        row = 4 * int(numpy.prod(self._source.shape()))
        return len(self._samples) * row

    def get_read_tasks(self, parallelism, per_task_row_limit=None, data_context=None):
        count, size = len(self._samples), self.estimate_inmemory_data_size()
        parts = [part for part in numpy.array_split(numpy.arange(count), max(parallelism, 1)) if len(part)]
        return [self._task(part, size * len(part) // count, per_task_row_limit) for part in parts]

    def _task(self, part, size, limit):
        source, rows = self._source, self._rows
        # A task carries its own samples only.
        samples, labels = self._samples.take(part), self._samples.labels[part]
        # Ray counts a dataset by this, without reading it: of samples that may be left out nobody knows how many rows there are.
        rows_there = None if source.on_bad_sample == "skip" else len(part)
        metadata = BlockMetadata(num_rows=rows_there, size_bytes=size, exec_stats=None, input_files=None)
        return ReadTask(lambda: _blocks(source, samples, labels, rows), metadata, per_task_row_limit=limit)


def _blocks(source, samples, labels, rows):
    for data, places, _ in source.rows(samples, rows):
        if len(places):
            keys = numpy.array([samples[place][0] for place in places], dtype=object)
            yield BlockAccessor.batch_to_block({"activations": data, "label": labels[places], "key": keys})
