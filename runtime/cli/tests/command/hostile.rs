//! Tests the command with a malicious host.

use super::{STEERING, backbone, frostline};
use frostline_fake_host::{FakeHost, Reply};
use frostline_wire::{ErrorBody, ErrorClass, ObjectPage};
use std::process::Output;

/// Runs `frostline train` with a host that returns this listing.
fn trained_at(listing: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    let model = backbone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let host = runtime.block_on(FakeHost::start(move |number, parts, _| {
        if parts.uri.path() == "/v1/objects" {
            return listing(number);
        }
        Reply::Refused(404, ErrorClass::NotFound, None)
    }));
    let runs = folder.path().join("runs");
    let token = token.to_str().unwrap();
    let runs = runs.to_str().unwrap();
    let flags = [
        &[
            "train",
            "--host",
            &host.url,
            "--token-file",
            token,
            "--runs",
            runs,
        ][..],
        &["--feature-cache", "off", "--data", "s3://bucket/photos"],
        &["--freeze", "features", "--model", &model],
    ]
    .concat();
    frostline(&flags)
}

#[test]
fn a_job_ends_at_a_listing_that_never_does() {
    let output = trained_at(|number| {
        Reply::json(&ObjectPage {
            next: Some(format!("{number:09}")),
            ..ObjectPage::default()
        })
    });
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("empty pages"), "{said}");
}

#[test]
fn a_refusal_does_not_steer_the_terminal() {
    let output = trained_at(|_| {
        let refusal = ErrorBody {
            class: ErrorClass::Request,
            message: format!("no{STEERING}"),
        };
        Reply::Answered(400, serde_json::to_vec(&refusal).unwrap().into())
    });
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no\\u001b]0;owned") && !said.contains('\u{1b}'),
        "{said}"
    );
}
