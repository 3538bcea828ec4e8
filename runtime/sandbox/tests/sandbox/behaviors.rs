//! Runs all hostile guests in a sandbox with a fake host and low limits.

use crate::fakes::{Summing, context, model, samples, small};
use crate::files;
use frostline_behaviors::{BEHAVIORS, Behavior, Ending, Source};
use frostline_sandbox::{Allowance, Call, Extracted, Limits, Sandbox, SandboxConfig, SandboxError, Usage};
use std::sync::Arc;
use std::time::Duration;

fn limits() -> Limits {
    Limits {
        cpu_seconds: 1,
        tensor_bytes: 12 << 20,
        object_reads: 100,
        object_bytes: 10 << 20,
        output_bytes: 1 << 20,
        ..Limits::default()
    }
}

/// Outcome of a guest, with the phase of the failure.
enum Outcome {
    NotPrepared(SandboxError),
    NotDescribed(SandboxError),
    Extracted(Result<Extracted, SandboxError>, Usage),
}

async fn run_guest(sandbox: &Sandbox, bytes: Vec<u8>) -> Outcome {
    let guest = match sandbox.prepare(bytes).await {
        Ok(guest) => guest,
        Err(error) => return Outcome::NotPrepared(error),
    };
    let description = match guest
        .describe_within(&model(), "", &Allowance::new(limits()))
        .await
    {
        Ok(description) => description,
        Err(error) => return Outcome::NotDescribed(error),
    };
    let call = Call::new(model(), &description, "last", "").unwrap();
    let context = context(Arc::new(Summing::default()), limits());
    let allowance = Arc::clone(&context.allowance);
    let extracted = guest.extract(&samples(&["1", "2"]), &call, context).await;
    assert_eq!(allowance.tensor_bytes(), 0, "tensor memory is released");
    Outcome::Extracted(extracted, allowance.usage())
}

fn check(behavior: &Behavior, came: Outcome) -> Result<(), String> {
    let (as_it_should, message) = match (&behavior.expected, &came) {
        (
            Ending::Refused(_),
            Outcome::NotPrepared(error @ (SandboxError::TooComplex { .. } | SandboxError::OtherWorld { .. })),
        ) => (true, error.to_string()),
        (Ending::NotDescribed(_), Outcome::NotDescribed(error)) => (true, error.to_string()),
        (
            Ending::Limit(_),
            Outcome::Extracted(Err(error @ SandboxError::Limit { wanted, allowed, .. }), _),
        ) => (wanted > allowed, error.to_string()),
        (Ending::Trapped(_), Outcome::Extracted(Err(error @ SandboxError::Trapped { .. }), _))
        | (Ending::BadAnswer(_), Outcome::Extracted(Err(error @ SandboxError::BadAnswer { .. }), _))
        | (Ending::Failed(_), Outcome::Extracted(Err(error @ SandboxError::Failed(_)), _)) => {
            (true, error.to_string())
        }
        (Ending::Served, Outcome::Extracted(Ok(extracted), usage)) => (
            extracted.activations.shape().dims() == [2, 4] && usage.calls == 1,
            String::new(),
        ),
        (
            _,
            Outcome::NotPrepared(error) | Outcome::NotDescribed(error) | Outcome::Extracted(Err(error), _),
        ) => (false, error.to_string()),
        (_, Outcome::Extracted(Ok(_), _)) => (false, "the guest was served".to_owned()),
    };
    let words = match behavior.expected {
        Ending::Refused(words)
        | Ending::NotDescribed(words)
        | Ending::Limit(words)
        | Ending::Trapped(words)
        | Ending::BadAnswer(words)
        | Ending::Failed(words) => words,
        Ending::Served => "",
    };
    // Long texts from guests must be truncated.
    if as_it_should && message.contains(words) && message.len() < 3_000 {
        return Ok(());
    }
    let message: String = message.chars().take(500).collect();
    Err(format!(
        "{} should end {:?}: {message}",
        behavior.name, behavior.expected
    ))
}

async fn check_table(bytes: impl Fn(&Behavior) -> Option<Vec<u8>>) {
    // The CPU time limit ends the guests that loop, even on a busy machine.
    let config = SandboxConfig {
        describe_deadline: Duration::from_secs(600),
        ..small()
    };
    let sandbox = Sandbox::new(config).unwrap();
    let mut wrong = Vec::new();
    for behavior in BEHAVIORS {
        if let Some(bytes) = bytes(behavior) {
            wrong.extend(check(behavior, run_guest(&sandbox, bytes).await).err());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_upload_ends_as_the_table_says() {
    check_table(|behavior| match behavior.guest {
        Source::Generated(make) => Some(make()),
        Source::Compiled => None,
    })
    .await;
}

mod needs_guests {
    use super::*;

    #[tokio::test]
    async fn every_guest_ends_as_the_table_says() {
        check_table(|behavior| match behavior.guest {
            Source::Generated(_) => None,
            Source::Compiled => Some(files::built(behavior.name)),
        })
        .await;
    }
}
