//! The main job and state sharing on third-party servers started by `cargo xtask stores`.

use crate::harness::{Scratch, binary, events, series};
use crate::state::{check_shared_state, hosts};
use frostline_e2e::{HostProcess, RealStore, finish};
use frostline_objects::Store;
use std::fs;
use std::path::Path;
use std::process::Command;

macro_rules! on {
    ($($server:ident),*) => {$(
        mod $server {
            on!(of $server: photos_in_a_bucket_train_like_photos_in_a_folder, a_photo_that_is_replaced_ends_the_job,
                wrong_credentials_end_the_job_and_are_not_repeated, two_hosts_share_state);
        }
    )*};
    (of $server:ident: $($test:ident),*) => {$(
        #[test]
        fn $test() {
            super::$test(&super::running(stringify!($server)));
        }
    )*};
}

on!(azurite, fake_gcs, swift, moto);

fn running(name: &str) -> RealStore {
    RealStore::running(name).unwrap()
}

/// Uploads the photos of `scratch` to the bucket and returns their root.
fn uploaded(scratch: &Scratch, server: &RealStore) -> String {
    let root = server.root("shop photos");
    put(server, &root, &scratch.path("photos"), Path::new(""));
    root
}

/// Uploads the files in `folder`/`below` to the root, with keys relative to `folder`.
fn put(server: &RealStore, root: &str, folder: &Path, below: &Path) {
    for entry in fs::read_dir(folder.join(below)).unwrap() {
        let below = below.join(entry.unwrap().file_name());
        match fs::read(folder.join(&below)) {
            Ok(bytes) => {
                let store = Store::open_with(root, server.settings()).unwrap();
                let runtime = tokio::runtime::Runtime::new().unwrap();
                runtime
                    .block_on(store.put(below.to_str().unwrap(), bytes.into()))
                    .unwrap();
            }
            Err(_) => put(server, root, folder, &below),
        }
    }
}

fn photos_in_a_bucket_train_like_photos_in_a_folder(server: &RealStore) {
    let scratch = Scratch::with_photos(6, 2);
    let root = uploaded(&scratch, server);
    let local = series(&events(&scratch.train(&["--split", "features"])), "step", "loss");
    let mut train = scratch.train_command(&["--split", "features", "--data", &root]);
    let run = finish(train.envs(server.settings())).unwrap();
    assert_eq!(series(&events(&run), "step", "loss"), local);
    server
        .record("training job", "same losses as with a local folder")
        .unwrap();
}

fn a_photo_that_is_replaced_ends_the_job(server: &RealStore) {
    let scratch = Scratch::with_photos(6, 2);
    let root = uploaded(&scratch, server);
    let class = scratch.class("train", 1);
    let photo = fs::read_dir(&class).unwrap().next().unwrap().unwrap().path();
    let key = photo
        .strip_prefix(scratch.path("photos"))
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    // More epochs than the trainer prefetches.
    let mut train = scratch.train_command(&["--split", "features", "--data", &root, "--epochs", "500"]);
    let run = Scratch::disturb(train.envs(server.settings()), || {
        let other = scratch.class("train", 0);
        let other = fs::read_dir(other).unwrap().next().unwrap().unwrap().path();
        let store = Store::open_with(&root, server.settings()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime
            .block_on(store.put(&key, fs::read(other).unwrap().into()))
            .unwrap();
    });
    assert_eq!(run.code, Some(1), "{run:?}");
    let error = run.failure().unwrap()["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains(&key) && error.contains("was replaced since it was listed"),
        "{error}"
    );
    server
        .record("replaced during a job", "the job fails and names the photo")
        .unwrap();
}

fn wrong_credentials_end_the_job_and_are_not_repeated(server: &RealStore) {
    let Some(settings) = server.wrong_settings() else {
        server
            .record(
                "job with wrong credentials",
                "not tried: it accepts any credentials",
            )
            .unwrap();
        return;
    };
    let scratch = Scratch::with_photos(2, 1);
    let root = server.root("refused");
    let mut train = scratch.train_command(&["--data", &root]);
    let run = finish(train.envs(&settings)).unwrap();
    let secrets: Vec<_> = settings
        .iter()
        .filter(|(name, _)| name.ends_with("KEY"))
        .collect();
    for (name, secret) in secrets {
        scratch.assert_failed(&run, &["refuses access", name, &root]);
        assert!(
            !run.stderr.contains(secret.as_str()) && !run.stdout.contains(secret.as_str()),
            "{run:?}"
        );
    }
    server
        .record("job with wrong credentials", "the error names the setting")
        .unwrap();
}

fn two_hosts_share_state(server: &RealStore) {
    let scratch = Scratch::with_photos(4, 1);
    let state = server.root("state");
    let start = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.envs(server.settings());
        HostProcess::start_as(
            command,
            scratch.folder(),
            scratch.path("photos").to_str().unwrap(),
            arguments,
        )
    };
    if !server.supports_conditional_creation() {
        let local = scratch.path("one");
        let arguments = ["--state", &state, "--local", local.to_str().unwrap()];
        assert!(start(&arguments).is_err(), "the state would lose changes");
        server
            .record(
                "state of two hosts",
                "refused at startup: no conditional creation",
            )
            .unwrap();
        return;
    }
    let hosts = hosts(&scratch, &state, |arguments| start(arguments).unwrap());
    check_shared_state(&scratch, hosts, &[]);
    server.record("state of two hosts", "shared; one killed").unwrap();
}
