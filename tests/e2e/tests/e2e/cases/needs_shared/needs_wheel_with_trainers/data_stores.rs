//! Data of jobs: shards, stores and files that were replaced.

use super::case::Case;
use crate::harness::frostline;
use frostline_e2e::{Finished, finish, repository};
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Store of a case, served by its script until this value is dropped.
struct Served(Child);

impl Served {
    fn start(case: &Case) -> Self {
        let python = env::var_os("FROSTLINE_TRAINERS_PYTHON").expect("FROSTLINE_TRAINERS_PYTHON is not set");
        let mut child = Command::new(python)
            .args(["make.py", "--serve"])
            .current_dir(case.path(""))
            .env("FROSTLINE_REPO", repository())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("serving"), "{line}");
        Self(child)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn backbone() -> String {
    let path = repository().join("models/zoo/demo/backbone.onnx");
    path.to_str().unwrap().to_owned()
}

/// Trains the head of the demo's backbone on `s3://photos` of the store on `host`.
fn train(case: &Case, host: &str, settings: &[(&str, &str)], flags: &[&str]) -> Finished {
    let out = case.path("t.onnx");
    finish(
        frostline()
            .args(["train", "--model", &backbone(), "--data", "s3://photos"])
            .args(["--freeze", "features", "--epochs", "1", "--out"])
            .arg(out)
            .args(flags)
            .current_dir(case.path(""))
            .envs([
                ("AWS_ACCESS_KEY_ID", "id"),
                ("AWS_SECRET_ACCESS_KEY", "key"),
                ("AWS_REGION", "us-east-1"),
            ])
            .env("AWS_ENDPOINT_URL", format!("http://{host}"))
            .envs(settings.iter().copied()),
    )
    .unwrap()
}

#[test]
fn a_large_attribute_does_not_refuse_the_shard() {
    let case = Case::generate("03-pax-attributes");
    let trained = case.frostline(&[
        "train",
        "--model",
        &backbone(),
        "--data",
        "data",
        "--freeze",
        "features",
        "--epochs",
        "2",
        "--out",
        "t.onnx",
    ]);
    assert_eq!(trained.code, Some(0), "{trained:?}");
    assert!(case.path("t.onnx").exists());
}

#[test]
fn archived_objects_are_named_with_their_storage_class() {
    let case = Case::copy("10-archived-objects");
    let _store = Served::start(&case);
    let refused = train(&case, "127.0.0.1:9062", &[], &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let error = &refused.stderr;
    assert!(
        error.contains("DEEP_ARCHIVE") && error.contains("restore"),
        "{error}"
    );
    assert!(!error.contains("AWS_ACCESS_KEY_ID"), "{error}");
    let skipped = train(&case, "127.0.0.1:9062", &[], &["--on-bad-sample", "skip"]);
    assert_eq!(skipped.code, Some(0), "{skipped:?}");
}

#[test]
fn a_store_that_requires_the_bucket_in_the_host_name_is_read() {
    let case = Case::copy("11-virtual-host-only");
    let _store = Served::start(&case);
    let refused = train(&case, "127.0.0.1:9063", &[], &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let error = &refused.stderr;
    assert!(error.contains("AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true"), "{error}");
    assert!(
        error.contains("https://BUCKET.HOST") && !error.contains("AWS_ACCESS_KEY_ID"),
        "{error}"
    );
    // Resolvers that do not know names below localhost cannot run the second command.
    use std::net::ToSocketAddrs;
    if ("photos.localhost", 9063).to_socket_addrs().is_ok() {
        let settings = [
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true"),
        ];
        let trained = train(&case, "photos.localhost:9063", &settings, &[]);
        assert_eq!(trained.code, Some(0), "{trained:?}");
    }
}

#[test]
fn a_replaced_file_with_the_same_version_is_read_again() {
    let case = Case::copy("jobs");
    let ran = case.python("stale_cache.py", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("fresh") && !ran.stdout.contains("stale"),
        "{}",
        ran.stdout
    );
}
