//! The wheel as it is installed: the package's own tests and the snippets of its README, each by the interpreter that has it.

#![allow(clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

/// Runs one of the files beside this one by the interpreter that `variable` names; what it skips is said.
fn run(variable: &str, file: &str) {
    let python = std::env::var_os(variable);
    let python = python.unwrap_or_else(|| panic!("{variable} names no interpreter; run cargo xtask test"));
    let output = Command::new(python)
        .args(["-W", "ignore", "-m", "unittest", "--verbose", file])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"))
        // Found as users have it: by the package's own means.
        .env_remove("ORT_DYLIB_PATH")
        .env_remove("PYTHONPATH")
        // What is tested is to happen, not to be remembered; tests of kept rows say so.
        .env("FROSTLINE_FEATURE_CACHE", "off")
        .output()
        .expect("the interpreter cannot be started");
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{}{said}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
    assert!(tested(&said), "nothing was tested, all of it was skipped: {said}");
}

/// Whether unittest ran any of the tests that it found, as it says at its end: `Ran 3 tests in 0.1s`, `OK (skipped=3)`.
fn tested(said: &str) -> bool {
    let number = |from: &str, before: &str| {
        let rest = said.rsplit_once(from).map(|(_, rest)| rest)?;
        let end = rest.find(before)?;
        rest.get(..end)?.parse::<u64>().ok()
    };
    let ran = number("\nRan ", " test").unwrap_or(0);
    let skipped = number("skipped=", ")").or_else(|| number("skipped=", ","));
    // Parts of a test that are skipped count there, and are no test that was not run.
    let is_part = |line: &&str| line.starts_with("  ") && line.contains(" ... skipped ");
    let parts = said.lines().filter(is_part).count() as u64;
    ran + parts > skipped.unwrap_or(0)
}

#[test]
fn a_run_that_skips_everything_tests_nothing() {
    for (said, expected) in [
        ("..\nRan 2 tests in 0.1s\n\nOK\n", true),
        ("s.\nRan 2 tests in 0.1s\n\nOK (skipped=1)\n", true),
        ("ss\nRan 2 tests in 0.1s\n\nOK (skipped=2)\n", false),
        ("s\nRan 1 test in 0.1s\n\nOK (skipped=1)\n", false),
        (
            "ss\nRan 2 tests in 0.1s\n\nOK (skipped=2, expected failures=0)\n",
            false,
        ),
        (
            "a ...\n  a (snippet=4) ... skipped 'no torch'\n\nRan 1 test in 0.1s\n\nOK (skipped=1)\n",
            true,
        ),
        ("\nRan 0 tests in 0.000s\n\nNO TESTS RAN\n", false),
        ("", false),
    ] {
        assert_eq!(tested(said), expected, "{said}");
    }
}

/// `cargo xtask test` builds the wheel and names the interpreter.
mod needs_wheel {
    const PYTHON: &str = "FROSTLINE_WHEEL_PYTHON";

    #[test]
    fn the_package_does_what_it_says() {
        super::run(PYTHON, "test_client.py");
    }

    mod long {
        use super::PYTHON;
        use crate::run;

        #[test]
        fn rows_are_kept() {
            run(PYTHON, "test_kept.py");
        }

        #[test]
        fn commands_run_from_python() {
            run(PYTHON, "test_command.py");
        }

        #[test]
        fn the_snippets_of_the_readme_run() {
            run(PYTHON, "test_readme.py");
        }

        #[test]
        fn the_notebook_runs() {
            run(PYTHON, "test_notebook.py");
        }
    }
}

/// With PyTorch, Ray and their trainers, in an environment that has them.
mod needs_wheel_with_trainers {
    const PYTHON: &str = "FROSTLINE_TRAINERS_PYTHON";

    #[test]
    fn epochs_are_divided_among_processes_and_workers() {
        super::run(PYTHON, "test_activations.py");
    }

    #[test]
    fn modules_are_divided() {
        super::run(PYTHON, "test_dividing.py");
    }

    #[test]
    fn recipes_of_other_libraries_are_read() {
        super::run(PYTHON, "test_pixels.py");
    }

    #[test]
    fn processes_train_as_one_while_hosts_end_and_begin() {
        super::run(PYTHON, "test_hosts.py");
    }

    #[test]
    fn ray_trains_and_reads() {
        super::run(PYTHON, "test_ray.py");
    }

    #[test]
    fn the_examples_run() {
        super::run(PYTHON, "test_examples.py");
    }

    #[test]
    fn the_snippets_of_the_readme_run() {
        super::run(PYTHON, "test_readme.py");
    }
}
