//! Jobs whose network reads token ids and a mask, which a guest computes from the objects.

use crate::harness::{Scratch, events, frostline, series, sorted};
use crate::several_hosts::{host_flags, start_hosts};
use frostline_e2e::{Finished, finish};
use frostline_graph::Model;
use frostline_graph::build::{Axis, float, initializer, int, integers, ints, model, node, value};
use frostline_graph::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use frostline_needs::built_guest;
use frostline_tensor::Tensor;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Number of ids of a text.
const LENGTH: usize = 12;
const WIDTH: usize = 8;
const VOCABULARY: usize = 40;

/// Output of the first layer, and the mask that the second one adds to its scores.
const CUT: &str = "layer0,bias";

fn weight(name: &str, dims: &[usize]) -> TensorProto {
    let count: usize = dims.iter().product();
    let values = (0..count).map(|number| ((number * 37 + name.len() * 11) % 101) as f32 / 101.0 - 0.5);
    initializer(name, &Tensor::f32(dims.to_vec(), values.collect()).unwrap())
}

/// Returns the nodes of a self-attention layer with a residual connection.
fn layer(number: usize, input: &str) -> (Vec<NodeProto>, Vec<TensorProto>) {
    let name = |what: &str| format!("{what}{number}");
    let [query, key, value] = ["query", "key", "value"].map(name);
    let [keys, scores, masked, shares] = ["keys", "scores", "masked", "shares"].map(name);
    let [context, layer] = ["context", "layer"].map(name);
    let weights = [&query, &key, &value].map(|name| weight(&format!("{name}.weight"), &[WIDTH, WIDTH]));
    let project = |to: &str| node("MatMul", &[input, &format!("{to}.weight")], &[to]);
    let nodes = vec![
        project(&query),
        project(&key),
        project(&value),
        node("Transpose", &[&key], &[&keys]).with([ints("perm", &[0, 2, 1])]),
        node("MatMul", &[&query, &keys], &[&scores]),
        node("Add", &[&scores, "bias"], &[&masked]),
        node("Softmax", &[&masked], &[&shares]).with([int("axis", 2)]),
        node("MatMul", &[&shares, &value], &[&context]),
        node("Add", &[input, &context], &[&layer]),
    ];
    (nodes, weights.to_vec())
}

/// Returns an encoder of two layers with a classifier of three classes. The first layers embed ids and turn the mask
/// into a summand of the scores.
fn encoder() -> Model {
    let input = |name: &str| {
        let axes = [Axis::Named("batch".into()), Axis::Fixed(LENGTH)];
        value(name, data_type::INT64, &axes)
    };
    let (first, first_weights) = layer(0, "embedded");
    let (second, second_weights) = layer(1, "layer0");
    let embedding = vec![
        node("Gather", &["table", "input_ids"], &["embedded"]),
        node("Cast", &["attention_mask"], &["kept"]).with([int("to", data_type::FLOAT.into())]),
        node("Sub", &["kept", "one"], &["left_out"]),
        node("Mul", &["left_out", "large"], &["summand"]),
        node("Reshape", &["summand", "row"], &["bias"]),
    ];
    let head = vec![
        node("ReduceMean", &["layer1"], &["pooled"]).with([ints("axes", &[1]), int("keepdims", 0)]),
        node(
            "Gemm",
            &["pooled", "classifier.weight", "classifier.bias"],
            &["scores"],
        )
        .with([float("alpha", 1.0), int("transB", 1)]),
    ];
    let scalar = |name: &str, value: f32| initializer(name, &Tensor::f32(vec![1], vec![value]).unwrap());
    let mut initializer = vec![
        weight("table", &[VOCABULARY, WIDTH]),
        scalar("one", 1.0),
        scalar("large", 10_000.0),
        integers("row", &[0, 1, LENGTH as i64]),
        weight("classifier.weight", &[3, WIDTH]),
        weight("classifier.bias", &[3]),
    ];
    initializer.extend(first_weights);
    initializer.extend(second_weights);
    let graph = GraphProto {
        node: [embedding, first, second, head].concat(),
        initializer,
        input: vec![input("input_ids"), input("attention_mask")],
        output: vec![value(
            "scores",
            data_type::FLOAT,
            &[Axis::Named("batch".into()), Axis::Fixed(3)],
        )],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}

/// Returns the encoder as a network with one `f32` input that hosts do not recognize as a joint one.
fn one_input() -> Model {
    let joint = encoder().with_joint_input().unwrap();
    let mut graph = joint.graph().clone();
    let rename = |name: &mut String| *name = name.replace("frostline.joint/", "divided/");
    for node in &mut graph.node {
        rename(&mut node.name);
        node.input.iter_mut().chain(&mut node.output).for_each(rename);
    }
    graph
        .initializer
        .iter_mut()
        .for_each(|weight| rename(&mut weight.name));
    joint.with_graph(graph).unwrap()
}

/// Returns the ids of a text. Texts of a class share their vocabulary.
fn ids(class: usize, number: usize) -> Vec<u32> {
    let length = 3 + (class + number * 5) % (LENGTH - 2);
    let id = |place: usize| (1 + class * 12 + (place * 7 + number * 3) % 12) as u32;
    (0..length).map(id).collect()
}

/// Writes texts of three classes, each as `encoded` returns it.
fn texts(scratch: &Scratch, encoded: impl Fn(&[u32]) -> Vec<u8>) {
    for (part, count) in [("train", 8), ("validation", 4)] {
        for (class, name) in ["news", "reviews", "sports"].into_iter().enumerate() {
            let folder = scratch.path("photos").join(part).join(name);
            fs::create_dir_all(&folder).unwrap();
            for number in 0..count {
                let ids = ids(class, number + usize::from(part == "validation") * 100);
                fs::write(folder.join(format!("{number}.ids")), encoded(&ids)).unwrap();
            }
        }
    }
}

fn tokens(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

/// Returns the same text as input of the network with a joint input: ids and mask as `f32`.
fn joint_row(ids: &[u32]) -> Vec<u8> {
    let padding = LENGTH - ids.len();
    let values = ids.iter().map(|id| *id as f32).chain(vec![0.0; padding]);
    let mask = vec![1.0; ids.len()].into_iter().chain(vec![0.0; padding]);
    values.chain(mask).flat_map(f32::to_le_bytes).collect()
}

fn written(scratch: &Scratch, model: &Model, name: &str) -> String {
    let file = scratch.path(name);
    model.write(&file).unwrap();
    file.to_str().unwrap().to_owned()
}

fn guest(name: &str) -> String {
    let file: PathBuf = built_guest(name);
    file.to_str().unwrap().to_owned()
}

fn losses(events: &[Value]) -> Vec<f64> {
    series(events, "step", "loss")
}

fn run(arguments: &[&str]) -> Finished {
    finish(frostline().args(arguments)).unwrap()
}

/// Compares the predictions for a folder, and for a file and a text that is too long, with those of an evaluation.
fn assert_predicts_alike(scratch: &Scratch, photos: &str, tuned: &str, guest: &str) {
    let table = scratch.path("predictions.csv").to_str().unwrap().to_owned();
    let common = ["--json", "--model", tuned, "--guest", guest];
    let of_validation = [
        "eval",
        "--data",
        photos,
        "--part",
        "validation",
        "--predictions",
        &table,
    ];
    run(&[&of_validation[..], &common].concat());
    let table = fs::read_to_string(table).unwrap();
    let evaluated: Vec<(&str, &str)> = table
        .lines()
        .skip(1)
        .map(|line| {
            let mut cells = line.split(',');
            let key = cells.next().unwrap();
            (key, cells.nth(1).unwrap())
        })
        .collect();
    assert_eq!(evaluated.len(), 12);

    let folder = format!("{photos}/validation");
    let file = format!("{photos}/{}", evaluated[3].0);
    let long = scratch.path("long.ids");
    fs::write(&long, vec![1; 4 * LENGTH + 4]).unwrap();
    let predict = ["predict", "--batch", "5", &folder, &file, long.to_str().unwrap()];
    let predicted = run(&[&predict[..], &common].concat());
    assert_eq!(predicted.code, Some(1));
    assert!(
        predicted
            .stderr
            .contains("expected 4 bytes for each of 1 to 12 ids")
    );
    let likely: Vec<(String, String)> = predicted
        .stdout
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&line["path"]), text(&line["classes"][0]["class"]))
        })
        .collect();
    let expected = evaluated.iter().chain([&evaluated[3]]);
    let expected = expected.map(|(key, class)| (format!("{photos}/{key}"), (*class).to_owned()));
    assert_eq!(likely, expected.collect::<Vec<_>>());
}

mod needs_guests {
    use super::*;

    #[test]
    fn ids_and_a_mask_are_trained_on_as_the_same_values_in_one_input() {
        let scratch = Scratch::new();
        texts(&scratch, tokens);
        let model = written(&scratch, &encoder(), "encoder.onnx");
        let common = ["--freeze", CUT, "--lr", "0.1", "--epochs", "3", "--batch", "6"];
        let named = guest("tokens");
        let job = [&common[..], &["--model", &model, "--guest", &named]].concat();
        let one = events(&scratch.train(&job));
        assert!(losses(&one).len() >= 12);
        let inside = ["--split", "attention_mask,embedded"];
        let inside = events(&scratch.train(&[&job[..], &inside].concat()));
        assert_eq!(losses(&inside), losses(&one));

        // Two hosts, and features from the cache after the first epoch.
        let hosts = start_hosts(&scratch, 2);
        let reach = host_flags(&hosts);
        let reach: Vec<&str> = reach.iter().map(String::as_str).collect();
        let features = scratch.path("kept").to_str().unwrap().to_owned();
        let kept = ["--feature-cache", "64MiB", "--feature-folder", &features];
        let remote = events(&scratch.train(&[&job[..], &kept, &reach].concat()));
        assert_eq!(losses(&remote), losses(&one));
        assert_eq!(series(&remote, "epoch", "fetched_rows")[1..], [0.0, 0.0]);
        drop(hosts);

        // The same values as `f32`, for a network that divides its only input itself.
        let plain = Scratch::new();
        texts(&plain, joint_row);
        let joint = written(&plain, &one_input(), "joint.onnx");
        let named = guest("plain-nn");
        let job = [&common[..], &["--model", &joint, "--guest", &named]].concat();
        assert_eq!(losses(&events(&plain.train(&job))), losses(&one));
    }

    #[test]
    fn each_tensor_of_a_cut_keeps_its_precision() {
        let scratch = Scratch::new();
        texts(&scratch, tokens);
        let model = written(&scratch, &encoder(), "encoder.onnx");
        let named = guest("tokens");
        let common = [
            "--model", &model, "--guest", &named, "--lr", "0.1", "--epochs", "3",
        ];
        let hosts = start_hosts(&scratch, 1);
        let reach = host_flags(&hosts);
        let reach: Vec<&str> = reach.iter().map(String::as_str).collect();
        let losses_of =
            |flags: &[&str]| losses(&events(&scratch.train(&[&common[..], &reach, flags].concat())));
        let largest_difference = |left: &[f64], right: &[f64]| {
            assert_eq!(left.len(), right.len());
            let pairs = left.iter().zip(right);
            pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };

        // The activations are up to 2, and the summand of the scores is 0 or -10,000. With a common scale, all
        // activations would be equal.
        let exact = losses_of(&["--freeze", CUT]);
        let int8 = losses_of(&["--freeze", CUT, "--encoding", "int8+zstd"]);
        let difference = largest_difference(&exact, &int8);
        assert!(
            difference > 0.0 && difference < 0.01,
            "{difference}: {exact:?} {int8:?}"
        );

        // The mask is an integer on the wire and in the cache.
        let features = scratch.path("kept").to_str().unwrap().to_owned();
        let freeze = ["--freeze", "layer0,attention_mask", "--encoding", "f16"];
        let cache = ["--feature-cache", "64MiB", "--feature-folder", &features];
        let fetched = losses_of(&[&freeze[..], &["--feature-cache", "off"]].concat());
        let cached = losses_of(&[&freeze[..], &cache].concat());
        assert_eq!(cached, fetched);
        let difference = largest_difference(&exact, &fetched);
        assert!(difference > 0.0 && difference < 0.001, "{difference}");
        let stores = sorted(&scratch.path("kept"));
        let about = stores
            .iter()
            .find_map(|store| fs::read_to_string(store.join("about.json")).ok());
        let about: Value = serde_json::from_str(&about.unwrap()).unwrap();
        let tensors = about["row"]["tensors"].as_array().unwrap();
        let dtypes: Vec<&str> = tensors
            .iter()
            .map(|tensor| tensor["dtype"].as_str().unwrap())
            .collect();
        assert_eq!(dtypes.len(), 2, "{tensors:?}");
        assert!(dtypes.contains(&"i64") && dtypes.contains(&"f32"), "{dtypes:?}");
    }

    #[test]
    fn the_tuned_model_takes_ids_and_a_mask() {
        let scratch = Scratch::new();
        texts(&scratch, tokens);
        let model = written(&scratch, &encoder(), "encoder.onnx");
        let named = guest("tokens");
        let job = [
            "--freeze",
            CUT,
            "--model",
            &model,
            "--guest",
            &named,
            "--lr",
            "0.1",
            "--batch",
            "6",
            "--lr-scheduler",
            "constant",
            "--warmup-ratio",
            "0",
            "--epochs",
        ];
        let whole = events(&scratch.train(&[&job[..], &["4"]].concat()));
        let tuned = Model::read_joined(scratch.path("tuned.onnx"), &Default::default()).unwrap();
        let restored = tuned.without_joints().unwrap();
        let inputs = |model: &Model| model.inputs().cloned().collect::<Vec<_>>();
        assert_eq!(inputs(&restored), inputs(&encoder()));
        assert_eq!(
            restored.weight("table").unwrap(),
            encoder().weight("table").unwrap()
        );
        assert_ne!(
            restored.weight("query1.weight").unwrap(),
            encoder().weight("query1.weight").unwrap()
        );

        let photos = scratch.path("photos").to_str().unwrap().to_owned();
        let tuned = scratch.path("tuned.onnx").to_str().unwrap().to_owned();
        let eval = [
            "eval", "--json", "--data", &photos, "--model", &tuned, "--guest", &named,
        ];
        let evaluated = events(&run(&eval));
        let best = evaluated[0]["accuracy"].as_f64().unwrap();
        let accuracies = series(&whole, "epoch", "validation_accuracy");
        assert!(
            accuracies.iter().any(|accuracy| (accuracy - best).abs() < 1e-6),
            "{best} {accuracies:?}"
        );

        assert_predicts_alike(&scratch, &photos, &tuned, &named);

        fs::remove_dir_all(scratch.path("runs")).unwrap();
        scratch.train(&[&job[..], &["2"]].concat());
        let [folder] = &sorted(&scratch.path("runs"))[..] else {
            panic!("more than one run");
        };
        let mut command = frostline();
        command
            .args(["train", "--json", "--epochs", "4", "--resume"])
            .arg(folder);
        let rest = losses(&events(&finish(&mut command).unwrap()));
        assert!(!rest.is_empty());
        assert_eq!(rest, losses(&whole)[losses(&whole).len() - rest.len()..]);
    }

    #[test]
    fn what_only_the_guest_can_compute_is_refused_elsewhere() {
        let scratch = Scratch::new();
        texts(&scratch, tokens);
        let model = written(&scratch, &encoder(), "encoder.onnx");
        let named = guest("tokens");
        for split in ["none", "input"] {
            let refused = scratch.train(&[
                "--freeze", CUT, "--model", &model, "--guest", &named, "--split", split,
            ]);
            scratch.assert_failed(&refused, &["the guest computes the network input"]);
        }
        let without_guest = scratch.train(&["--freeze", CUT, "--model", &model]);
        scratch.assert_failed(
            &without_guest,
            &["input_ids (i64[12])", "attention_mask (i64[12])", "write a guest"],
        );
        let missing = scratch.path("photos").join("missing.ids");
        let refused = run(&[
            "predict",
            "--json",
            "--model",
            &model,
            "--guest",
            &named,
            missing.to_str().unwrap(),
        ]);
        scratch.assert_failed(&refused, &["cannot read", "missing.ids"]);
        // A text that is too long is a bad sample with a reason, like a broken image.
        let folder = scratch.path("photos").join("train/news");
        fs::write(folder.join("long.ids"), vec![1; 4 * LENGTH + 4]).unwrap();
        let refused = scratch.train(&["--freeze", CUT, "--model", &model, "--guest", &named]);
        scratch.assert_failed(
            &refused,
            &["train/news/long.ids", "expected 4 bytes for each of 1 to 12 ids"],
        );
    }
}
