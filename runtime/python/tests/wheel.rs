//! The wheel as it is installed: the package's own tests, and the snippets of its README, each by the interpreter that has it.

#![allow(clippy::expect_used)]

/// `cargo xtask test` builds the wheel and names the interpreter.
mod needs_wheel {
    use std::path::Path;
    use std::process::Command;

    /// Runs one of the files beside this one; what it skips is said.
    fn run(file: &str) {
        let python = std::env::var_os("FROSTLINE_WHEEL_PYTHON");
        let python = python.expect("FROSTLINE_WHEEL_PYTHON names no interpreter; run cargo xtask test");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let output = Command::new(python)
            .args(["-m", "unittest", "--verbose", file])
            .current_dir(folder)
            // Found as users have it: by the package's own means.
            .env_remove("ORT_DYLIB_PATH")
            .env_remove("PYTHONPATH")
            .output()
            .expect("the interpreter cannot be started");
        let said = String::from_utf8_lossy(&output.stderr);
        println!("{}{said}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{said}");
    }

    #[test]
    fn the_package_does_what_it_says() {
        run("test_client.py");
    }

    #[test]
    fn commands_run_from_python() {
        run("test_command.py");
    }

    #[test]
    fn the_snippets_of_the_readme_run() {
        run("test_readme.py");
    }
}
