//! Fairness between tenants when a tenant uses all resources.

use crate::fakes::model;
use crate::files::{built, stock};
use frostline_sandbox::{Allowance, Limits, Sandbox, SandboxConfig};
use std::sync::Arc;
use std::time::Duration;

/// Number of concurrent calls (the default of hosts).
const PERMITS: u32 = 32;

/// Disables deadlines and limits.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

fn sandbox() -> Sandbox {
    Sandbox::new(SandboxConfig {
        guest_threads: 1,
        instances: PERMITS,
        describe_deadline: FOREVER,
        permit_deadline: FOREVER,
        ..SandboxConfig::default()
    })
    .unwrap()
}

fn unlimited() -> Arc<Allowance> {
    Allowance::new(Limits {
        cpu_seconds: FOREVER.as_secs(),
        slice: FOREVER,
        ..Limits::default()
    })
}

mod needs_guests {
    use super::*;

    #[tokio::test]
    async fn guests_that_describe_themselves_without_end_keep_no_neighbor_waiting() {
        let spin = built("spin-in-describe");
        let honest = stock();
        let sandbox = sandbox();
        let spin = sandbox.for_tenant("greedy").prepare(spin).await.unwrap();
        let honest = sandbox.for_tenant("modest").prepare(honest).await.unwrap();
        let model = model();
        let allowance = unlimited();
        let ask = || Box::pin(spin.describe_within(&model, "", &allowance));
        let mut flood: Vec<_> = (0..2 * PERMITS).map(|_| ask()).collect();
        // The first poll acquires a permit or queues the call.
        for call in &mut flood {
            assert!(futures::poll!(call).is_pending());
        }
        let own = unlimited();
        let described = honest.describe_within(&model, "", &own).await.unwrap();
        assert_eq!(described.name, "prefix");
        for call in &mut flood {
            assert!(futures::poll!(call).is_pending(), "endless call ended");
        }
        // Each request is charged for its own CPU time, no matter which request prepared the guest.
        assert!(own.usage().cpu > Duration::ZERO);
        drop(flood);
        while Arc::strong_count(&allowance) > 1 {
            tokio::task::yield_now().await;
        }
        assert!(allowance.usage().cpu > Duration::ZERO);
    }

    #[tokio::test]
    async fn a_guest_that_is_compiled_already_waits_for_no_compilation() {
        let other = built("trap");
        let honest = stock();
        let home = tempfile::tempdir().unwrap();
        // This compiler never answers.
        let sandbox = |compiler| {
            Sandbox::new(SandboxConfig {
                artifacts: Some(home.path().to_owned()),
                prepare_deadline: FOREVER,
                instances: 1,
                compiler,
                ..SandboxConfig::default()
            })
            .unwrap()
        };
        let compiles = sandbox(frostline_sandbox::Compiler::InProcess);
        let used = Allowance::new(Limits::default());
        let modest = compiles.for_tenant("modest");
        modest.prepare_within(honest.clone(), &used).await.unwrap();
        assert!(used.usage().compiling > Duration::ZERO);
        let stuck = sandbox(frostline_sandbox::Compiler::Child {
            program: "/bin/sh".into(),
            arguments: ["-c", "exec sleep 86400"].map(Into::into).to_vec(),
        });
        let greedy = stuck.for_tenant("greedy");
        let modest = stuck.for_tenant("modest");
        let mut compiling = Box::pin(greedy.prepare(other));
        tokio::select! {
            biased;
            _ = &mut compiling => panic!("endless compilation ended"),
            ready = modest.prepare(honest) => assert!(ready.is_ok()),
        }
    }
}
