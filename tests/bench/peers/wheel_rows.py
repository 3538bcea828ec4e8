"""Extracts rows through the Python wheel, for `cargo xtask bench python`.

The first line of output describes the wheel (`import_seconds`, `installed_bytes`). Then each input line {"cut"} is answered with {"rows", "seconds"}.
"""

import json
import subprocess
import sys
import time
from importlib.metadata import files
from pathlib import Path

url, token_file, data, model_file, batch = sys.argv[1:]

bare, whole = (
    min(
        float(subprocess.run([sys.executable, "-c", f"import time; t = time.perf_counter(); {what}; print(time.perf_counter() - t)"],
                             capture_output=True, check=True, text=True).stdout)
        for _ in range(9)
    )
    for what in ("pass", "import frostline")
)

import frostline  # noqa: E402
from frostline import _native  # noqa: E402

client = frostline.Client(url, token_file=token_file)
model, guest = client.push_model(model_file), client.push_guest()
pins = {"model": (model.name, model.sha256), "guest": (guest.name, guest.sha256)}
stream = _native.Stream(client.config(data) | pins)
samples = client.objects(data)
installed = sum(Path(str(file.locate())).stat().st_size for file in files("frostline") or [] if Path(str(file.locate())).is_file())
print(json.dumps({"import_seconds": whole - bare, "installed_bytes": installed}), flush=True)
for line in sys.stdin:
    begun = time.perf_counter()
    rows = sum(len(each["data"]) for each in stream.rows(samples, json.loads(line)["cut"], int(batch)))
    print(json.dumps({"rows": rows, "seconds": time.perf_counter() - begun}), flush=True)
