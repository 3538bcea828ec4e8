"""Exports common classifiers of torchvision, timm and transformers to ONNX with both exporters of torch. Names are not changed.

    python3 models/zoo/classifiers.py --out target/bench/zoo                       # all, legacy:17 and dynamo:20
    python3 models/zoo/classifiers.py resnet18 timm_vit_tiny --exports dynamo:25 --out target/bench/zoo

Weights are random and nothing is downloaded. The data of large weights is not stored; the `doc_string` of such a weight is
`normal MEAN SPREAD`, from which `cargo xtask bench zoo` fills the weights before it trains the networks. Writes NETWORK.EXPORTER-OPSET.onnx and
skips existing files. The metadata entry `frostline.requires_grad` lists the tensors that PyTorch trains and those that it does not. If an export fails, the error is written to NETWORK.EXPORTER-OPSET.txt. Requires torch, torchvision, timm, transformers, onnx
and onnxscript.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time
import warnings

import numpy
import onnx
import timm
import torch
import torchvision
import transformers

# torchvision's name -> arguments of the builder, in addition to weights=None.
TORCHVISION = {
    "alexnet": {},
    "vgg11": {"init_weights": False},
    "vgg11_bn": {"init_weights": False},
    "resnet18": {},
    "resnet50": {},
    "resnext50_32x4d": {},
    "densenet121": {},
    "squeezenet1_1": {},
    "googlenet": {"aux_logits": False, "init_weights": False},
    "inception_v3": {"aux_logits": False, "init_weights": False},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "mobilenet_v3_large": {},
    "shufflenet_v2_x0_5": {},
    "mnasnet0_5": {},
    "efficientnet_b0": {},
    "efficientnet_v2_s": {},
    "regnet_x_400mf": {},
    "regnet_y_400mf": {},
    "convnext_tiny": {},
    "swin_t": {},
    "swin_v2_t": {},
    "vit_b_32": {},
    "vit_b_16": {},
    "maxvit_t": {},
}
# Name of the network -> timm's name and arguments of the builder.
TIMM = {
    "timm_resnet10t": ("resnet10t", {}),
    "timm_resnet50d": ("resnet50d", {}),
    "timm_seresnet50": ("seresnet50", {}),
    "timm_regnety_002": ("regnety_002", {}),
    "timm_repvgg_a0": ("repvgg_a0", {}),
    "timm_densenet121": ("densenet121", {}),
    "timm_mobilenetv2_050": ("mobilenetv2_050", {}),
    "timm_mobilenetv3_small": ("mobilenetv3_small_050", {}),
    "timm_mobilenetv4_small": ("mobilenetv4_conv_small", {}),
    "timm_efficientnet_lite0": ("efficientnet_lite0", {}),
    "timm_tf_efficientnet_b0": ("tf_efficientnet_b0", {}),
    "timm_mnasnet_small": ("mnasnet_small", {}),
    "timm_ghostnet": ("ghostnet_050", {}),
    "timm_hrnet_small": ("hrnet_w18_small", {}),
    "timm_convnext_atto": ("convnext_atto", {}),
    "timm_convnextv2_atto": ("convnextv2_atto", {}),
    "timm_poolformer_s12": ("poolformer_s12", {}),
    "timm_mixer_s32": ("mixer_s32_224", {}),
    "timm_vit_tiny": ("vit_tiny_patch16_224", {}),
    "timm_deit_tiny_distilled": ("deit_tiny_distilled_patch16_224", {}),
    "timm_vit_dinov2": ("vit_small_patch14_dinov2", {"img_size": 224, "num_classes": 1000}),
    "timm_vit_dinov2_reg": ("vit_small_patch14_reg4_dinov2", {"img_size": 224, "num_classes": 1000}),
    "timm_vit_clip": ("vit_base_patch32_clip_224", {"num_classes": 1000}),
    "timm_swin_tiny": ("swin_tiny_patch4_window7_224", {}),
    "timm_swinv2_tiny": ("swinv2_cr_tiny_ns_224", {}),
    "timm_coatnet_pico": ("coatnet_pico_rw_224", {}),
    "timm_vit_small": ("vit_small_patch16_224", {"drop_path_rate": 0.1}),
    "timm_eva02": ("eva02_tiny_patch14_224", {"num_classes": 1000}),
    "timm_hiera": ("hiera_tiny_224", {}),
    "timm_xcit": ("xcit_nano_12_p16_224", {}),
    "timm_tiny_vit": ("tiny_vit_5m_224", {}),
    "timm_edgenext": ("edgenext_xx_small", {}),
    "timm_mambaout": ("mambaout_femto", {}),
    "timm_maxvit": ("maxvit_rmlp_pico_rw_256", {"img_size": 224}),
    "timm_mobilevit": ("mobilevit_xxs", {}),
    "timm_fastvit": ("fastvit_t8", {}),
    "timm_beit": ("beit_base_patch16_224", {"depth": 4}),
}
# Common settings of small transformers.
SMALL = {"hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 384}
TOWER = {**SMALL, "image_size": 224, "patch_size": 32}
WINDOWS = {"embed_dim": 48, "depths": [1, 1, 2, 1], "num_heads": [2, 2, 4, 4], "window_size": 7}
STAGES = {"hidden_sizes": [24, 48, 96, 192], "depths": [1, 1, 3, 1]}
# Name of the network -> prefix of the classes in transformers, and settings of the configuration.
TRANSFORMERS = {
    "hf_vit": ("ViT", SMALL),
    "hf_deit": ("DeiT", SMALL),
    "hf_beit": ("Beit", SMALL),
    "hf_dinov2": ("Dinov2", SMALL),
    "hf_swin": ("Swin", WINDOWS),
    "hf_swinv2": ("Swinv2", WINDOWS),
    "hf_convnext": ("ConvNext", STAGES),
    "hf_convnextv2": ("ConvNextV2", STAGES),
    "hf_resnet": ("ResNet", {"embedding_size": 32, "hidden_sizes": [32, 64, 128, 256], "depths": [1, 1, 2, 1], "layer_type": "basic"}),
    "hf_mobilevit": ("MobileViT", {"image_size": 224}),
    "hf_segformer": ("Segformer", {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 80, 128], "num_attention_heads": [1, 1, 2, 4]}),
    "hf_clip": ("CLIP", {"vision_config": TOWER}),
    "hf_siglip": ("Siglip", {"vision_config": TOWER}),
}
# Transformers of the usual sizes, exported only by name: timm's name and arguments of the builder.
TRANSFORMERS_OF_USUAL_SIZE = {
    "deit_s": ("deit_small_patch16_224", {}),
    "dinov2_s": ("vit_small_patch14_dinov2", {"img_size": 224, "num_classes": 1000}),
    "eva02_s": ("eva02_small_patch14_224", {"num_classes": 1000}),
    "siglip_b": ("vit_base_patch16_siglip_224", {"num_classes": 1000}),
    "clip_b": ("vit_base_patch16_clip_224", {"num_classes": 1000}),
}
FEATURES = 512
MLP = "mlp_on_features"
NETWORKS = [MLP, *TORCHVISION, *TIMM, *TRANSFORMERS]
EXPORTS = ["legacy:17", "dynamo:20"]
# Metadata of the newer exporter with the module of a node. Other metadata contains paths of this machine and is removed.
MODULE_NOTES = ("namespace", "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy")
# Weights with more elements and more distinct values are replaced by mean and standard deviation.
FEW_ELEMENTS = 256
FEW_VALUES = 16
# Gradients relative to the largest one that are rounding errors. Random weights can have gradients of 1e-15, and a bias of all attention logits has none.
SMALL_GRADIENT = 1e-8


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: all of {', '.join(NETWORKS)}")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--exports", nargs="+", default=EXPORTS, metavar="EXPORTER:OPSET", help="default: legacy:17 and dynamo:20")
    arguments = parser.parse_args()
    known = [*NETWORKS, *TRANSFORMERS_OF_USUAL_SIZE]
    if unknown := set(arguments.networks) - set(known):
        parser.error(f"unknown networks {sorted(unknown)}; choose from {', '.join(known)}")
    return arguments


def build(name):
    """Returns the network in evaluation mode and the shape of a sample."""
    torch.manual_seed(0)
    if name == MLP:
        layers = torch.nn.Linear(FEATURES, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Dropout(0.1), torch.nn.Linear(256, 1000)
        return torch.nn.Sequential(*layers).eval(), [FEATURES]
    if name in TORCHVISION:
        size = 299 if name == "inception_v3" else 224
        return torchvision.models.get_model(name, weights=None, **TORCHVISION[name]).eval(), [3, size, size]
    if name in TRANSFORMERS:
        family, settings = TRANSFORMERS[name]
        config = getattr(transformers, f"{family}Config")(num_labels=10, **settings)
        return getattr(transformers, f"{family}ForImageClassification")(config).eval(), [3, 224, 224]
    model, arguments = (TIMM | TRANSFORMERS_OF_USUAL_SIZE)[name]
    network = timm.create_model(model, pretrained=False, **arguments).eval()
    return network, list(network.pretrained_cfg["input_size"][:1]) + [224, 224]


class Logits(torch.nn.Module):
    """Wraps a model of transformers and returns only the logits."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, pixels):
        return self.network(pixels).logits


def export(network, example, exporter, opset):
    """Exports the network with torch and returns the ONNX model."""
    if isinstance(network, transformers.PreTrainedModel):
        # Legacy exports restore the mode of the wrapper, which the network then has as well.
        network = Logits(network).eval()
    names = {"input_names": ["input"], "output_names": ["logits"], "opset_version": opset}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.onnx")
        if exporter == "dynamo":
            shapes = ({0: torch.export.Dim("batch")},)
            torch.onnx.export(network, (example,), path, dynamo=True, dynamic_shapes=shapes, verbose=False, **names)
        else:
            axes = {"input": {0: "batch"}, "logits": {0: "batch"}}
            torch.onnx.export(network, (example,), str(path), dynamo=False, dynamic_axes=axes, **names)
        model = onnx.load(path)
    model.metadata_props.add(key="frostline.requires_grad", value=json.dumps(requires_grad(network, example)))
    return model


def requires_grad(network, example):
    """Returns the names of the trained parameters, and of the other parameters and buffers. Parameters whose gradients are rounding
    errors are in neither list."""
    logits = network(example)
    # Some networks keep intermediate results for the next export.
    torch.nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64)).backward(retain_graph=True)
    parameters = list(network.named_parameters())
    fixed = [name for name, parameter in parameters if not parameter.requires_grad]
    gradients = {name: parameter.grad for name, parameter in parameters if parameter.grad is not None}
    network.zero_grad()
    largest = {name: gradient.abs().max() for name, gradient in gradients.items()}
    smallest = SMALL_GRADIENT * max(largest.values())
    return {
        "trained": [name for name, gradient in largest.items() if gradient > smallest],
        "fixed": fixed + [name for name, _ in network.named_buffers()],
    }


def leave_out(tensor):
    """Removes the elements of a large random weight and records mean and standard deviation."""
    values = onnx.numpy_helper.to_array(tensor)
    # A constant weight, such as a scale of ones, has a single value and is removed. A mask has a few values and is not changed.
    different = len(numpy.unique(values.ravel()[: 1 << 16]))
    if tensor.data_type != onnx.TensorProto.FLOAT or values.size <= FEW_ELEMENTS or 1 < different <= FEW_VALUES:
        return
    for field in ("raw_data", "float_data", "external_data", "data_location"):
        tensor.ClearField(field)
    tensor.doc_string = f"normal {values.mean():.6g} {values.std():.6g}"


def strip(model):
    """Removes the data of large weights and metadata about this machine. Buffers, such as tables of sines, are kept."""
    properties = {entry.key: entry.value for entry in model.metadata_props}
    buffers = set(json.loads(properties["frostline.requires_grad"])["fixed"])
    graph = model.graph
    for part in (graph, *graph.node, *graph.value_info):
        part.ClearField("doc_string")
        kept = [entry for entry in part.metadata_props if entry.key in MODULE_NOTES]
        del part.metadata_props[:]
        part.metadata_props.extend(kept)
    for tensor in graph.initializer:
        tensor.ClearField("metadata_props")
        if tensor.name not in buffers:
            leave_out(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("t"):
                leave_out(attribute.t)


def export_one(name, exports, out):
    """Writes the missing files of a network."""
    network = None
    for words in exports:
        exporter, opset = words.split(":")
        path = out / f"{name}.{exporter}-{opset}.onnx"
        refused = path.with_suffix(".txt")
        if path.exists() or refused.exists():
            continue
        started = time.monotonic()
        try:
            network = network or build(name)
            model = export(network[0], torch.randn(2, *network[1]), exporter, int(opset))
        except Exception as error:  # The benchmark's table shows the error, whatever its type.
            refused.write_text(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}\n")
            print(f"{path.stem}: not exported: {refused.read_text().strip()}", flush=True)
            continue
        written = model.opset_import[0].version
        strip(model)
        onnx.save(model, path)
        seconds = time.monotonic() - started
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, opset {written}, {len(model.graph.node)} nodes, {seconds:.0f} s", flush=True)


def main():
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    # Fused attention is specific to torch; plain operators give the same result.
    torch.backends.mha.set_fastpath_enabled(False)
    for name in arguments.networks or NETWORKS:
        export_one(name, arguments.exports, arguments.out)
    print(f"{len(list(arguments.out.glob('*.onnx')))} files in {arguments.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
