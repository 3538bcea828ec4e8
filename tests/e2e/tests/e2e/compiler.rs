//! Guests compiled by a child process, which is the program itself.

use frostline_behaviours::slow_to_compile;
use frostline_e2e::{frostline_binary, repository};
use frostline_sandbox::{CompileCost, Compiler, ModelView, Sandbox, SandboxConfig, SandboxError};
use std::sync::Arc;

/// A sandbox whose compiler may take this much memory and CPU time; `None`, with a word on stderr, where the program was
/// not built.
fn sandbox(compiler_memory_bytes: u64, compiler_cpu_seconds: u64) -> Option<Sandbox> {
    let Some(program) = frostline_binary() else {
        eprintln!("skipped: the program is not built, run `cargo build`");
        return None;
    };
    let config = SandboxConfig {
        instances: 4,
        compiler: Compiler::Child {
            program,
            arguments: vec!["compile-guest".into()],
        },
        compiler_memory_bytes,
        compiler_cpu_seconds,
        ..SandboxConfig::default()
    };
    Some(Sandbox::new(config).unwrap())
}

/// The stock guest is prepared and answers.
async fn a_neighbour_is_served(sandbox: &Sandbox) {
    let stock = std::fs::read(repository().join("guest/prefix/prefix.wasm")).unwrap();
    let guest = sandbox.for_tenant("neighbour").prepare(stock).await.unwrap();
    let model = Arc::new(ModelView {
        sha256: "5e".repeat(32),
        input: "data".to_owned(),
        input_shape: vec![3, 2, 2],
        cuts: Vec::new(),
    });
    assert_eq!(guest.describe(&model, "").await.unwrap().name, "prefix");
}

#[tokio::test]
async fn a_guest_that_takes_the_compiler_too_long_is_given_up() {
    let Some(sandbox) = sandbox(4 << 30, 1) else {
        return;
    };
    let hostile = sandbox.for_tenant("hostile");
    let (slow, ()) = tokio::join!(
        hostile.prepare(slow_to_compile()),
        a_neighbour_is_served(&sandbox)
    );
    let too_costly = SandboxError::TooCostly {
        cost: CompileCost::CpuSeconds,
        allowed: 1,
    };
    assert_eq!(slow.err(), Some(too_costly));
}

#[tokio::test]
async fn a_guest_that_takes_the_compiler_too_much_memory_is_given_up() {
    let allowed = 320 << 20;
    let Some(sandbox) = sandbox(allowed, 60) else {
        return;
    };
    let hostile = sandbox.for_tenant("hostile");
    let (large, ()) = tokio::join!(
        hostile.prepare(slow_to_compile()),
        a_neighbour_is_served(&sandbox)
    );
    let too_costly = SandboxError::TooCostly {
        cost: CompileCost::MemoryBytes,
        allowed,
    };
    assert_eq!(large.err(), Some(too_costly));
}
