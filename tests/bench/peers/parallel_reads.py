"""Parallel reads by boto3: what `aws s3 cp` and data loaders do.

    echo '{"bucket": "photos", "reads": [["set/a.jpg", null], ["shards/0.tar", [512, 1000]]]}' | parallel_reads.py

The first line of the standard input says what to read: keys, each whole or from an offset, so many bytes. Every line after it is a
number of threads, to which one line answers: the seconds that reading everything took, and how many bytes it was. Endpoint and
credentials come from the environment.
"""

import concurrent.futures
import json
import sys
import time

import boto3
import botocore.config


def client(threads):
    return boto3.client("s3", config=botocore.config.Config(max_pool_connections=threads))


def read(store, bucket, key, place):
    wanted = {} if place is None else {"Range": f"bytes={place[0]}-{place[0] + place[1] - 1}"}
    return len(store.get_object(Bucket=bucket, Key=key, **wanted)["Body"].read())


def main():
    work = json.loads(sys.stdin.readline())
    stores = {}
    for line in sys.stdin:
        threads = int(line)
        if threads not in stores:
            stores[threads] = client(threads)
        store = stores[threads]
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            begun = time.perf_counter()
            sizes = pool.map(lambda one: read(store, work["bucket"], *one), work["reads"])
            total = sum(sizes)
            seconds = time.perf_counter() - begun
        print(json.dumps({"seconds": seconds, "bytes": total}), flush=True)


if __name__ == "__main__":
    main()
