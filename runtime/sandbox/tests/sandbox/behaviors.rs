//! Every behavior of the table, in a sandbox with a faked host and low limits.

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

/// How far a guest came.
enum Came {
    NotPrepared(SandboxError),
    NotDescribed(SandboxError),
    Extracted(Result<Extracted, SandboxError>, Usage),
}

async fn come(sandbox: &Sandbox, bytes: Vec<u8>) -> Came {
    let guest = match sandbox.prepare(bytes).await {
        Ok(guest) => guest,
        Err(error) => return Came::NotPrepared(error),
    };
    let description = match guest
        .describe_within(&model(), "", &Allowance::new(limits()))
        .await
    {
        Ok(description) => description,
        Err(error) => return Came::NotDescribed(error),
    };
    let call = Call::new(model(), &description, "last", "").unwrap();
    let context = context(Arc::new(Summing::default()), limits());
    let allowance = Arc::clone(&context.allowance);
    let extracted = guest.extract(&samples(&["1", "2"]), &call, context).await;
    assert_eq!(allowance.tensor_bytes(), 0, "what it held is given back");
    Came::Extracted(extracted, allowance.usage())
}

fn check(behavior: &Behavior, came: Came) -> Result<(), String> {
    let (as_it_should, message) = match (&behavior.ends, &came) {
        (
            Ending::Refused(_),
            Came::NotPrepared(error @ (SandboxError::TooComplex { .. } | SandboxError::OtherWorld { .. })),
        ) => (true, error.to_string()),
        (Ending::NotDescribed(_), Came::NotDescribed(error)) => (true, error.to_string()),
        (Ending::Limit(_), Came::Extracted(Err(error @ SandboxError::Limit { wanted, allowed, .. }), _)) => {
            (wanted > allowed, error.to_string())
        }
        (Ending::Trapped(_), Came::Extracted(Err(error @ SandboxError::Trapped { .. }), _))
        | (Ending::BadAnswer(_), Came::Extracted(Err(error @ SandboxError::BadAnswer { .. }), _))
        | (Ending::Failed(_), Came::Extracted(Err(error @ SandboxError::Failed(_)), _)) => {
            (true, error.to_string())
        }
        (Ending::Served, Came::Extracted(Ok(extracted), usage)) => (
            extracted.activations.shape().dims() == [2, 4] && usage.calls == 1,
            String::new(),
        ),
        (_, Came::NotPrepared(error) | Came::NotDescribed(error) | Came::Extracted(Err(error), _)) => {
            (false, error.to_string())
        }
        (_, Came::Extracted(Ok(_), _)) => (false, "it was served".to_owned()),
    };
    let words = match behavior.ends {
        Ending::Refused(words)
        | Ending::NotDescribed(words)
        | Ending::Limit(words)
        | Ending::Trapped(words)
        | Ending::BadAnswer(words)
        | Ending::Failed(words) => words,
        Ending::Served => "",
    };
    // Whatever a guest says, its tenant reads a line or two of it.
    if as_it_should && message.contains(words) && message.len() < 3_000 {
        return Ok(());
    }
    let message: String = message.chars().take(500).collect();
    Err(format!(
        "{} should end {:?}: {message}",
        behavior.name, behavior.ends
    ))
}

async fn end_as_the_table_says(bytes: impl Fn(&Behavior) -> Option<Vec<u8>>) {
    // CPU time ends those that spin, however little of it a busy machine gives them.
    let config = SandboxConfig {
        describe_deadline: Duration::from_secs(600),
        ..small()
    };
    let (sandbox, mut wrong) = (Sandbox::new(config).unwrap(), Vec::new());
    for behavior in BEHAVIORS {
        if let Some(bytes) = bytes(behavior) {
            wrong.extend(check(behavior, come(&sandbox, bytes).await).err());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_upload_ends_as_the_table_says() {
    end_as_the_table_says(|behavior| match behavior.guest {
        Source::Made(make) => Some(make()),
        Source::Compiled => None,
    })
    .await;
}

mod needs_guests {
    use super::*;

    #[tokio::test]
    async fn every_guest_ends_as_the_table_says() {
        end_as_the_table_says(|behavior| match behavior.guest {
            Source::Made(_) => None,
            Source::Compiled => Some(files::built(behavior.name)),
        })
        .await;
    }
}
