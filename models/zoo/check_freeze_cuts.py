"""Checks that the freeze cuts in freeze_cuts.json exist in ONNX files and have the expected size.

    python3 models/zoo/check_freeze_cuts.py FOLDER

Reads FOLDER/<network>.opset17.onnx and .opset20.onnx (skeletons from the two exporters, possibly without weights) and
<network>.onnx (written by export.py). Prints a line per file. The exit code is 1 if a cut differs or no file was found. Requires onnx.
"""

import argparse
import json
import math
import pathlib
import sys

import onnx

FREEZE_CUTS = pathlib.Path(__file__).with_name("freeze_cuts.json")
FILE_NAMES = {"export": "{}.onnx", "opset17": "{}.opset17.onnx", "opset20": "{}.opset20.onnx"}
F32_BYTES = 4


def row_bytes(model, name):
    """Returns the bytes per sample of the f32 tensor `name`, or None if no node produces it or the shape per sample is unknown."""
    made = {output for node in model.graph.node for output in node.output}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    for value in inferred.value_info:
        if value.name != name or name not in made:
            continue
        tensor = value.type.tensor_type
        dimensions = [dimension.dim_value for dimension in tensor.shape.dim[1:]]
        if tensor.elem_type == onnx.TensorProto.FLOAT and dimensions and all(dimensions):
            return F32_BYTES * math.prod(dimensions)
    return None


def check(path, cut, expected):
    """Prints the result for a file and returns True if the cut is correct."""
    model = onnx.load(path, load_external_data=False)
    found = row_bytes(model, cut)
    marked = {entry.key: entry.value for entry in model.metadata_props}.get("frostline.freeze", cut)
    if found is None:
        print(f"{path.name}: no f32 tensor {cut!r} of known shape")
    elif found != expected:
        print(f"{path.name}: {cut!r} has {found} bytes per sample, expected {expected}")
    elif marked != cut:
        print(f"{path.name}: the metadata contains frostline.freeze = {marked!r}, expected {cut!r}")
    else:
        print(f"{path.name}: {cut} has {found} bytes per sample")
        return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    results = []
    for network, entry in json.loads(FREEZE_CUTS.read_text()).items():
        for kind, file_name in FILE_NAMES.items():
            path = folder / file_name.format(network)
            if path.exists():
                results.append(check(path, entry[kind], entry["bytes_per_sample"]))
    if not results:
        sys.exit(f"no network of {FREEZE_CUTS.name} in {folder}")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
