use crate::preprocess::{preparation_memory, preprocess};
use crate::{DecodeLimits, ImageError, LoaderOptions, Undecoded};
use frostline_tensor::{PixelSpec, View};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An object to be decoded and cropped.
pub(crate) struct EncodedImage<B> {
    object: B,
    /// Key of the sample, which selects its augmentation.
    pub(crate) key: String,
    spec: PixelSpec,
    limits: DecodeLimits,
    view: Option<View>,
    on_decoded: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
}

/// Result of loading an image without reserved memory.
pub(crate) enum Unreserved {
    Loaded(Vec<u8>),
    /// The image needs a reservation of this many bytes. Only its headers were parsed.
    Large(u64),
}

impl<B: AsRef<[u8]>> EncodedImage<B> {
    pub(crate) fn new(object: B, key: String, spec: PixelSpec, options: &LoaderOptions) -> Self {
        Self {
            object,
            key,
            spec,
            limits: options.decode,
            view: options.view,
            on_decoded: options.on_decoded.clone(),
        }
    }

    /// Loads the image unless it needs [`LoaderOptions::RESERVATION_THRESHOLD`] bytes or more.
    pub(crate) fn load_unreserved(&self) -> Result<Unreserved, ImageError> {
        let (image, needed) = self.parse()?;
        if needed >= LoaderOptions::RESERVATION_THRESHOLD {
            return Ok(Unreserved::Large(needed));
        }
        self.decode(image).map(Unreserved::Loaded)
    }

    /// Loads the image. The caller has reserved the memory.
    pub(crate) fn load(&self) -> Result<Vec<u8>, ImageError> {
        self.decode(self.parse()?.0)
    }

    /// Parses the headers. Returns the image and the bytes needed for loading it.
    fn parse(&self) -> Result<(Undecoded<'_>, u64), ImageError> {
        self.spec.check()?;
        let image = Undecoded::read(self.object.as_ref(), &self.limits)?;
        let needed = preparation_memory(&image, &self.spec, self.view.is_some());
        self.limits.check_bytes(image.format(), needed)?;
        Ok((image, needed))
    }

    fn decode(&self, image: Undecoded<'_>) -> Result<Vec<u8>, ImageError> {
        let started = Instant::now();
        let decoded = image.decode();
        let crop = decoded.and_then(|image| preprocess(&image, &self.spec, self.view.as_ref(), &self.key));
        if let Some(told) = &self.on_decoded {
            told(started.elapsed());
        }
        crop
    }
}
