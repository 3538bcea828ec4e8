//! Guests compiled by a child process of the same program.

use frostline_behaviors::slow_to_compile;
use frostline_e2e::{frostline_binary, repository};
use frostline_sandbox::{CompileCost, Compiler, ModelView, Sandbox, SandboxConfig, SandboxError};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Creates a sandbox with a memory limit for the compiler.
fn sandbox(compiler_memory_bytes: u64) -> Sandbox {
    let program = frostline_binary().expect("cargo xtask test builds the program");
    let config = SandboxConfig {
        instances: 4,
        compiler: Compiler::Child {
            program,
            arguments: vec!["compile-guest".into()],
        },
        compiler_memory_bytes,
        // Generous, so that the memory limit applies first on any machine.
        compiler_cpu_seconds: 3600,
        prepare_deadline: Duration::from_secs(3600),
        ..SandboxConfig::default()
    };
    Sandbox::new(config).unwrap()
}

/// Prepares and calls the stock guest.
async fn assert_neighbor_is_served(sandbox: &Sandbox) {
    let stock = std::fs::read(repository().join("guest/prefix/prefix.wasm")).unwrap();
    let guest = sandbox.for_tenant("neighbor").prepare(stock).await.unwrap();
    let model = Arc::new(ModelView {
        sha256: "5e".repeat(32),
        input: "data".to_owned(),
        input_shape: vec![3, 2, 2],
        joined_inputs: Vec::new(),
        cuts: Vec::new(),
    });
    assert_eq!(guest.describe(&model, "").await.unwrap().name, "prefix");
}

/// Checks that limits are set before the guest is read, independent of the machine's speed. The sandbox's
/// tests cover processes that exceed a limit.
#[cfg(target_os = "linux")]
#[test]
fn the_compiler_limits_its_own_time_before_it_reads_a_guest() {
    let limits = proc_file_of_reading_compiler("limits");
    let mut time = limits
        .lines()
        .find(|line| line.starts_with("Max cpu time"))
        .unwrap()
        .split_whitespace()
        .skip(3);
    assert_eq!((time.next(), time.next()), (Some("7"), Some("8")), "{limits}");
}

/// Starts a compiler and reads its file in `/proc` while it reads a guest.
fn proc_file_of_reading_compiler(file: &str) -> String {
    let mut compiler = Command::new(frostline_binary().expect("cargo xtask test builds the program"))
        .args(["compile-guest", "--memory-bytes=4294967296", "--cpu-seconds=7"])
        .arg("--memory-reservation=4194304")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Larger than a pipe's buffer, so the compiler is reading once this is written.
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
        let status = proc_file_of_reading_compiler("status");
        assert!(
            status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"),
            "{status}"
        );
    }
}

mod long {
    use super::*;

    #[tokio::test]
    async fn a_guest_is_refused_if_the_compiler_exceeds_its_memory() {
        let allowed = 320 << 20;
        let sandbox = sandbox(allowed);
        let hostile = sandbox.for_tenant("hostile");
        let (large, ()) = tokio::join!(
            hostile.prepare(slow_to_compile()),
            assert_neighbor_is_served(&sandbox)
        );
        let too_costly = SandboxError::TooCostly {
            cost: CompileCost::MemoryBytes,
            allowed,
        };
        assert_eq!(large.err(), Some(too_costly));
    }
}
