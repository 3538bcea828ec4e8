"""Runs Azurite, Microsoft's emulator of Azure Blob Storage, from npm."""
import base64
import email.utils
import hashlib
import hmac
import json
import shutil

from serving import BUCKET, folder, free_ports, missing, request, run, serve

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
# Default key in the emulator's documentation.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

if not shutil.which("npm"):
    missing("npm is not installed")
program = folder() / "node_modules/.bin/azurite-blob"
package = folder() / "node_modules/azurite/package.json"
if not package.exists() or json.loads(package.read_text())["version"] != VERSION:
    run(["npm", "install", "--prefix", folder(), "--no-audit", "--no-fund", "--no-save", f"azurite@{VERSION}"])
(port,) = free_ports(1)
endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"


def create():
    """Creates the container with a signature according to Azure's Shared Key documentation."""
    date = email.utils.formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:2021-12-02"
    text = "PUT" + "\n" * 12 + f"{headers}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    status, body = request(
        f"{endpoint}/{BUCKET}?restype=container",
        "PUT",
        {
            "x-ms-date": date,
            "x-ms-version": "2021-12-02",
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            "Content-Length": "0",
        },
    )
    if status != 201:
        missing(f"cannot create the container: {status} {body[:200]!r}")


serve(
    [
        [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
        + ["--skipApiVersionCheck", "--disableTelemetry"]
    ],
    endpoint,
    create,
    version=f"Azurite {VERSION}",
    root=f"az://{BUCKET}",
    settings={
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_ENDPOINT": endpoint,
    },
    wrong={"AZURE_STORAGE_ACCOUNT_KEY": "Z2VoZWltLWdlaGVpbQ=="},
    creates=True,
)
