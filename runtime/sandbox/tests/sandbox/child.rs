//! Faulty compilers, simulated by shell scripts. Other tests run the real compiler as part of the whole
//! program.

use crate::fakes::small;
use crate::files::stock;
use frostline_sandbox::{CompileCost, Compiler, Sandbox, SandboxConfig, SandboxError};
use std::time::Duration;

/// Creates a sandbox with the script as the compiler.
fn sandbox(script: &str, prepare_deadline: Duration) -> Sandbox {
    let arguments = ["-c", script, "compiler"].map(Into::into);
    Sandbox::new(SandboxConfig {
        compiler: Compiler::Child {
            program: "/bin/sh".into(),
            arguments: arguments.into(),
        },
        prepare_deadline,
        ..small()
    })
    .unwrap()
}

async fn failure(script: &str, bytes: Vec<u8>) -> SandboxError {
    let prepared = sandbox(script, Duration::from_secs(30)).prepare(bytes).await;
    prepared.err().unwrap()
}

#[tokio::test]
async fn a_compiler_that_takes_too_much_is_told_from_one_that_fails() {
    let bytes = stock();
    let costly = |cost, allowed| SandboxError::TooCostly { cost, allowed };
    let limits = small();
    assert_eq!(
        failure("kill -XCPU $$", bytes.clone()).await,
        costly(CompileCost::CpuSeconds, limits.compiler_cpu_seconds)
    );
    let out_of_memory = "cat > /dev/null; echo memory allocation of 7 bytes failed >&2; kill -ABRT $$";
    assert_eq!(
        failure(out_of_memory, bytes.clone()).await,
        costly(CompileCost::MemoryBytes, limits.compiler_memory_bytes)
    );
    let crashed = failure("kill -SEGV $$", bytes.clone()).await;
    assert!(matches!(crashed, SandboxError::NotAGuest { .. }), "{crashed:?}");
    let failed = failure("cat > /dev/null; echo cannot find my socks >&2; exit 3", bytes).await;
    assert!(
        matches!(&failed, SandboxError::Host { reason } if reason.to_string().contains("socks")),
        "{failed:?}"
    );
}

#[tokio::test]
async fn invalid_answers_are_rejected() {
    let bytes = stock();
    for script in [
        // Empty answer; wrong length; unknown status; invalid machine code.
        "cat > /dev/null",
        r"cat > /dev/null; printf '\000\377\377\377\377\000\000\000\000abc'",
        r"cat > /dev/null; printf '\007\001\000\000\000\000\000\000\000a'",
        r"cat > /dev/null; printf '\000\001\000\000\000\000\000\000\000a'",
    ] {
        let error = failure(script, bytes.clone()).await;
        assert!(
            matches!(error, SandboxError::Host { .. } | SandboxError::NotAGuest { .. }),
            "{error:?}"
        );
    }
    let refused = failure(
        r"cat > /dev/null; printf '\001\002\000\000\000\000\000\000\000no'",
        bytes,
    )
    .await;
    assert_eq!(refused.to_string(), "invalid guest: no");
}

#[tokio::test]
async fn a_hanging_compiler_is_killed_and_does_not_block_others() {
    let bytes = stock();
    let after = Duration::from_millis(300);
    let sandbox = sandbox("exec sleep 600", after);
    for _ in 0..2 {
        // The second compilation would wait for the first if that was still running.
        let ended = sandbox.prepare(bytes.clone()).await.err().unwrap();
        assert_eq!(ended, SandboxError::PrepareDeadline { after });
    }
}
