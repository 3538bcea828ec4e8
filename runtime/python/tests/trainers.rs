//! The package with PyTorch, Ray and their trainers, in an environment that has them.

#![allow(clippy::expect_used)]

/// `cargo xtask test` installs the wheel there and names the interpreter.
mod needs_wheel_with_trainers {
    use std::path::Path;
    use std::process::Command;

    /// Runs one of the files beside this one; what it skips is said.
    fn run(file: &str) {
        let python = std::env::var_os("FROSTLINE_TRAINERS_PYTHON");
        let python = python.expect("FROSTLINE_TRAINERS_PYTHON names no interpreter; run cargo xtask test");
        let output = Command::new(python)
            .args(["-W", "ignore", "-m", "unittest", "--verbose", file])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"))
            .env_remove("ORT_DYLIB_PATH")
            .env_remove("PYTHONPATH")
            .output()
            .expect("the interpreter cannot be started");
        let said = String::from_utf8_lossy(&output.stderr);
        println!("{}{said}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{said}");
    }

    #[test]
    fn epochs_are_divided_among_processes_and_workers() {
        run("test_activations.py");
    }

    #[test]
    fn modules_are_divided() {
        run("test_dividing.py");
    }

    #[test]
    fn processes_train_as_one_while_hosts_end_and_begin() {
        run("test_hosts.py");
    }

    #[test]
    fn ray_trains_and_reads() {
        run("test_ray.py");
    }

    #[test]
    fn the_examples_run() {
        run("test_examples.py");
    }

    #[test]
    fn the_snippets_of_the_readme_run() {
        run("test_readme.py");
    }
}
