//! Reading and writing files, with the error messages.

use super::support::noisy;
use crate::build::{batched, initializer, int, model, node};
use crate::onnx::{GraphProto, ModelProto, StringStringEntry};
use crate::{GraphError, InputSize, Interface, Model, ModelLimits};
use prost::Message;
use std::path::Path;

fn small() -> ModelProto {
    let graph = GraphProto {
        node: vec![node("Gemm", &["x", "w", "b"], &["y"]).with([int("transB", 1)])],
        initializer: vec![
            initializer("w", &noisy(1, &[40, 60])),
            initializer("b", &noisy(2, &[40])),
        ],
        input: vec![batched("x", &[60])],
        output: vec![batched("y", &[40])],
        ..GraphProto::default()
    };
    model(17, graph)
}

/// Writes a model file to `folder` in which the weight `w` refers to `location`.
fn with_weight_at(folder: &Path, location: &str) -> std::path::PathBuf {
    let mut proto = small();
    let weight = &mut proto.graph.as_mut().unwrap().initializer[0];
    weight.raw_data.clear();
    weight.data_location = 1;
    weight.external_data.push(StringStringEntry {
        key: "location".into(),
        value: location.into(),
    });
    let path = folder.join("model.onnx");
    std::fs::write(&path, proto.encode_to_vec()).unwrap();
    path
}

#[test]
fn bytes_survive_reading_and_writing() {
    let bytes = small().encode_to_vec();
    let model = Model::from_bytes(bytes.clone().into()).unwrap();
    assert_eq!(model.to_bytes().unwrap(), bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    model.write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "temporary files were not removed"
    );
}

#[test]
fn invalid_files_are_refused() {
    for bytes in [
        &b""[..],
        b"\xff\xd8\xff\xe0 a photo",
        b"{\"json\": true}",
        b"\x08\x08",
        &[0; 64],
    ] {
        let error = Model::from_bytes(bytes.to_vec().into()).unwrap_err();
        assert!(matches!(error, GraphError::NotOnnx { .. }), "{bytes:?}: {error}");
        assert!(error.to_string().contains("not an ONNX model"), "{error}");
    }
    let missing = Model::read("no/such/file.onnx").unwrap_err().to_string();
    assert!(missing.contains("no/such/file.onnx"), "{missing}");
    assert!(matches!(Model::read("."), Err(GraphError::Read { .. })));
}

/// Content that is stored instead of a file, with a part of the message.
const STAND_INS: [(&str, &str); 6] = [
    (
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 100\n",
        "run `git lfs pull`",
    ),
    ("outs:\n- md5: 0\n", "run `dvc pull`"),
    ("bplist00\u{1}", "an iCloud placeholder"),
    ("\n<!DOCTYPE html><html>404</html>", "an HTML page"),
    ("<HTML>", "an HTML page"),
    (
        "<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
        "an XML document",
    ),
];

#[test]
fn files_in_other_formats_say_what_to_do() {
    let whole = small().encode_to_vec();
    let others = [
        (&b"PK\x03\x04 archive"[..], "PyTorch checkpoint"),
        (b"\x80\x02}q", "PyTorch checkpoint"),
        (&whole[..whole.len() / 2], "truncated or damaged"),
        (b"\xff\xd8\xff\xe0 a photo", "another format"),
    ];
    let stand_ins = STAND_INS.map(|(text, part)| (text.as_bytes(), part));
    for (bytes, part) in stand_ins.into_iter().chain(others) {
        let error = Model::from_bytes(bytes.to_vec().into()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        let admitted = Model::admit(bytes.to_vec().into(), &ModelLimits::default());
        assert_eq!(admitted.unwrap_err().to_string(), error);
    }
}

#[test]
fn stand_ins_for_weights_and_next_to_missing_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = with_weight_at(folder.path(), "w.bin");
    let mut proto = ModelProto::decode(std::fs::read(&path).unwrap().as_slice()).unwrap();
    let weight = &mut proto.graph.as_mut().unwrap().initializer[0];
    weight.external_data.push(StringStringEntry {
        key: "length".into(),
        value: (40 * 60 * 4).to_string(),
    });
    std::fs::write(&path, proto.encode_to_vec()).unwrap();
    for (text, part) in STAND_INS {
        std::fs::write(folder.path().join("w.bin"), text).unwrap();
        let error = Model::read(&path).unwrap_err().to_string();
        assert!(error.contains("`w.bin`") && error.contains(part), "{error}");
    }
    for (name, part) in [
        (".moved.onnx.icloud", "an iCloud placeholder"),
        ("tracked.onnx.dvc", "run `dvc pull`"),
    ] {
        std::fs::write(folder.path().join(name), "").unwrap();
        let missing = name.trim_start_matches('.').rsplit_once('.').unwrap().0;
        let error = Model::read(folder.path().join(missing)).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(part), "{error}");
    }
}

#[test]
fn newer_versions_are_refused() {
    let mut format = small();
    format.ir_version = 99;
    let mut operators = small();
    operators.opset_import[0].version = 99;
    for (proto, part) in [(format, "(IR) version 99"), (operators, "operator set 99")] {
        let error = Model::from_bytes(proto.encode_to_vec().into())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(part) && error.contains("supports up to"),
            "{error}"
        );
    }
}

#[test]
fn weights_that_old_files_list_as_inputs_are_removed_from_the_list() {
    let mut proto = small();
    proto.ir_version = 3;
    let graph = proto.graph.as_mut().unwrap();
    graph.input.extend([batched("w", &[60]), batched("b", &[])]);
    let model = Model::from_bytes(proto.encode_to_vec().into()).unwrap();
    let proto = model.replace_head(3, 0).unwrap().into_proto();
    let inputs: Vec<String> = proto
        .graph
        .unwrap()
        .input
        .into_iter()
        .map(|input| input.name)
        .collect();
    assert_eq!((proto.ir_version, inputs), (4, vec!["x".to_owned()]));
}

#[test]
fn a_network_takes_one_input_and_gives_one_output() {
    let mut proto = small();
    proto.graph.as_mut().unwrap().input.push(batched("mask", &[60]));
    let error = Model::from_bytes(proto.encode_to_vec().into()).unwrap_err();
    assert!(
        error.to_string().contains("has 2 inputs (`x`, `mask`)"),
        "{error}"
    );
    // Old files also list weights as inputs.
    let mut proto = small();
    proto.graph.as_mut().unwrap().input.push(batched("w", &[60]));
    assert!(Model::from_bytes(proto.encode_to_vec().into()).is_ok());
    let mut proto = small();
    proto.graph.as_mut().unwrap().output.push(batched("x", &[60]));
    assert!(matches!(
        Model::from_bytes(proto.encode_to_vec().into()),
        Err(GraphError::Outputs { names }) if names.len() == 2
    ));
}

#[test]
fn names_have_one_producer_that_comes_first() {
    let malformed = |change: fn(&mut GraphProto)| {
        let mut proto = small();
        change(proto.graph.as_mut().unwrap());
        Model::from_bytes(proto.encode_to_vec().into())
            .unwrap_err()
            .to_string()
    };
    let late = malformed(|graph| graph.node[0].input[0] = "z".into());
    assert!(late.contains("uses `z` before"), "{late}");
    let twice = malformed(|graph| graph.node.push(graph.node[0].clone()));
    assert!(twice.contains("produce `y`"), "{twice}");
    let nothing = malformed(|graph| graph.output[0].name = "q".into());
    assert!(nothing.contains("nothing produces the output `q`"), "{nothing}");
}

/// Returns the sorted file names of a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn a_model_that_is_replaced_half_way_keeps_its_own_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.onnx");
    let old = Model::from_bytes(small().encode_to_vec().into()).unwrap();
    old.stage(&path, 1000).unwrap().commit().unwrap();
    let mut proto = small();
    proto.graph.as_mut().unwrap().initializer[0] = initializer("w", &noisy(3, &[40, 60]));
    let new = Model::from_bytes(proto.encode_to_vec().into()).unwrap();
    // Simulates a process that ends between the two renames.
    let before = names(folder.path());
    let aside = folder.path().join("aside");
    std::fs::create_dir(&aside).unwrap();
    new.stage(aside.join("large.onnx"), 1000)
        .unwrap()
        .commit()
        .unwrap();
    let data = names(&aside).pop().unwrap();
    std::fs::rename(aside.join(&data), folder.path().join(&data)).unwrap();
    std::fs::remove_dir_all(&aside).unwrap();
    assert_eq!(names(folder.path()).len(), before.len() + 1);
    assert_eq!(Model::read(&path).unwrap(), old);
    // The next write removes the weights of previous models.
    new.stage(&path, 1000).unwrap().commit().unwrap();
    assert_eq!(Model::read(&path).unwrap(), new);
    assert_eq!(names(folder.path()), ["large.onnx", &data]);
}

#[test]
fn weights_beside_the_model_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let model = Model::from_bytes(small().encode_to_vec().into()).unwrap();
    let path = folder.path().join("large.onnx");
    model.stage(&path, 1000).unwrap().commit().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 1000);
    let names = names(folder.path());
    assert!(names[1].ends_with(".data"), "{names:?}");
    let data = std::fs::metadata(folder.path().join(&names[1]));
    assert_eq!((names.len(), data.unwrap().len()), (2, 40 * 60 * 4));
    assert_eq!(Model::read(&path).unwrap(), model);
    let refused = Model::from_bytes(std::fs::read(&path).unwrap().into())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("weight `w` is stored outside"), "{refused}");
}

#[test]
fn weights_elsewhere_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, vec![0; 40 * 60 * 4]).unwrap();
    let inner = folder.path().join("model");
    std::fs::create_dir(&inner).unwrap();
    for location in [secret.to_str().unwrap(), "../secret", "", ".", "a/../../secret"] {
        let error = Model::read(with_weight_at(&inner, location)).unwrap_err();
        assert!(
            matches!(error, GraphError::ExternalData { .. }),
            "{location}: {error}"
        );
    }
    let absent = Model::read(with_weight_at(&inner, "absent.data")).unwrap_err();
    assert!(absent.to_string().contains("absent.data"), "{absent}");
    std::fs::write(inner.join("short.data"), [0; 8]).unwrap();
    let mut path = with_weight_at(&inner, "short.data");
    assert!(
        Model::read(&path).unwrap().weight("w").is_err(),
        "the file is too small for a 40 x 60 matrix"
    );
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&secret, inner.join("link.data")).unwrap();
        path = with_weight_at(&inner, "link.data");
        let error = Model::read(&path).unwrap_err().to_string();
        assert!(error.contains("leaves the model's folder"), "{error}");
    }
}

#[test]
fn a_model_is_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let link = folder.path().join("link.onnx");
    std::os::unix::fs::symlink("inner/model.onnx", &link).unwrap();
    let model = Model::from_bytes(small().encode_to_vec().into()).unwrap();
    // The first write creates the file, the second replaces it.
    for _ in 0..2 {
        model.write(&link).unwrap();
        assert!(link.is_symlink());
        assert_eq!(Model::read(&link).unwrap(), model);
        assert_eq!(names(&inner), ["model.onnx"]);
    }
    // External weights are next to the model.
    model.stage(&link, 1000).unwrap().commit().unwrap();
    assert_eq!(Model::read(inner.join("model.onnx")).unwrap(), model);
    assert_eq!((names(&inner).len(), names(folder.path()).len()), (2, 2));
}

#[test]
fn uncommitted_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.onnx");
    std::fs::write(&path, "an earlier model").unwrap();
    let model = Model::from_bytes(small().encode_to_vec().into()).unwrap();
    let staged = model.stage(&path, 1000).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    drop(staged);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read(&path).unwrap(), b"an earlier model");
}

#[test]
fn a_failed_write_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let model = Model::from_bytes(small().encode_to_vec().into()).unwrap();
    let target = folder.path().join("taken");
    std::fs::create_dir(&target).unwrap();
    assert!(matches!(model.write(&target), Err(GraphError::Write { .. })));
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "temporary files were not removed"
    );
}

#[test]
fn metadata_is_set_and_found() {
    let mut model = Model::from_bytes(small().encode_to_vec().into()).unwrap();
    assert_eq!(model.metadata("classes"), None);
    model.set_metadata("classes", "a,b");
    model.set_metadata("classes", "a,b,c");
    let again = Model::from_bytes(model.to_bytes().unwrap().into()).unwrap();
    assert_eq!(again.metadata("classes"), Some("a,b,c"));
}

#[test]
fn open_axes_take_the_image_size_that_is_given() {
    use crate::build::{Axis, value};
    let named = |name: &str| Axis::Named(name.to_owned());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let write = |axes: &[Axis]| {
        let input = value("x", crate::onnx::data_type::FLOAT, axes);
        let graph = GraphProto {
            node: vec![node("GlobalAveragePool", &["x"], &["y"])],
            input: vec![input],
            output: vec![value("y", crate::onnx::data_type::FLOAT, axes)],
            ..GraphProto::default()
        };
        std::fs::write(&path, model(17, graph).encode_to_vec()).unwrap();
    };
    write(&[named("n"), named("c"), named("h"), named("w")]);
    let read = |image_size: Option<usize>| {
        let interface = Interface {
            image_size,
            ..Interface::default()
        };
        Model::read_as(&path, &interface)
    };
    let sized = |size| read(Some(size));
    let size = |size: Option<usize>| match read(size).unwrap_err() {
        GraphError::InputShape { size, .. } => size,
        error => panic!("{error}"),
    };
    assert_eq!(size(None), InputSize::Open(224));
    let network = sized(96).unwrap().network().unwrap();
    assert_eq!(network.input.shape.dims(), [3, 96, 96]);
    assert_eq!(network.output.shape.dims(), [3, 1, 1]);
    write(&[named("n"), Axis::Fixed(3), Axis::Fixed(64), Axis::Fixed(64)]);
    assert!(sized(64).is_ok());
    let error = sized(96).unwrap_err().to_string();
    assert!(error.contains("fixed to 64"), "{error}");
    assert_eq!(size(Some(96)), InputSize::Fixed);
    // The width is known, or the input is not an image.
    write(&[named("n"), Axis::Fixed(3), named("h"), Axis::Fixed(64)]);
    assert_eq!(size(None), InputSize::Open(64));
    write(&[named("n"), named("h"), Axis::Fixed(64), Axis::Fixed(3)]);
    assert_eq!(size(None), InputSize::Unfit);
}

#[test]
fn an_output_is_selected_with_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let graph = GraphProto {
        node: vec![
            node("Mul", &["image", "a"], &["scaled"]),
            node("Relu", &["scaled"], &["pooled"]),
            node("Mul", &["text", "b"], &["words"]),
        ],
        input: vec![batched("image", &[4]), batched("text", &[4])],
        output: vec![
            batched("scaled", &[4]),
            batched("pooled", &[4]),
            batched("words", &[4]),
        ],
        initializer: vec![
            initializer("a", &noisy(1, &[4])),
            initializer("b", &noisy(2, &[4])),
        ],
        ..GraphProto::default()
    };
    std::fs::write(&path, model(17, graph).encode_to_vec()).unwrap();
    let read = |output: &str| {
        let interface = Interface {
            output: Some(output.to_owned()),
            ..Interface::default()
        };
        Model::read_as(&path, &interface)
    };
    let pooled = read("pooled").unwrap();
    let network = pooled.network().unwrap();
    assert_eq!(
        (network.input.name.as_str(), network.output.name.as_str()),
        ("image", "pooled")
    );
    assert_eq!((pooled.nodes().len(), pooled.graph().initializer.len()), (2, 1));
    assert_eq!(read("words").unwrap().nodes().len(), 1);
    // An output can be used by other layers.
    assert_eq!(read("scaled").unwrap().nodes().len(), 1);
    let unknown = read("logits").unwrap_err().to_string();
    assert!(unknown.contains("scaled, pooled, words"), "{unknown}");
    let graph = Model::from_proto(crate::read::decode(std::fs::read(&path).unwrap().into()).unwrap());
    let mut graph = graph.unwrap().graph().clone();
    graph.input.truncate(1);
    graph.node.truncate(2);
    graph.output.truncate(2);
    std::fs::write(&path, model(17, graph).encode_to_vec()).unwrap();
    let several = Model::read(&path).unwrap_err();
    assert!(
        matches!(&several, GraphError::Outputs { names } if names == &["scaled", "pooled"]),
        "{several}"
    );
}
