//! Guests compiled by a child process, which is the program itself.

use frostline_behaviors::slow_to_compile;
use frostline_e2e::{frostline_binary, repository};
use frostline_sandbox::{CompileCost, Compiler, ModelView, Sandbox, SandboxConfig, SandboxError};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A sandbox whose compiler may take this much memory.
fn sandbox(compiler_memory_bytes: u64) -> Sandbox {
    let program = frostline_binary().expect("cargo xtask test builds the program");
    let config = SandboxConfig {
        instances: 4,
        compiler: Compiler::Child {
            program,
            arguments: vec!["compile-guest".into()],
        },
        compiler_memory_bytes,
        // Memory ends it first on any machine.
        compiler_cpu_seconds: 3600,
        prepare_deadline: Duration::from_secs(3600),
        ..SandboxConfig::default()
    };
    Sandbox::new(config).unwrap()
}

/// The stock guest is prepared and answers.
async fn a_neighbor_is_served(sandbox: &Sandbox) {
    let stock = std::fs::read(repository().join("guest/prefix/prefix.wasm")).unwrap();
    let guest = sandbox.for_tenant("neighbor").prepare(stock).await.unwrap();
    let model = Arc::new(ModelView {
        sha256: "5e".repeat(32),
        input: "data".to_owned(),
        input_shape: vec![3, 2, 2],
        cuts: Vec::new(),
    });
    assert_eq!(guest.describe(&model, "").await.unwrap().name, "prefix");
}

/// What the system does to a process over its limit, and what a sandbox makes of that, is tested with the sandbox; here is that the
/// limit is set before anything of the guest is read, whatever the machine's speed.
#[cfg(target_os = "linux")]
#[test]
fn the_compiler_limits_its_own_time_before_it_reads_a_guest() {
    let limits = of_a_reading_compiler("limits");
    let mut time = limits
        .lines()
        .find(|line| line.starts_with("Max cpu time"))
        .unwrap()
        .split_whitespace()
        .skip(3);
    assert_eq!((time.next(), time.next()), (Some("7"), Some("8")), "{limits}");
}

/// A file of `/proc` of a compiler that reads its guest.
fn of_a_reading_compiler(file: &str) -> String {
    let mut compiler = Command::new(frostline_binary().expect("cargo xtask test builds the program"))
        .args(["compile-guest", "--memory-bytes=4294967296", "--cpu-seconds=7"])
        .arg("--memory-reservation=4194304")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Far more than a pipe holds: once it is written, the compiler is reading.
    let guest = vec![0; 4 << 20];
    compiler.stdin.as_mut().unwrap().write_all(&guest).unwrap();
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", compiler.id())).unwrap();
    compiler.kill().unwrap();
    compiler.wait().unwrap();
    text
}

mod needs_walls {
    use super::*;

    #[test]
    fn the_compiler_is_behind_its_walls_before_it_reads_a_guest() {
        let status = of_a_reading_compiler("status");
        assert!(
            status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"),
            "{status}"
        );
    }
}

mod long {
    use super::*;

    #[tokio::test]
    async fn a_guest_that_takes_the_compiler_too_much_memory_is_given_up() {
        let allowed = 320 << 20;
        let sandbox = sandbox(allowed);
        let hostile = sandbox.for_tenant("hostile");
        let (large, ()) = tokio::join!(
            hostile.prepare(slow_to_compile()),
            a_neighbor_is_served(&sandbox)
        );
        let too_costly = SandboxError::TooCostly {
            cost: CompileCost::MemoryBytes,
            allowed,
        };
        assert_eq!(large.err(), Some(too_costly));
    }
}
