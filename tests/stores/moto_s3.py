"""Runs moto's S3 server, which other tests also use."""
import sys

from serving import BUCKET, free_ports, missing, request, serve

try:
    import importlib.metadata

    version = importlib.metadata.version("moto")
except ImportError:
    missing("the Python package moto is not installed")
(port,) = free_ports(1)
url = f"http://127.0.0.1:{port}"


def create():
    status, body = request(f"{url}/{BUCKET}", "PUT")
    if status != 200:
        missing(f"cannot create the bucket: {status} {body[:200]!r}")


serve(
    [[sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]],
    url,
    create,
    version=f"moto {version}",
    root=f"s3://{BUCKET}",
    settings={
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "testing",
    },
    wrong=None,
    creates=True,
)
