//! Hints: for each kind, a command fails, and the commands that it suggests succeed.

use crate::admin_host::AdminHost;
use crate::harness::{Scratch, demo, frostline, sorted};
use frostline_e2e::{Finished, finish};
use frostline_graph::Model;
use frostline_graph::build::{Axis, batched, model as network, node, value};
use frostline_graph::onnx::{GraphProto, TensorProto, ValueInfo, data_type};
use prost::Message;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Values for flags whose value only the user knows.
type Values<'a> = &'a [(&'a str, &'a str)];

/// Runs `command`, which must fail, then each suggested command, which must succeed. Returns the suggestions.
pub(crate) fn follow(command: &Command, values: Values) -> Vec<Value> {
    let words: Vec<String> = command
        .get_args()
        .map(|word| word.to_str().unwrap().to_owned())
        .collect();
    let failed = run(&words, command);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let failure = failed.failure().unwrap();
    let steps = failure["next"].as_array().cloned().unwrap_or_default();
    assert!(!steps.is_empty(), "no hint: {failure}");
    assert!(
        !failure["error"].as_str().unwrap().contains("--"),
        "the cause names a flag: {failure}"
    );
    for step in &steps {
        let done = run(&suggested(&words, step, values), command);
        assert_eq!(done.code, Some(0), "{step}: {done:?}");
    }
    steps
}

/// Runs a command with the program and the environment of `like`.
fn run(words: &[String], like: &Command) -> Finished {
    let mut command = Command::new(like.get_program());
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    finish(command.args(words)).unwrap()
}

/// Returns the command line that `step` suggests after `words` failed.
fn suggested(words: &[String], step: &Value, values: Values) -> Vec<String> {
    if let Some(other) = step.get("run") {
        let other = other.as_array().unwrap().iter();
        let other = other.map(|word| word.as_str().unwrap().to_owned());
        return other.chain(["--json".to_owned()]).collect();
    }
    let mut words = words.to_vec();
    for name in step["unset"].as_array().into_iter().flatten() {
        remove(&mut words, name.as_str().unwrap());
    }
    for (name, value) in step["set"].as_object().into_iter().flatten() {
        remove(&mut words, name);
        words.push(flag(name));
        match value {
            Value::String(value) => words.push(value.clone()),
            Value::Null => {
                let known = values.iter().find(|(flag, _)| flag == name);
                words.push(known.expect(name).1.to_owned());
            }
            _ => {}
        }
    }
    words
}

fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

/// Removes a flag and its value, if any.
fn remove(words: &mut Vec<String>, name: &str) {
    let Some(start) = words.iter().position(|word| *word == flag(name)) else {
        return;
    };
    let has_value = words.get(start + 1).is_some_and(|next| !next.starts_with("--"));
    words.drain(start..start + 1 + usize::from(has_value));
}

fn train(scratch: &Scratch, flags: &[&str], values: Values) -> Vec<Value> {
    follow(&scratch.train_command(flags), values)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Writes a table with a line for each photo, and returns its path.
fn table(scratch: &Scratch, header: &str, row: impl Fn(usize) -> &'static str, skip: usize) -> String {
    let photos = scratch.path("photos");
    let mut table = format!("file,{header}\n");
    let mut files = Vec::new();
    for part in ["train", "validation"] {
        for class in sorted(&photos.join(part)) {
            files.extend(sorted(&class));
        }
    }
    for (index, file) in files.iter().enumerate().skip(skip) {
        let key = text(file.strip_prefix(&photos).unwrap());
        writeln!(table, "{key},{}", row(index)).unwrap();
    }
    let file = scratch.path("table.csv");
    fs::write(&file, table).unwrap();
    text(&file)
}

/// Writes a file that is not an image into a class of the training part.
fn spoil(scratch: &Scratch) {
    fs::write(scratch.class("train", 1).join("text.jpg"), b"this is no image").unwrap();
}

fn newest_run(scratch: &Scratch) -> String {
    text(sorted(&scratch.path("runs")).last().unwrap())
}

#[test]
fn sizes_and_cuts_of_networks() {
    let scratch = Scratch::with_photos(4, 2);
    // Any size fits, and the file names no preprocessing.
    let mut proto = Model::read(demo("backbone.onnx")).unwrap().into_proto();
    let axes = ["batch", "channels", "height", "width"].map(|name| Axis::Named(name.to_owned()));
    proto.graph.as_mut().unwrap().input = vec![value("image", data_type::FLOAT, &axes)];
    proto.metadata_props.clear();
    let any_size = scratch.path("any_size.onnx");
    fs::write(&any_size, proto.encode_to_vec()).unwrap();
    let steps = train(&scratch, &["--model", &text(&any_size)], &[]);
    assert_eq!(steps, [serde_json::json!({"set": {"image_size": "224"}})]);
    train(&scratch, &["--image-size", "64"], &[]);
    let steps = train(&scratch, &["--freeze", "stage9"], &[]);
    assert_eq!(steps[0]["run"][1], "show");
    train(&scratch, &["--split", "stage9"], &[]);
}

#[test]
fn layers_that_are_not_differentiable_are_frozen() {
    let weight = |name: &str, dims: [usize; 2]| TensorProto {
        name: name.to_owned(),
        data_type: data_type::FLOAT,
        dims: dims.map(|dim| dim as i64).into(),
        float_data: vec![0.1; dims.iter().product()],
        ..TensorProto::default()
    };
    let graph = GraphProto {
        node: vec![
            node("Flatten", &["x"], &["flat"]),
            node("MatMul", &["flat", "first"], &["hidden"]),
            node("Tan", &["hidden"], &["bent"]),
            node("MatMul", &["bent", "head"], &["logits"]),
        ],
        initializer: vec![weight("first", [192, 4]), weight("head", [4, 3])],
        input: vec![batched("x", &[3, 8, 8])],
        output: vec![batched("logits", &[3])],
        ..GraphProto::default()
    };
    let scratch = Scratch::with_photos(4, 2);
    let file = scratch.path("model.onnx");
    fs::write(&file, network(17, graph).encode_to_vec()).unwrap();
    train(&scratch, &["--model", &text(&file), "--freeze", "flat"], &[]);
}

#[test]
fn classifiers_that_cannot_be_kept_or_are_missing() {
    let scratch = Scratch::with_photos(4, 2);
    train(&scratch, &["--head", "keep"], &[]);
    train(&scratch, &["--standardize", "--freeze", "stage3.0"], &[]);
    let tuned = scratch.path("tuned.onnx");
    let first = scratch.path("first.onnx");
    fs::copy(&tuned, &first).unwrap();
    let both = ["--model", &text(&first), "--head", "keep", "--standardize"];
    assert_eq!(train(&scratch, &both, &[]).len(), 2);
    let whole = Model::read(demo("backbone.onnx")).unwrap();
    let maps = whole.network().unwrap().named("stage3.0").unwrap().name.clone();
    let file = scratch.path("headless.onnx");
    whole.slice(None, Some(&maps)).unwrap().write(&file).unwrap();
    let [model, out, runs] = [text(&file), text(&tuned), text(&scratch.path("runs"))];
    let mut command = frostline();
    command.args([
        "train", "--json", "--model", &model, "--out", &out, "--runs", &runs,
    ]);
    command
        .args(["--epochs", "1", "--data"])
        .arg(scratch.path("photos"));
    follow(&command, &[]);
}

#[test]
fn divisions_of_the_data() {
    let scratch = Scratch::with_photos(5, 2);
    train(&scratch, &["--validation", "0.2"], &[]);
    let undivided = text(&scratch.path("photos/train"));
    let steps = train(&scratch, &["--data", &undivided], &[]);
    assert_eq!(steps, [serde_json::json!({"set": {"validation": "0.2"}})]);
    // The model was trained on images that another seed holds out.
    let first = scratch.path("first.onnx");
    fs::copy(scratch.path("tuned.onnx"), &first).unwrap();
    let other = [
        "--model",
        &text(&first),
        "--data",
        &undivided,
        "--head",
        "keep",
        "--validation",
        "0.2",
        "--validation-seed",
        "7",
    ];
    train(&scratch, &other, &[]);
}

#[test]
fn tables_of_labels() {
    let scratch = Scratch::with_photos(4, 2);
    let labels = table(&scratch, "first,second", |row| ["1,0", "0,1"][row % 2], 0);
    let steps = train(&scratch, &["--labels", &labels], &[]);
    assert_eq!(steps[0]["set"]["loss"], "bce");
    train(&scratch, &["--loss", "mse"], &[("labels", &labels)]);
    let numbers = table(&scratch, "first,second", |row| ["1.5,0", "0,2"][row % 2], 0);
    let steps = train(&scratch, &["--labels", &numbers], &[]);
    assert_eq!(steps[0]["set"]["loss"], "mse");
    let some = table(&scratch, "class", |row| ["cat", "dog"][row % 2], 2);
    train(&scratch, &["--labels", &some], &[]);
}

#[test]
fn links_out_of_the_data() {
    let scratch = Scratch::with_photos(4, 2);
    let stored = scratch.path("stored");
    fs::rename(scratch.path("photos"), &stored).unwrap();
    for part in sorted(&stored) {
        for class in sorted(&part) {
            let links = scratch.path("photos").join(class.strip_prefix(&stored).unwrap());
            fs::create_dir_all(&links).unwrap();
            for photo in sorted(&class) {
                std::os::unix::fs::symlink(&photo, links.join(photo.file_name().unwrap())).unwrap();
            }
        }
    }
    let folder = text(scratch.folder());
    train(&scratch, &[], &[("follow_links", &folder)]);
}

#[test]
fn settings_that_need_another_setting() {
    let scratch = Scratch::with_photos(4, 2);
    train(&scratch, &["--objective", "cost"], &[]);
    train(&scratch, &["--export-prefix", "int8"], &[]);
    let later = ["--epochs", "2", "--unfreeze", "2=stage3.0"];
    train(&scratch, &[&["--reproducible"], &later[..]].concat(), &[]);
    train(&scratch, &["--parameters", "{}", "--resize", "128"], &[]);
}

#[test]
fn a_limit_of_memory() {
    let scratch = Scratch::with_photos(4, 2);
    train(&scratch, &["--memory-bytes", "1000", "--split", "input"], &[]);
}

#[test]
fn outputs_of_networks() {
    let scratch = Scratch::with_photos(4, 2);
    let mut proto = Model::read(demo("backbone.onnx")).unwrap().into_proto();
    let graph = proto.graph.as_mut().unwrap();
    let first = graph.output[0].clone();
    graph.node.push(node("Identity", &[&first.name], &["copy"]));
    graph.output.push(ValueInfo {
        name: "copy".to_owned(),
        ..first
    });
    let file = scratch.path("two_outputs.onnx");
    fs::write(&file, proto.encode_to_vec()).unwrap();
    let file = text(&file);
    assert_eq!(train(&scratch, &["--model", &file], &[]).len(), 2);
    assert_eq!(
        train(&scratch, &["--model", &file, "--output", "third"], &[]).len(),
        2
    );
    let host = scratch.host(&[]);
    let (url, token) = (host.url(), text(host.token_file()));
    let host = ["--host", &url, "--token-file", &token];
    assert_eq!(scratch.train(&host).code, Some(0));
    let listed = finish(frostline().args(["model", "list", "--json"]).args(host)).unwrap();
    let uploaded = listed.objects().unwrap()[0]["name"].as_str().unwrap().to_owned();
    let mut show = frostline();
    show.args(["model", "show", "--json", &uploaded]).args(host);
    let steps = follow(show.args(["--image-size", "64", "--output", "copy"]), &[]);
    assert_eq!(steps, [serde_json::json!({"unset": ["image_size", "output"]})]);
}

/// Network whose frozen layers have an input of which a single value is 10,000 times as large as the others, and
/// is multiplied by 0.
fn imprecise_in_int8() -> Vec<u8> {
    let weights = |name: &str, dims: [usize; 2], value: &dyn Fn(usize) -> f32| TensorProto {
        name: name.to_owned(),
        data_type: data_type::FLOAT,
        dims: dims.map(|dim| dim as i64).into(),
        float_data: (0..dims.iter().product()).map(value).collect(),
        ..TensorProto::default()
    };
    let noise: fn(usize) -> f32 = |index| ((index * 7919) % 101) as f32 / 50.0 - 1.0;
    let graph = GraphProto {
        node: vec![
            node("Flatten", &["x"], &["flat"]),
            node("Mul", &["flat", "scales"], &["scaled"]),
            node("MatMul", &["scaled", "first"], &["hidden"]),
            node("Relu", &["hidden"], &["features"]),
            node("MatMul", &["features", "head"], &["logits"]),
        ],
        initializer: vec![
            weights("scales", [1, 192], &|index| {
                if index == 0 { 10_000.0 } else { 1.0 }
            }),
            weights("first", [192, 16], &|index| {
                if index < 16 { 0.0 } else { noise(index) }
            }),
            weights("head", [16, 3], &noise),
        ],
        input: vec![batched("x", &[3, 8, 8])],
        output: vec![batched("logits", &[3])],
        ..GraphProto::default()
    };
    network(17, graph).encode_to_vec()
}

#[test]
fn networks_that_are_imprecise_in_int8() {
    let scratch = Scratch::with_photos(4, 2);
    let file = scratch.path("model.onnx");
    fs::write(&file, imprecise_in_int8()).unwrap();
    let model = ["--model", &text(&file), "--freeze", "features"];
    let steps = train(
        &scratch,
        &[&model[..], &["--prefix-precision", "int8"]].concat(),
        &[],
    );
    assert_eq!(
        steps,
        [
            serde_json::json!({"set": {"prefix_precision": "auto"}}),
            serde_json::json!({"set": {"allow_imprecise": true}})
        ]
    );
}

#[test]
fn commands_that_need_another_argument() {
    let scratch = Scratch::with_photos(4, 2);
    for _ in 0..2 {
        assert_eq!(scratch.train(&[]).code, Some(0));
    }
    let mut report = frostline();
    report
        .args(["report", "--json"])
        .args(sorted(&scratch.path("runs")));
    follow(&report, &[("out", &text(&scratch.path("report.html")))]);
    let mut list = frostline();
    list.args(["cache", "list", "--json"])
        .env_remove("HOME")
        .env_remove("XDG_CACHE_HOME");
    follow(&list, &[("feature_folder", &text(&scratch.path("cache")))]);
    let mut new = frostline();
    new.args(["guest", "new", "photos", "--language", "c", "--json", "--path"]);
    follow(
        new.arg(scratch.folder()),
        &[("path", &text(&scratch.path("guest")))],
    );
}

#[test]
fn admins_of_a_host() {
    let host = AdminHost::new();
    host.add("acme");
    let socket = text(&host.scratch.path("state/admin.sock"));
    let mut remove = frostline();
    remove.args(["admin", "--json", "--socket", &socket, "tenant", "remove", "acme"]);
    let steps = follow(&remove, &[]);
    assert_eq!(steps, [serde_json::json!({"set": {"yes": true}})]);
    let missing = text(&host.scratch.path("missing.sock"));
    let mut list = frostline();
    list.args(["admin", "tenant", "list", "--json", "--socket", &missing]);
    follow(&list, &[("socket", &socket)]);
}

#[test]
fn killed_runs_have_no_model() {
    let scratch = Scratch::with_photos(4, 2);
    let rates = ["--lr-scheduler", "constant", "--warmup-ratio", "0"];
    let mut child = scratch
        .train_command(&[&["--epochs", "500"], &rates[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The events of all epochs do not fit the pipe, so the job waits for this test before its end.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"epoch\":2")));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(lines);
    let folder = newest_run(&scratch);
    let mut again = frostline();
    let photos = text(&scratch.path("photos"));
    again.args(["train", "--json", "--init-from", &folder, "--data", &photos]);
    let steps = follow(&again, &[]);
    assert_eq!(steps, [serde_json::json!({"run": ["train", "--resume", folder]})]);
}

#[test]
fn bad_images_are_skipped() {
    let scratch = Scratch::with_photos(4, 2);
    spoil(&scratch);
    let steps = train(&scratch, &[], &[]);
    let folder = newest_run(&scratch);
    let resumed = ["train", "--resume", &folder, "--on-bad-sample", "skip"];
    assert_eq!(steps, [serde_json::json!({"run": resumed})]);
    let model = text(&demo("backbone.onnx"));
    let out = text(&scratch.path("x.parquet"));
    let mut extract = frostline();
    extract.args(["extract", "--json", "--model", &model, "--out", &out, "--data"]);
    let steps = follow(extract.arg(scratch.path("photos")), &[]);
    assert_eq!(steps, [serde_json::json!({"set": {"on_bad_sample": "skip"}})]);
}

#[test]
fn interrupted_runs_are_resumed_without_other_settings() {
    let scratch = Scratch::with_photos(4, 2);
    let rates = ["--lr-scheduler", "constant", "--warmup-ratio", "0"];
    let mut child = scratch
        .train_command(&[&["--epochs", "100000"], &rates[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"step\"")));
    finish(Command::new("kill").args(["-INT", &child.id().to_string()])).unwrap();
    lines.for_each(drop);
    let stopped = Finished::from(child.wait_with_output().unwrap());
    let failure = stopped.failure().unwrap();
    let folder = newest_run(&scratch);
    let resume = ["train", "--resume", &folder];
    assert_eq!(failure["next"], serde_json::json!([{"run": resume}]));
    // A few epochs more than before end the run, which is allowed at a constant rate.
    let listed = finish(frostline().args(["runs", "--json"]).arg(scratch.path("runs"))).unwrap();
    let done = listed.objects().unwrap()[0]["epochs_done"].as_u64().unwrap();
    let epochs = (done + 2).to_string();
    let mut changed = frostline();
    changed
        .args(resume)
        .args(["--json", "--batch", "2", "--epochs", &epochs]);
    let steps = follow(&changed, &[]);
    assert_eq!(steps, [serde_json::json!({"unset": ["batch"]})]);
}

#[test]
fn a_state_without_a_record_of_revoked_tokens() {
    let scratch = Scratch::with_photos(4, 2);
    let state = scratch.path("state");
    let host = scratch.host(&[]);
    let url = host.url();
    let token = text(host.token_file());
    let trained = scratch.train(&["--host", &url, "--token-file", &token]);
    assert_eq!(trained.code, Some(0), "{trained:?}");
    drop(host);
    let [backup, empty] = ["backup", "empty"].map(|name| text(&scratch.path(name)));
    let saved = finish(frostline().args(["admin", "state", "backup", &text(&state), &backup])).unwrap();
    assert_eq!(saved.code, Some(0), "{saved:?}");
    let mut restore = frostline();
    restore.args(["admin", "state", "restore", &backup, &empty, "--yes", "--json"]);
    let steps = follow(&restore, &[]);
    assert_eq!(steps.len(), 2, "{steps:?}");
}

mod needs_root {
    use super::*;
    use crate::harness::binary;
    use std::os::unix::fs::PermissionsExt;

    /// Writes a program that runs the command as if this machine had this much memory.
    fn with_memory(scratch: &Scratch, kibibytes: u64) -> String {
        let [memory, program] = ["meminfo", "limited"].map(|name| scratch.path(name));
        fs::write(&memory, format!("MemAvailable: {kibibytes} kB\n")).unwrap();
        let script = format!(
            "#!/bin/sh\nif [ -z \"$ALONE\" ]; then ALONE=1 exec unshare --mount \"$0\" \"$@\"; fi\n\
             mount --bind '{}' /proc/meminfo && exec '{}' \"$@\"\n",
            memory.display(),
            binary().display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        text(&program)
    }

    #[test]
    fn a_step_that_does_not_fit_the_memory() {
        let scratch = Scratch::with_photos(4, 2);
        let command = scratch.train_command(&["--freeze", "stage3.0", "--feature-cache", "off"]);
        let train = |kibibytes: u64| {
            let mut limited = Command::new(with_memory(&scratch, kibibytes));
            limited.args(command.get_args());
            limited
        };
        let refused = finish(&mut train(1)).unwrap().failure().unwrap();
        let error = refused["error"].as_str().unwrap();
        let needed = error.split("needs about ").nth(1).expect(error);
        let needed: u64 = needed.split(' ').next().unwrap().parse().unwrap();
        let steps = follow(&train(needed * 3 / 4 / 1024), &[]);
        assert!(
            steps[0]["set"]["gradient_accumulation_steps"].is_string(),
            "{steps:?}"
        );
    }
}

mod needs_guests {
    use super::*;
    use crate::guests::pictures;
    use frostline_needs::built_guest;

    #[test]
    fn a_model_that_needs_its_guest() {
        let scratch = Scratch::new();
        pictures(&scratch);
        let guest = text(&built_guest("own-pixels"));
        let trained = scratch.train(&["--guest", &guest, "--split", "features"]);
        assert_eq!(trained.code, Some(0), "{trained:?}");
        let tuned = scratch.path("tuned.onnx");
        let data = scratch.path("photos");
        let mut eval = frostline();
        eval.args(["eval", "--json", "--model"]).arg(tuned);
        follow(eval.arg("--data").arg(data), &[("guest", &guest)]);
    }
}
