//! Gradients of Pad, Resize, pools and block moves, compared with central differences.

use super::harness::{Net, check, tensor};
use frostline_graph::build::{float, int, ints, node, text};
use frostline_graph::onnx::NodeProto;
use frostline_tensor::DType;

const IMAGE: [usize; 3] = [4, 6, 5];

fn image(node: NodeProto, features: usize) -> Net {
    Net::new(&IMAGE)
        .probed(&IMAGE)
        .node(node)
        .classified("y", features)
}

#[test]
fn pad() {
    for (mode, pads, features) in [
        ("constant", [0, 0, 1, 2, 0, 0, 0, 1], 4 * 7 * 8),
        ("constant", [0, 1, -1, 0, 0, 0, 0, -2], 5 * 5 * 3),
        ("reflect", [0, 0, 2, 1, 0, 0, 1, 2], 4 * 9 * 8),
        ("edge", [0, 0, 2, 0, 0, 0, 0, 3], 4 * 8 * 8),
        ("wrap", [0, 1, 0, 2, 0, 0, 0, 0], 5 * 6 * 7),
    ] {
        let pad = node("Pad", &["h", "pads"], &["y"]).with([text("mode", mode)]);
        check(image(pad, features).opset(19).ints("pads", &pads));
    }
    let filled = node("Pad", &["h", "pads", "filling", "axes"], &["y"]);
    let net = image(filled, 4 * 6 * 7).ints("pads", &[1, 1]).ints("axes", &[-1]);
    check(net.stored("filling", &tensor(&[], DType::F64, vec![0.5])));
}

#[test]
fn resize() {
    let scales = tensor(&[4], DType::F32, vec![1.0, 1.0, 2.0, 3.0]);
    for (mode, coordinates) in [
        ("nearest", "asymmetric"),
        ("nearest", "half_pixel"),
        ("linear", "half_pixel"),
        ("linear", "align_corners"),
        ("cubic", "pytorch_half_pixel"),
    ] {
        let settings = [
            text("mode", mode),
            text("coordinate_transformation_mode", coordinates),
            float("cubic_coeff_a", -0.6),
        ];
        let resize = node("Resize", &["h", "", "scales"], &["y"]).with(settings.clone());
        check(image(resize, 4 * 12 * 15).stored("scales", &scales));
        let resize = node("Resize", &["h", "", "", "sizes"], &["y"]).with(settings);
        let net = Net::new(&IMAGE).probed(&IMAGE).ints("sizes", &[3, 4, 4, 7]);
        check(net.node(resize).classified("y", 4 * 4 * 7));
    }
    for (mode, outside) in [("linear", 0), ("cubic", 0), ("cubic", 1)] {
        let settings = [
            text("mode", mode),
            int("antialias", 1),
            int("exclude_outside", outside),
        ];
        let resize = node("Resize", &["h", "", "", "sizes"], &["y"]).with(settings);
        let net = Net::new(&IMAGE).probed(&IMAGE).ints("sizes", &[3, 4, 3, 4]);
        check(net.node(resize).classified("y", 4 * 3 * 4));
    }
}

#[test]
fn blocks() {
    for mode in ["DCR", "CRD"] {
        let moved = node("DepthToSpace", &["h"], &["y"]).with([int("blocksize", 2), text("mode", mode)]);
        check(image(moved, 120));
    }
    let row = [2, 6, 4];
    let moved = node("SpaceToDepth", &["h"], &["y"]).with([int("blocksize", 2)]);
    check(Net::new(&row).probed(&row).node(moved).classified("y", 48));
}

#[test]
fn channels_are_shuffled() {
    let net = Net::new(&IMAGE)
        .weight("w", &[4, 4, 1, 1])
        .ints("apart", &[0, 2, 2, 6, 5])
        .ints("back", &[0, 4, 6, 5])
        .op("Conv", &["x", "w"], "c")
        .op("Reshape", &["c", "apart"], "g")
        .node(node("Transpose", &["g"], &["t"]).with([ints("perm", &[0, 2, 1, 3, 4])]))
        .op("Reshape", &["t", "back"], "y");
    check(net.classified("y", 120));
}

#[test]
fn global_max_pool() {
    check(image(node("GlobalMaxPool", &["h"], &["y"]), 4));
}

#[test]
fn overhanging_windows_count_only_the_padding() {
    for include in [0, 1] {
        let pool = node("AveragePool", &["h"], &["y"]).with([
            ints("kernel_shape", &[3, 3]),
            ints("strides", &[2, 2]),
            ints("pads", &[1, 1, 1, 1]),
            int("ceil_mode", 1),
            int("count_include_pad", include),
        ]);
        check(image(pool, 4 * 4 * 3));
    }
}
