//! The walkthrough in guest/README.md, from `frostline guest new` to `train`.

use crate::harness::{Scratch, demo, events, frostline, series};
use frostline_e2e::{Finished, finish, repository};
use frostline_needs::built_guest;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

fn run(arguments: &[&str]) -> Finished {
    finish(frostline().args(arguments)).unwrap()
}

fn object(run: &Finished) -> Value {
    let mut objects = events(run);
    assert_eq!(objects.len(), 1, "{run:?}");
    objects.remove(0)
}

/// Returns environment variables for compiling to wasm32, empty if rustc supports the target. Otherwise they
/// select the toolchain that `cargo xtask guests` installed.
pub(crate) fn wasm_compiler() -> Vec<(&'static str, PathBuf)> {
    let ask = |arguments: &[&str]| {
        let asked = finish(Command::new("rustc").args(arguments)).unwrap();
        PathBuf::from(asked.stdout.trim())
    };
    if ask(&["--print", "target-libdir", "--target", TARGET]).is_dir() {
        return Vec::new();
    }
    let rustc = repository().join("target/wasm-toolchain/rustc");
    let lld = ask(&["--print", "target-libdir"]).join("../bin/rust-lld");
    assert!(
        rustc.is_file() && lld.is_file(),
        "missing compiler for {TARGET}; run cargo xtask guests to download it"
    );
    vec![
        ("RUSTC", rustc),
        ("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", lld),
    ]
}

/// Creates a project named `mine` and returns the folder.
fn project(scratch: &Scratch, language: &str) -> PathBuf {
    let folder = scratch.path("mine");
    let made = object(&run(&[
        "guest",
        "new",
        "mine",
        "--json",
        "--language",
        language,
        "--path",
        folder.to_str().unwrap(),
    ]));
    assert_eq!(made["name"], "mine");
    folder
}

/// Checks, runs and trains with a newly built component.
fn check_run_and_train(scratch: &Scratch, built: &Value) {
    let component = built["component"].as_str().unwrap();
    assert_eq!(
        std::fs::metadata(component).unwrap().len(),
        built["bytes"].as_u64().unwrap()
    );
    let model = demo("backbone.onnx");
    let model = model.to_str().unwrap();
    let checked = object(&run(&["guest", "check", component, "--model", model, "--json"]));
    assert_eq!(checked["accepted"], true, "{checked}");
    assert!(
        checked["imports"]
            .as_array()
            .unwrap()
            .iter()
            .any(|import| import == "frostline:pushdown/images@0.2.0")
    );
    let cuts = checked["description"]["cuts"].as_array().unwrap();
    assert!(cuts.iter().any(|cut| cut["name"] == "features"), "{checked}");

    let photos = scratch.path("photos");
    let first = scratch.class("train", 0).join("00.jpg");
    let key = first.strip_prefix(&photos).unwrap().to_str().unwrap().to_owned();
    let data = photos.to_str().unwrap();
    let out = scratch.path("rows.parquet");
    let ran = object(&run(&[
        "guest",
        "run",
        component,
        "--data",
        data,
        "--keys",
        &key,
        "--model",
        model,
        "--split",
        "features",
        "--json",
        "--out",
        out.to_str().unwrap(),
    ]));
    assert_eq!(ran["shape"], serde_json::json!([1, 128]));
    assert_eq!(ran["rows"][0]["key"], key);
    assert!(fs::read(out).unwrap().starts_with(b"PAR1"));
    assert_eq!(ran["dtype"], "f32");

    // The guest preprocesses like the stock guest without parameters, so the losses are equal.
    let losses = |arguments: &[&str]| series(&events(&scratch.train(arguments)), "step", "loss");
    let (ours, stock) = (
        losses(&["--split", "features", "--guest", component]),
        losses(&["--split", "features", "--parameters", ""]),
    );
    assert_eq!(ours.len(), stock.len());
    for (ours, stock) in ours.iter().zip(&stock) {
        assert!((ours - stock).abs() < 1e-4, "{ours} against {stock}");
    }
}

#[test]
fn a_project_is_not_written_over() {
    let scratch = Scratch::new();
    let folder = project(&scratch, "c");
    let again = run(&["guest", "new", "mine", "--path", folder.to_str().unwrap()]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("not empty"), "{again:?}");
}

/// Writes pictures in a format that only the guest reads: three classes with different colors.
pub(crate) fn pictures(scratch: &Scratch) {
    for (part, count) in [("train", 6), ("validation", 3)] {
        for (class, color) in [
            ("blue", [20, 40, 220_u8]),
            ("green", [30, 210, 60]),
            ("red", [230, 30, 30]),
        ] {
            let folder = scratch.path("photos").join(part).join(class);
            fs::create_dir_all(&folder).unwrap();
            for number in 0..count {
                let shade = color.map(|value| value - number);
                let picture = [b"P6 8 8 255\n".as_slice(), &shade.repeat(64)].concat();
                fs::write(folder.join(format!("{number}.ppm")), picture).unwrap();
            }
        }
    }
}

mod needs_guests {
    use super::*;

    #[test]
    fn a_new_guest_in_rust_builds_as_it_is_and_trains() {
        let compiler = wasm_compiler();
        let scratch = Scratch::with_photos(4, 2);
        let folder = project(&scratch, "rust");
        // The build folder of our own guests already contains the SDK's dependencies.
        let build = repository().join("target/guests/build");
        let built = finish(
            frostline()
                .args(["guest", "build", "--json"])
                .arg(&folder)
                .envs(compiler)
                .env("CARGO_TARGET_DIR", build),
        );
        let built = object(&built.unwrap());
        assert_eq!(built["name"], "mine");
        check_run_and_train(&scratch, &built);
    }

    #[test]
    fn a_component_of_another_world_is_refused_by_its_import() {
        let other = built_guest("other-world");
        let checked = run(&["guest", "check", other.to_str().unwrap(), "--json"]);
        assert_eq!(checked.code, Some(1));
        let verdict: Value = serde_json::from_str(&checked.stdout).unwrap();
        assert_eq!(verdict["accepted"], false);
        let last = verdict["checks"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["check"], &last["ok"]),
            (&Value::from("imports"), &Value::from(false))
        );
        assert!(
            last["detail"]
                .as_str()
                .unwrap()
                .contains("other:place/sockets@1.2.3")
        );
        assert!(last["detail"].as_str().unwrap().contains("frostline guest new"));
        let failure = checked.failure().unwrap();
        assert!(
            failure["error"].as_str().unwrap().contains("would refuse"),
            "{failure}"
        );
        assert!(
            !failure["error"].as_str().unwrap().contains("sockets"),
            "{failure}"
        );
    }

    #[test]
    fn a_guests_reason_for_refusing_a_network_is_reported() {
        let two_stage = built_guest("two-stage");
        let model = demo("backbone.onnx");
        let checked = run(&[
            "guest",
            "check",
            two_stage.to_str().unwrap(),
            "--model",
            model.to_str().unwrap(),
            "--parameters",
            "nowhere",
        ]);
        assert_eq!(checked.code, Some(1));
        assert!(checked.stdout.contains("describe"), "{}", checked.stdout);
        assert!(
            checked.stdout.contains("must be the name of a cut"),
            "{}",
            checked.stdout
        );
        // The reason is printed only once.
        assert!(
            !checked.stderr.contains("must be the name of a cut"),
            "{}",
            checked.stderr
        );
    }

    #[test]
    fn a_model_trained_on_a_guests_own_input_is_evaluated_through_that_guest() {
        let own = built_guest("own-pixels");
        let scratch = Scratch::new();
        pictures(&scratch);
        let own = own.to_str().unwrap();
        let trained = scratch.train(&["--guest", own, "--split", "features", "--epochs", "3"]);
        let trained = events(&trained);
        let accuracy = &trained.last().unwrap()["validation_accuracy"];

        let (tuned, data) = (scratch.path("tuned.onnx"), scratch.path("photos"));
        let eval = [
            "eval",
            "--json",
            "--model",
            tuned.to_str().unwrap(),
            "--data",
            data.to_str().unwrap(),
        ];
        let refused = run(&eval);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.stderr.contains("'own-pixels'") && refused.stderr.contains("--guest"),
            "{}",
            refused.stderr
        );
        let evaluated = object(&run(&[&eval[..], &["--guest", own]].concat()));
        assert_eq!(&evaluated["accuracy"], accuracy);
        assert_eq!(evaluated["samples"], 9);
    }
}

mod needs_clang {
    use super::*;

    #[test]
    fn a_new_guest_in_c_builds_as_it_is_and_trains() {
        let scratch = Scratch::with_photos(4, 2);
        let folder = project(&scratch, "c");
        let built = object(&run(&["guest", "build", "--json", folder.to_str().unwrap()]));
        assert_eq!(built["name"], "mine");
        check_run_and_train(&scratch, &built);
    }
}
