use crate::fakes::{Summing, context, model, samples, sandbox};
use crate::files::{built, stock};
use frostline_sandbox::{Allowance, Call, CallContext, Extracted, Limits, Resource, Sandbox, SandboxError};
use frostline_tensor::OpErrorCode;
use std::sync::Arc;
use std::time::Duration;

async fn extract(bytes: Vec<u8>, keys: &[&str], context: CallContext) -> Result<Extracted, SandboxError> {
    let guest = sandbox().prepare(bytes).await?;
    let call = Call::new(model(), &guest.describe(&model(), "").await?, "last", "")?;
    guest.extract(&samples(keys), &call, context).await
}

fn context_with_limits(limits: Limits) -> CallContext {
    context(Arc::new(Summing::default()), limits)
}

/// Runs a guest that exceeds a limit and returns the exceeded resource.
async fn exceeded_limit(bytes: Vec<u8>, limits: Limits) -> Resource {
    let context = context_with_limits(limits);
    let allowance: Arc<Allowance> = Arc::clone(&context.allowance);
    let ended = extract(bytes, &["1", "2"], context).await;
    assert_eq!(allowance.tensor_bytes(), 0, "tensor memory is released");
    match ended {
        Err(SandboxError::Limit {
            resource,
            wanted,
            allowed,
        }) => {
            assert!(wanted > allowed);
            resource
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn pixels_beyond_the_budget_are_not_even_loaded() {
    let limits = Limits {
        tensor_bytes: 2 * 3 * 2 * 2 - 1,
        ..Limits::default()
    };
    assert_eq!(exceeded_limit(stock(), limits).await, Resource::TensorBytes);
}

mod needs_guests {
    use super::*;

    #[tokio::test]
    async fn a_panic_reaches_the_caller_with_its_text() {
        let ended = extract(built("trap"), &["1", "2"], context_with_limits(Limits::default())).await;
        let Err(error @ SandboxError::Trapped { .. }) = ended else {
            panic!("{ended:?}")
        };
        let text = error.to_string();
        assert!(text.contains("no activations for 2 samples at last"), "{text}");
        // The functions of the guest follow, without those of the panic handler.
        let (_, functions) = text.split_once("; in ").unwrap();
        assert!(
            functions.starts_with("trap::fail, ")
                && functions.contains("#extract")
                && !functions.contains("panic"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_guest_that_spins_ends_at_its_deadline_and_delays_nobody_for_longer() {
        let spin = built("spin");
        let honest = stock();
        let sandbox: Sandbox = sandbox();
        let spin = sandbox.prepare(spin).await.unwrap();
        let honest = sandbox.prepare(honest).await.unwrap();
        let call = Call::new(model(), &honest.describe(&model(), "").await.unwrap(), "last", "").unwrap();
        let after = Duration::from_secs(2);
        let keys = samples(&["1"]);
        let spinning = spin.extract(
            &keys,
            &call,
            context_with_limits(Limits {
                call_deadline: after,
                ..Limits::default()
            }),
        );
        let mut spinning = std::pin::pin!(spinning);
        // Both guests share a thread. The calls of the honest guest must succeed while the other guest loops.
        let neighbors = async {
            for _ in 0..3 {
                honest
                    .extract(&keys, &call, context_with_limits(Limits::default()))
                    .await
                    .unwrap();
            }
        };
        tokio::select! {
            biased;
            ended = &mut spinning => panic!("the looping guest ended before the honest one: {ended:?}"),
            () = neighbors => {}
        }
        assert_eq!(spinning.await, Err(SandboxError::Deadline { after }));
    }

    #[tokio::test]
    async fn a_guest_gets_no_more_memory_than_its_cap() {
        assert_eq!(
            exceeded_limit(built("grow"), Limits::default()).await,
            Resource::Memory
        );
    }

    #[tokio::test]
    async fn tensors_on_the_host_are_counted() {
        let limits = Limits {
            tensor_bytes: 8 << 20,
            ..Limits::default()
        };
        assert_eq!(exceeded_limit(built("leak"), limits).await, Resource::TensorBytes);
    }

    #[tokio::test]
    async fn handles_are_counted_even_of_empty_tensors() {
        assert_eq!(
            exceeded_limit(built("leak-small"), Limits::default()).await,
            Resource::Handles
        );
    }

    #[tokio::test]
    async fn reads_are_counted() {
        let limits = Limits {
            object_reads: 10,
            ..Limits::default()
        };
        assert_eq!(
            exceeded_limit(built("read-too-much"), limits).await,
            Resource::ObjectReads
        );
    }

    #[tokio::test]
    async fn bytes_read_are_counted() {
        let limits = Limits {
            object_bytes: 2_500_000,
            ..Limits::default()
        };
        assert_eq!(
            exceeded_limit(built("read-too-much"), limits).await,
            Resource::ObjectBytes
        );
    }

    #[tokio::test]
    async fn model_bytes_from_a_guest_are_refused() {
        let ended = extract(
            built("load-bytes"),
            &["1"],
            context_with_limits(Limits::default()),
        )
        .await;
        let Err(SandboxError::Failed(error)) = ended else {
            panic!("{ended:?}")
        };
        assert_eq!(error.code, OpErrorCode::Security);
    }

    #[tokio::test]
    async fn a_wrong_count_of_rows_is_noticed() {
        let ended = extract(
            built("too-many-rows"),
            &["1", "2"],
            context_with_limits(Limits::default()),
        )
        .await;
        let reason = "3 rows and 0 failed samples for 2 samples".into();
        assert_eq!(ended, Err(SandboxError::BadAnswer { reason }));
    }

    #[tokio::test]
    async fn failures_of_samples_nobody_asked_for_are_noticed() {
        let ended = extract(
            built("lie-about-failures"),
            &["1", "2"],
            context_with_limits(Limits::default()),
        )
        .await;
        let Err(SandboxError::BadAnswer { reason }) = ended else {
            panic!("{ended:?}")
        };
        assert!(reason.to_string().contains("sample 1000000 of 2"), "{reason}");
    }

    #[tokio::test]
    async fn a_flood_of_log_lines_is_cut_off_and_harms_nothing() {
        let done = extract(
            built("flood-log"),
            &["1", "2"],
            context_with_limits(Limits::default()),
        )
        .await;
        assert_eq!(done.unwrap().activations.shape().dims(), [2, 4]);
    }

    #[tokio::test]
    async fn a_split_that_describe_leaves_out_is_refused_by_name() {
        let guest = sandbox().prepare(built("refuse-split")).await.unwrap();
        let described = guest.describe(&model(), "").await.unwrap();
        let refused = Call::new(model(), &described, "/first/Relu", "").unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains("refuse_split") && text.contains("it serves last"),
            "{text}"
        );
        assert!(
            Call::new(model(), &described, "nowhere", "")
                .unwrap_err()
                .to_string()
                .contains("no such cut")
        );

        // Activations have the shape described by the guest instead of the model's shape.
        let call = Call::new(model(), &described, "last", "").unwrap();
        let extracted = guest
            .extract(&samples(&["1"]), &call, context_with_limits(Limits::default()))
            .await
            .unwrap();
        assert_eq!(extracted.activations.shape().dims(), [1, 7]);

        let refused = guest.describe(&model(), "refuse").await;
        assert!(matches!(refused, Err(SandboxError::Failed(error)) if error.message.contains("on Sundays")));
    }
}
