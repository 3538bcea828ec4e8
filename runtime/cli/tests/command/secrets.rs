//! Tests that no output contains a password of an address.

use super::{backbone, frostline, repository};
use std::path::Path;
use std::process::Output;

const PASSWORD: &str = "geheim";

/// Addresses with a password on a port without a listener, some of them misspelled.
const ADDRESSES: [&str; 7] = [
    "https://me:geheim@127.0.0.1:1",
    "--=http://me:geheim@127.0.0.1:1",
    "http://me:ge/heim@127.0.0.1:1",
    "http://me:ge?heim@127.0.0.1:1",
    "http:/me:geheim@127.0.0.1:1",
    "https:\\\\me:geheim@127.0.0.1:1",
    "ftp://me:geheim@127.0.0.1:1",
];

/// Addresses of hosts without a scheme. As data, these are the names of folders.
const WITHOUT_SCHEME: [&str; 2] = ["me:geheim@127.0.0.1:1", "//me:geheim@127.0.0.1:1"];

/// Checks that a command failed without repeating the password in part or as a whole.
fn assert_secret(case: &str, failed: &Output) {
    assert!(!failed.status.success(), "{case}: {failed:?}");
    let text = String::from_utf8_lossy(&[&failed.stdout[..], &failed.stderr].concat()).into_owned();
    assert!(text.contains("127.0.0.1:1"), "{case}: {text}");
    for secret in [PASSWORD, "ge/", "heim@", "me:ge"] {
        assert!(!text.contains(secret), "{case}: {text}");
    }
}

/// Runs `command` with the logs of `-vv`. `--=address` stands for a value in the same word as its flag.
fn run(command: &str, flag: &str, address: &str) -> Output {
    let model = backbone();
    let words = command.split(' ');
    let mut words: Vec<&str> = words
        .map(|word| if word == "{model}" { &model } else { word })
        .collect();
    let joined = format!("{flag}={}", address.trim_start_matches("--="));
    match address.strip_prefix("--=") {
        Some(_) => words.push(&joined),
        None => words.extend([flag, address]),
    }
    words.push("-vv");
    frostline(&words)
}

#[test]
fn passwords_in_flags_are_not_repeated() {
    for command in [
        "doctor",
        "train --json --model {model} --freeze features --out unused.onnx",
        "plan --model {model} --freeze features",
        "eval --model {model}",
        "extract --model {model} --cut features --out unused.arrow",
        "profile --model {model}",
        "model quantize {model} --out unused.onnx",
        "serve --state unused --token-file unused",
    ] {
        for address in ADDRESSES {
            assert_secret(&format!("{command} {address}"), &run(command, "--data", address));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path());
    let photos = repository("models/zoo/demo/photos");
    let data = format!("--data {} --token-file {token}", photos.to_str().unwrap());
    for command in [
        format!("doctor --token-file {token}"),
        format!("train --json --model {{model}} --freeze features --out unused.onnx {data}"),
        format!("plan --model {{model}} --freeze features {data}"),
        format!("eval --model {{model}} {data}"),
        format!("extract --model {{model}} --cut features --out unused.arrow {data}"),
        format!("profile --model {{model}} {data}"),
        format!("model list --token-file {token}"),
        format!("guest list --token-file {token}"),
    ] {
        for address in ADDRESSES.iter().chain(&WITHOUT_SCHEME) {
            assert_secret(&format!("{command} {address}"), &run(&command, "--host", address));
        }
    }
}

/// Writes a token and returns the path of its file.
fn token(folder: &Path) -> String {
    let file = folder.join("token");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef").unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn passwords_in_files_are_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let model = backbone();
    let photos = repository("models/zoo/demo/photos");
    let photos = photos.to_str().unwrap();
    let token = token(folder.path());
    let file = folder.path().join("settings.toml");
    let path = file.to_str().unwrap();
    for address in ADDRESSES {
        let address = address.trim_start_matches("--=").replace('\\', "\\\\");
        let job = format!("model = \"{model}\"\nfreeze = \"features\"\n");
        let data = format!("data = \"{address}\"\n");
        let hosts =
            format!("data = \"{photos}\"\n[hosts]\nhost = [\"{address}\"]\ntoken_file = \"{token}\"\n");
        for (text, words) in [
            (job.clone() + &data, &["train", "-vv", "--job", path][..]),
            (job + &hosts, &["train", "-vv", "--job", path]),
            (
                format!("data = [\"{address}\"]\n"),
                &["serve", "-vv", "--config", path],
            ),
        ] {
            std::fs::write(&file, &text).unwrap();
            assert_secret(&text, &frostline(words));
        }
    }
}
