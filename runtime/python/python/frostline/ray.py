"""Activations as a Ray dataset, for embeddings and other uses of `map_batches`.

    suffix, data = frostline.torch.pushdown(model, "s3://photos/clothing", hosts=[...], freeze="avgpool")
    rows = ray.data.read_datasource(frostline.ray.ActivationsDatasource(data))

Tested with Ray 2.60. The interface of read tasks can change with minor versions of Ray. For training, use the `Activations` in each worker of Ray
Train instead, which preserve order and batches.
"""

import numpy
from ray.data import Datasource, ReadTask
from ray.data.block import BlockAccessor, BlockMetadata

# Rows per block. A read task holds a few blocks in memory.
ROWS = 64


class ActivationsDatasource(Datasource):
    """All samples of `data` in the order of the listing.

    The columns are `activations` (float32, all with the same shape), `label` and `key`, without nulls. A bad sample
    raises an exception, or has no row with `on_bad_sample="skip"`.
    """

    def __init__(self, data, rows=ROWS):
        """Create a datasource.

        :param data: An `Activations` dataset.
        :param rows: Maximum number of rows per block.
        """
        super().__init__()
        if rows < 1:
            raise ValueError(f"invalid rows {rows}; it must be at least 1")
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
        # Send only the samples of this part to the task.
        samples, labels = self._samples.take(part), self._samples.labels[part]
        # Ray uses this number to count rows without reading them. It is unknown if samples can be skipped.
        rows_there = None if source.on_bad_sample == "skip" else len(part)
        metadata = BlockMetadata(num_rows=rows_there, size_bytes=size, exec_stats=None, input_files=None)
        return ReadTask(lambda: _blocks(source, samples, labels, rows), metadata, per_task_row_limit=limit)


def _blocks(source, samples, labels, rows):
    for data, places, _ in source.rows(samples, rows):
        if len(places):
            keys = numpy.array([samples[place][0] for place in places], dtype=object)
            yield BlockAccessor.batch_to_block({"activations": data, "label": labels[places], "key": keys})
