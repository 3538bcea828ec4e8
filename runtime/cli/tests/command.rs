//! The command line as a shell sees it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::process::{Command, Output};

fn frostline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frostline"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        "train",
        "eval",
        "profile",
        "plan",
        "serve",
        "guest new",
        "guest build",
        "guest check",
        "guest run",
        "guest push",
        "guest list",
        "guest show",
        "model show",
        "model list",
        "admin guest show",
        "admin guest disable",
        "admin model publish",
        "admin model remove",
    ] {
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.push("--help");
        let output = frostline(&arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && text.contains(&format!("  frostline {command}")),
            "{text}"
        );
    }
}

#[test]
fn a_wrong_flag_is_a_usage_error() {
    let output = frostline(&["train", "--modle", "x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--modle"));
}

#[test]
fn an_unknown_encoding_is_a_usage_error_that_names_the_known_ones() {
    let output = frostline(&["train", "--encoding", "f16+gzip"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("f32, u8, f16 or int8") && text.contains("+zstd"),
        "{text}"
    );
}

#[test]
fn completions_know_the_commands() {
    let output = frostline(&["completions", "bash"]);
    let script = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && script.contains("on-bad-sample"));
    for command in ["new", "build", "check", "run", "push"] {
        assert!(
            script.contains(&format!("frostline__subcmd__guest,{command})")),
            "{command}"
        );
    }
}

#[test]
fn the_manual_page_is_roff_and_names_the_commands() {
    let output = frostline(&["man"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && page.contains(".TH frostline 1"),
        "{page}"
    );
    for command in ["train", "serve", "guest", "admin", "man"] {
        assert!(
            page.contains(&format!("frostline\\-{command}(1)")),
            "{command}: {page}"
        );
    }
}

#[test]
fn every_command_has_a_manual_page_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let output = frostline(&["man", "--directory", pages.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let page = |name: &str| std::fs::read_to_string(pages.join(name));
    for name in [
        "frostline.1",
        "frostline-train.1",
        "frostline-guest-push.1",
        "frostline-admin-model-publish.1",
    ] {
        assert!(page(name).unwrap().contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(page("frostline-train.1").unwrap().contains("\\-\\-freeze"));
    assert!(
        page("frostline-lanes.1").is_err(),
        "what nobody types has no page"
    );
}
