//! Runs the package's tests and the snippets of the README against the installed wheel, with the interpreter
//! of the environment that contains the wheel.

#![allow(clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

/// Runs the tests in `file` with the interpreter named by the environment variable `variable`. Fails if all
/// tests are skipped.
fn run(variable: &str, file: &str) {
    let python = std::env::var_os(variable);
    let python = python.unwrap_or_else(|| panic!("{variable} is not set; run cargo xtask test"));
    let exports = tempfile::tempdir().expect("cannot create a folder for exported models");
    let output = Command::new(python)
        .args(["-W", "ignore", "-m", "unittest", "--verbose", file])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"))
        // The package must find these without help, as on a user's machine.
        .env_remove("ORT_DYLIB_PATH")
        .env_remove("PYTHONPATH")
        // Tests must compute features, not read them from a cache. Tests of a cache set its variable themselves.
        .env("FROSTLINE_FEATURE_CACHE", "off")
        // Most tests of a file export the same network, so only the first one exports it.
        .env("FROSTLINE_EXPORT_CACHE", exports.path())
        // Tests run concurrently, and OpenMP threads that wait for each other would occupy the cores.
        .env("OMP_NUM_THREADS", "1")
        .output()
        .expect("cannot start the interpreter");
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{}{said}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
    assert!(ran_any_test(&said), "all tests were skipped: {said}");
}

/// Returns true if unittest ran at least one test that was not skipped. Parses the summary, for example `Ran
/// 3 tests in 0.1s` and `OK (skipped=3)`.
fn ran_any_test(said: &str) -> bool {
    let number = |from: &str, before: &str| {
        let rest = said.rsplit_once(from).map(|(_, rest)| rest)?;
        let end = rest.find(before)?;
        rest.get(..end)?.parse::<u64>().ok()
    };
    let ran = number("\nRan ", " test").unwrap_or(0);
    let skipped = number("skipped=", ")").or_else(|| number("skipped=", ","));
    // The number of skipped tests includes skipped subtests. A test with skipped subtests was still run.
    let is_part = |line: &&str| line.starts_with("  ") && line.contains(" ... skipped ");
    let parts = said.lines().filter(is_part).count() as u64;
    ran + parts > skipped.unwrap_or(0)
}

#[test]
fn runs_with_only_skipped_tests_are_detected() {
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
        assert_eq!(ran_any_test(said), expected, "{said}");
    }
}

/// `cargo xtask test` builds the wheel and sets the variable.
mod needs_wheel {
    const PYTHON: &str = "FROSTLINE_WHEEL_PYTHON";

    #[test]
    fn the_client_works() {
        super::run(PYTHON, "test_client.py");
    }

    #[test]
    fn clients_generated_from_the_openapi_files_work() {
        super::run(PYTHON, "test_openapi.py");
    }

    #[test]
    fn closed_handles_release_what_they_hold() {
        super::run(PYTHON, "test_closing.py");
    }

    #[test]
    fn abandoned_folders_are_removed() {
        super::run(PYTHON, "test_temporary.py");
    }

    mod long {
        use super::PYTHON;
        use crate::run;

        #[test]
        fn features_are_cached() {
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

/// Tests that require PyTorch, Ray and training libraries.
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
    fn weights_that_exporters_merged_are_trained_separately() {
        super::run(PYTHON, "test_exporters.py");
    }

    #[test]
    fn models_that_cannot_be_divided_are_refused() {
        super::run(PYTHON, "test_models.py");
    }

    #[test]
    fn activations_of_hosts_are_compared_with_pytorch() {
        super::run(PYTHON, "test_pushdown.py");
    }

    #[test]
    fn exports_are_cached() {
        super::run(PYTHON, "test_exports.py");
    }

    #[test]
    fn settings_of_pushdown_work() {
        super::run(PYTHON, "test_settings.py");
    }

    #[test]
    fn targets_are_loaded_and_moved_with_their_images() {
        super::run(PYTHON, "test_targets.py");
    }

    #[test]
    fn several_tensors_cross_the_cut() {
        super::run(PYTHON, "test_features.py");
    }

    #[test]
    fn processes_train_as_one_while_hosts_stop_and_start() {
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

    mod needs_guests {
        #[test]
        fn text_encoders_are_trained() {
            // The test is skipped without the guests, and a run of skipped tests fails.
            crate::run(super::PYTHON, "test_text.py");
        }
    }

    mod long {
        #[test]
        fn recipes_are_those_of_all_processors_and_configurations() {
            crate::run(super::PYTHON, "test_recipes.py");
        }
    }
}
