use crate::fakes::{
    BarrierExecutor, Failing, Full, Recording, Stuck, Summing, Text, context, model, samples, sandbox, small,
};
use crate::files::{built, stock};
use frostline_sandbox::{Call, CallContext, Extracted, Limits, ModelView, Sandbox, SandboxError};
use frostline_tensor::{DType, OpErrorCode, PixelSpec};
use frostline_wire::{Activation, Pixels, TensorInfo};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test]
async fn the_stock_guest_serves_every_cut_faithfully_on_imagenet_pixels() {
    let bytes = stock();
    let guest = sandbox().prepare(bytes).await.unwrap();
    let described = guest.describe(&model(), "").await.unwrap();
    assert_eq!(described.name, "prefix");
    assert_eq!(described.pixels, Pixels::Spec(PixelSpec::imagenet(2, 2)));
    let names: Vec<_> = described.cuts.iter().map(|cut| cut.name.as_str()).collect();
    assert_eq!(names, ["/first/Relu", "last"]);
    assert!(
        described
            .cuts
            .iter()
            .all(|cut| cut.activation == Activation::Faithful)
    );
}

#[tokio::test]
async fn the_stock_guest_takes_a_recipe_and_says_what_is_wrong_with_one() {
    let bytes = stock();
    let guest = sandbox().prepare(bytes).await.unwrap();
    let recipe = r#"{"resize":5,"crop_height":2,"crop_width":2,"mean":[0.1,0.2,0.3],"std":[1,1,2]}"#;
    let described = guest.describe(&model(), recipe).await.unwrap();
    let spec = PixelSpec {
        resize: 5,
        crop_height: 2,
        crop_width: 2,
        mean: [0.1, 0.2, 0.3],
        std: [1.0, 1.0, 2.0],
        ..PixelSpec::imagenet(1, 1)
    };
    assert_eq!(described.pixels, Pixels::Spec(spec));

    for (parameters, words) in [
        ("{", "invalid pixel recipe"),
        (r#"{"resize":5}"#, "missing field `crop_height`"),
        (&recipe.replace("resize", "resise"), "unknown field `resise`"),
        (
            &recipe.replace(r#""crop_width":2"#, r#""crop_width":3"#),
            "the model takes 2x2",
        ),
    ] {
        let Err(SandboxError::Failed(error)) = guest.describe(&model(), parameters).await else {
            panic!("{parameters} was accepted");
        };
        assert_eq!(error.code, OpErrorCode::InvalidArgument);
        assert!(error.message.contains(words), "{error}");
    }
    // The guest accepts this value, but the host rejects it.
    let zero = recipe.replace("[1,1,2]", "[0,1,1]");
    let Err(SandboxError::Failed(error)) = guest.describe(&model(), &zero).await else {
        panic!("{zero} was accepted");
    };
    assert_eq!(error.code, OpErrorCode::InvalidArgument);
}

#[tokio::test]
async fn rows_come_in_order_and_broken_samples_are_named() {
    let bytes = stock();
    let guest = sandbox().prepare(bytes).await.unwrap();
    let call = Call::new(model(), &guest.describe(&model(), "").await.unwrap(), "last", "").unwrap();
    let executor = Arc::new(Summing::default());
    let context = context(executor.clone(), Limits::default());
    let extracted = guest
        .extract(&samples(&["1", "broken", "3"]), &call, context.clone())
        .await
        .unwrap();
    assert_eq!(extracted.activations.shape().dims(), [2, 4]);
    assert_eq!(
        extracted.activations.as_f32().unwrap(),
        [12.0, 12.0, 12.0, 12.0, 36.0, 36.0, 36.0, 36.0]
    );
    assert_eq!(extracted.failed.len(), 1);
    assert_eq!(
        (extracted.failed[0].index, extracted.failed[0].error.code),
        (1, OpErrorCode::NotFound)
    );
    assert_eq!(
        *executor.stages.lock().unwrap(),
        [("data".to_owned(), "last".to_owned())]
    );
    // All charges are released.
    assert_eq!(context.allowance.tensor_bytes(), 0);
}

#[tokio::test]
async fn a_call_without_valid_samples_does_not_run_the_engine() {
    let bytes = stock();
    let guest = sandbox().prepare(bytes).await.unwrap();
    let call = Call::new(model(), &guest.describe(&model(), "").await.unwrap(), "last", "").unwrap();
    let extracted = guest
        .extract(
            &samples(&["x", "y"]),
            &call,
            context(Arc::new(Failing), Limits::default()),
        )
        .await;
    let extracted = extracted.unwrap();
    assert_eq!(extracted.activations.shape().dims(), [0, 4]);
    assert_eq!(extracted.failed.len(), 2);
}

#[tokio::test]
async fn engine_errors_reach_the_caller() {
    let bytes = stock();
    let guest = sandbox().prepare(bytes).await.unwrap();
    let call = Call::new(model(), &guest.describe(&model(), "").await.unwrap(), "last", "").unwrap();
    let failed = guest
        .extract(
            &samples(&["1"]),
            &call,
            context(Arc::new(Failing), Limits::default()),
        )
        .await;
    let Err(SandboxError::Failed(error)) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(error.code, OpErrorCode::RuntimeError);
    assert!(error.message.contains("out of cheese"));
}

/// Runs `guest` with `parameters` on a host with no free lane.
async fn without_lanes(guest: Vec<u8>, parameters: &str) -> Result<Extracted, SandboxError> {
    let guest = sandbox().prepare(guest).await.unwrap();
    let description = guest.describe(&model(), parameters).await.unwrap();
    let call = Call::new(model(), &description, "last", parameters).unwrap();
    let context = context(Arc::new(Full), Limits::default());
    guest.extract(&samples(&["1", "x"]), &call, context).await
}

#[track_caller]
fn assert_queue_full(ended: Result<Extracted, SandboxError>) {
    let Err(SandboxError::HostOperation { error }) = ended else {
        panic!("{ended:?}")
    };
    assert!(error.host_caused && error.message.contains("queue is full"));
}

#[tokio::test]
async fn host_failures_are_not_blamed_on_the_guest() {
    assert_queue_full(without_lanes(stock(), "").await);
}

#[tokio::test]
async fn calls_of_one_extraction_run_at_once() {
    let bytes = stock();
    let guest = sandbox().prepare(bytes).await.unwrap();
    let call = Call::new(model(), &guest.describe(&model(), "").await.unwrap(), "last", "").unwrap();
    let barrier = Arc::new(tokio::sync::Barrier::new(3));
    let context = context(Arc::new(BarrierExecutor { barrier }), Limits::default());
    let keys = samples(&["1"]);
    let extract = || guest.extract(&keys, &call, context.clone());
    let (one, two, three) = tokio::join!(extract(), extract(), extract());
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
}

#[tokio::test]
async fn dropping_a_call_removes_its_work_and_frees_its_permit() {
    let bytes = stock();
    let sandbox = Sandbox::new(frostline_sandbox::SandboxConfig {
        instances: 1,
        ..small()
    })
    .unwrap();
    let guest = sandbox.prepare(bytes).await.unwrap();
    let call = Call::new(model(), &guest.describe(&model(), "").await.unwrap(), "last", "").unwrap();
    let stuck = Arc::new(Stuck::default());
    let started = Arc::clone(&stuck.started);
    let dropped = Arc::clone(&stuck.dropped);
    let stuck_context = context(stuck, Limits::default());
    let allowance = Arc::clone(&stuck_context.allowance);
    let task = tokio::spawn({
        let guest = guest.clone();
        let call = call.clone();
        async move { guest.extract(&samples(&["1"]), &call, stuck_context).await }
    });
    while started.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    task.abort();
    // Cancellation releases the only permit.
    let next = guest
        .extract(
            &samples(&["1"]),
            &call,
            context(Arc::new(Summing::default()), Limits::default()),
        )
        .await;
    assert!(next.is_ok());
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert_eq!(allowance.tensor_bytes(), 0);
}

#[tokio::test]
async fn a_call_that_waits_too_long_for_the_host_is_not_the_guests_fault() {
    let bytes = stock();
    let guest = sandbox().prepare(bytes).await.unwrap();
    let call = Call::new(model(), &guest.describe(&model(), "").await.unwrap(), "last", "").unwrap();
    // On a slow machine, the shortest deadline can expire before the guest calls the host.
    for after in [50, 500, 5_000, 50_000].map(Duration::from_millis) {
        let limits = Limits {
            call_deadline: after,
            ..Limits::default()
        };
        let stuck = Arc::new(Stuck::default());
        let started = Arc::clone(&stuck.started);
        let dropped = Arc::clone(&stuck.dropped);
        let ended = guest
            .extract(&samples(&["1"]), &call, context(stuck, limits))
            .await;
        if started.load(Ordering::SeqCst) == 0 {
            continue;
        }
        let Err(SandboxError::HostOperation { error }) = ended else {
            panic!("{ended:?}")
        };
        assert_eq!(error.code, OpErrorCode::Timeout);
        assert!(error.message.contains("a stage execution"), "{error}");
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        return;
    }
    panic!("the guest never called the executor");
}

#[tokio::test]
async fn a_call_without_a_permit_is_told_so() {
    let bytes = stock();
    let after = Duration::from_millis(50);
    let config = frostline_sandbox::SandboxConfig {
        instances: 1,
        permit_deadline: after,
        ..small()
    };
    let guest = Sandbox::new(config).unwrap().prepare(bytes).await.unwrap();
    let call = Call::new(model(), &guest.describe(&model(), "").await.unwrap(), "last", "").unwrap();
    let stuck = context(Arc::new(Stuck::default()), Limits::default());
    let keys = samples(&["1"]);
    let first = guest.extract(&keys, &call, stuck.clone());
    let second = guest.extract(&keys, &call, stuck);
    let ended = tokio::select! {
        ended = first => ended,
        ended = second => ended,
    };
    assert_eq!(ended, Err(SandboxError::Busy { after }));
}

mod needs_guests {
    use super::*;

    #[tokio::test]
    async fn host_failures_are_not_blamed_on_a_guest_that_hides_them() {
        assert_queue_full(without_lanes(built("hide-errors"), "panic").await);
        let hidden = without_lanes(built("hide-errors"), "").await.unwrap();
        assert_eq!(hidden.failed.len(), 2);
        assert!(hidden.failed.iter().all(|failure| failure.error.host_caused));
    }

    #[tokio::test]
    async fn reads_of_a_guest_are_pinned_to_the_version_of_the_sample() {
        let guest = sandbox().prepare(built("own-pixels")).await.unwrap();
        let description = guest.describe(&model(), "").await.unwrap();
        let call = Call::new(model(), &description, "last", "").unwrap();
        let context = context(Arc::new(Summing::default()), Limits::default());
        let extracted = guest.extract(&samples(&["404"]), &call, context.clone()).await;
        let failed = extracted.unwrap().failed;
        assert_eq!(failed[0].error.message, "the object was replaced");
        let any_version = [frostline_tensor::SampleRef::new("404")];
        let failed = guest.extract(&any_version, &call, context).await.unwrap().failed;
        assert!(
            failed[0].error.message.contains("invalid PPM image"),
            "{failed:?}"
        );
    }

    /// Returns a model with the inputs `ids` and `mask`, which the host joins into one.
    fn text_model() -> Arc<ModelView> {
        let input = |name: &str, dtype| TensorInfo {
            name: name.to_owned(),
            dtype,
            shape: vec![4],
        };
        Arc::new(ModelView {
            input: "ids,mask".to_owned(),
            input_shape: vec![8],
            joined_inputs: vec![input("ids", DType::I64), input("mask", DType::U8)],
            ..ModelView::clone(&model())
        })
    }

    async fn extract_text(ids: &[u32]) -> Result<(Extracted, Vec<f32>), SandboxError> {
        let guest = sandbox().prepare(built("tokens")).await.unwrap();
        let description = guest.describe(&text_model(), "").await.unwrap();
        assert_eq!(description.pixels, Pixels::Own);
        let call = Call::new(text_model(), &description, "last", "").unwrap();
        let executor = Arc::new(Recording::default());
        let context = CallContext {
            objects: Arc::new(Text(ids.iter().flat_map(|id| id.to_le_bytes()).collect())),
            ..context(executor.clone(), Limits::default())
        };
        let allowance = Arc::clone(&context.allowance);
        let extracted = guest.extract(&samples(&["1", "2"]), &call, context).await;
        assert_eq!(allowance.tensor_bytes(), 0);
        Ok((extracted?, executor.input.lock().unwrap().clone()))
    }

    #[tokio::test]
    async fn named_inputs_are_joined_in_the_order_of_the_model() {
        let (extracted, input) = extract_text(&[5, 6, 7]).await.unwrap();
        assert_eq!(input, [5.0, 6.0, 7.0, 0.0, 1.0, 1.0, 1.0, 0.0].repeat(2));
        assert_eq!(extracted.activations.shape().dims(), [2, 4]);
    }

    #[tokio::test]
    async fn ids_that_would_become_others_are_refused() {
        assert!(extract_text(&[1 << 24]).await.is_ok());
        let Err(SandboxError::Failed(error)) = extract_text(&[(1 << 24) + 1]).await else {
            panic!("the id was accepted");
        };
        assert!(error.message.contains("16777217"), "{error}");
    }

    #[tokio::test]
    async fn a_guest_may_run_a_model_in_stages() {
        let bytes = built("two-stage");
        let guest = sandbox().prepare(bytes).await.unwrap();
        let first = "/first/Relu";
        let call = Call::new(
            model(),
            &guest.describe(&model(), first).await.unwrap(),
            "last",
            first,
        )
        .unwrap();
        let executor = Arc::new(Summing::default());
        let context = context(executor.clone(), Limits::default());
        let extracted = guest.extract(&samples(&["1"]), &call, context).await.unwrap();
        assert_eq!(extracted.activations.as_f32().unwrap(), [24.0; 4]);
        let stages = [("data", first), (first, "last")].map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(*executor.stages.lock().unwrap(), stages);
    }
}
