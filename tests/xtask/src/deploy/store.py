"""Runs an S3 server with the photos of a folder at s3://frostline/photos. Prints the URL and exits when standard input closes."""
import pathlib
import sys

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://{host}:{port}"
keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
store = boto3.client("s3", endpoint_url=url, **keys)
store.create_bucket(Bucket="frostline")
root = pathlib.Path(sys.argv[1])
for file in root.rglob("*"):
    if file.is_file():
        store.upload_file(str(file), "frostline", "photos/" + file.relative_to(root).as_posix())
print(url, flush=True)
sys.stdin.read()
