//! Guests of every version of the world, and what the host tells each of augmentation.

use crate::fakes::{Loader, Summing, context, model, samples, sandbox};
use crate::files::stock;
use frostline_sandbox::{Call, CallContext, Limits};
use frostline_tensor::{
    BoxFuture, Data, LoadedPixels, OpError, PixelFormat, PixelSpec, SampleLoader, SampleRef, Tensor,
};
use std::sync::Arc;

/// Pixels as [`Loader`] has them, brighter by a hundred.
struct Brighter;

impl SampleLoader for Brighter {
    fn load(
        &self,
        samples: Vec<SampleRef>,
        spec: PixelSpec,
        format: PixelFormat,
    ) -> BoxFuture<Result<LoadedPixels, OpError>> {
        let loading = Loader.load(samples, spec, format);
        Box::pin(async move {
            let mut loaded = loading.await?;
            let brighter = loaded.pixels.as_u8().unwrap().iter().map(|value| value + 100);
            loaded.pixels = Tensor::new(loaded.pixels.shape().clone(), Data::U8(brighter.collect()))?;
            Ok(loaded)
        })
    }
}

/// The sum of a sample's pixels, with an augmentation and without; and whether the guest says that it augments.
async fn sums(bytes: Vec<u8>) -> (f32, f32, bool) {
    let guest = sandbox().prepare(bytes).await.unwrap();
    let description = guest.describe(&model(), "").await.unwrap();
    let call = Call::new(model(), &description, "last", "").unwrap();
    let sum = async |augmented: Option<Arc<dyn SampleLoader>>| {
        let context = CallContext {
            augmented,
            ..context(Arc::new(Summing::default()), Limits::default())
        };
        let extracted = guest.extract(&samples(&["7"]), &call, context).await.unwrap();
        extracted.activations.as_f32().unwrap()[0]
    };
    (
        sum(Some(Arc::new(Brighter))).await,
        sum(None).await,
        description.augments,
    )
}

#[tokio::test]
async fn the_stock_guest_loads_what_the_extraction_asks_for() {
    assert_eq!(sums(stock()).await, (12.0 * 107.0, 12.0 * 7.0, true));
}

#[tokio::test]
async fn a_guest_of_the_first_version_runs_as_it_did_and_does_not_augment() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/prefix-0.1.0.wasm");
    let first = std::fs::read(path).unwrap();
    assert_eq!(sums(first).await, (12.0 * 7.0, 12.0 * 7.0, false));
}
