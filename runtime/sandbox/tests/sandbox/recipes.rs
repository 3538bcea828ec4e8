//! Tests how the stock guest loads pixels with augmentation and complete recipes.

use crate::fakes::{Loader, Summing, context, model, samples, sandbox};
use crate::files::stock;
use frostline_sandbox::{Call, CallContext, Limits};
use frostline_tensor::{
    BoxFuture, Data, LoadedPixels, OpError, PixelFormat, PixelSpec, SampleLoader, SampleRef, Tensor,
};
use frostline_wire::Pixels;
use std::sync::Arc;

/// Adds 100 to the pixels of [`Loader`].
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

/// Returns the pixel sums with and without augmentation. The last value is true if the guest supports
/// augmentation.
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
        description.augments(),
    )
}

#[tokio::test]
async fn the_stock_guest_loads_what_the_extraction_asks_for() {
    assert_eq!(sums(stock()).await, (12.0 * 107.0, 12.0 * 7.0, true));
}

#[tokio::test]
async fn the_stock_guest_accepts_a_whole_recipe() {
    const RECIPE: &str = r#"{"resize":2,"crop_height":2,"crop_width":2,"mean":[0,0,0],"std":[1,1,1],"interpolation":"bicubic",
        "resize_mode":"pad","fill":[1,2,3],"channels":"bgr"}"#;
    let guest = sandbox().prepare(stock()).await.unwrap();
    let description = guest.describe(&model(), RECIPE).await.unwrap();
    let expected: PixelSpec = serde_json::from_str(RECIPE).unwrap();
    assert_eq!(description.pixels, Pixels::Spec(expected));
}
