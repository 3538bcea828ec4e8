//! Implements the Frostline interfaces of guests (`objects`, `images`, `log`).

use crate::bindings::frostline::pushdown::{images, log, objects, types};
use crate::breach::{ImportError, Resource, check_limit};
use crate::nn::code_for_guest;
use crate::state::CallState;
use crate::text::{MAX_MESSAGE_BYTES, check_name, one_line};
use frostline_tensor::{
    ChannelOrder, Interpolation, Normalization, OpError, PixelFormat, PixelSpec, ResizeMode, SampleFailure,
    SampleLoader, Shape,
};
use std::sync::Arc;

/// Maximum length of a log line in bytes. Longer lines are truncated.
const MAX_LOG_LINE_BYTES: usize = 1024;

impl types::Host for CallState {
    fn convert_failure(&mut self, error: ImportError) -> wasmtime::Result<types::Failure> {
        match error {
            ImportError::Guest(error) => {
                self.record_host_error(&error);
                Ok(types::Failure {
                    code: code_for_guest(error.code),
                    message: one_line(&error.message, MAX_MESSAGE_BYTES),
                })
            }
            ImportError::Trap(error) => Err(error),
        }
    }
}

impl objects::Host for CallState {
    async fn size(&mut self, key: String) -> Result<u64, ImportError> {
        let extraction = self.extraction()?.clone();
        check_name(&key)?;
        extraction.context.allowance.count_reads(1)?;
        let size = extraction.on_host(extraction.context.objects.size(extraction.pinned(key, None)));
        Ok(self.wait_for("reading an object's size", size).await?)
    }

    async fn read(&mut self, key: String, offset: u64, length: u32) -> Result<Vec<u8>, ImportError> {
        let extraction = self.extraction()?.clone();
        let allowance = &extraction.context.allowance;
        check_name(&key)?;
        allowance.count_reads(1)?;
        // Request an extra byte to make a read beyond a limit fail. The guest would mistake a truncated read
        // for the end of the object.
        let memory = self.memory_cap as u64;
        let most = allowance
            .object_bytes_remaining()
            .min(memory)
            .saturating_add(1)
            .min(length.into());
        let range = offset..offset.saturating_add(most);
        let bytes = extraction.on_host(
            extraction
                .context
                .objects
                .read(extraction.pinned(key, None), range),
        );
        let bytes = self.wait_for("reading an object", bytes).await?;
        allowance.count_object_bytes(bytes.len())?;
        check_limit(Resource::Memory, bytes.len() as u64, memory)?;
        Ok(bytes)
    }
}

impl images::Host for CallState {
    async fn load(
        &mut self,
        samples: Vec<types::Sample>,
        spec: types::PixelSpec,
        format: images::PixelFormat,
    ) -> Result<images::Loaded, ImportError> {
        let loader = Arc::clone(&self.extraction()?.context.loader);
        self.load_with(loader, samples, pixel_spec(&spec), format).await
    }

    async fn load_augmented(
        &mut self,
        samples: Vec<types::Sample>,
        spec: types::PixelSpec,
        format: images::PixelFormat,
    ) -> Result<images::Loaded, ImportError> {
        self.load_view(samples, pixel_spec(&spec), format).await
    }

    async fn load_recipe(
        &mut self,
        samples: Vec<types::Sample>,
        recipe: types::PixelRecipe,
        format: images::PixelFormat,
    ) -> Result<images::Loaded, ImportError> {
        self.load_view(samples, pixel_recipe(&recipe), format).await
    }

    fn describe_recipe(&mut self, recipe: types::PixelRecipe) -> Result<(), ImportError> {
        // The recipe is validated together with the description.
        Ok(CallState::describe_recipe(self, pixel_recipe(&recipe))?)
    }
}

impl CallState {
    /// Loads augmented pixels if the extraction requests augmentation.
    async fn load_view(
        &mut self,
        samples: Vec<types::Sample>,
        spec: PixelSpec,
        format: images::PixelFormat,
    ) -> Result<images::Loaded, ImportError> {
        let context = &self.extraction()?.context;
        let loader = Arc::clone(context.augmented.as_ref().unwrap_or(&context.loader));
        self.load_with(loader, samples, spec, format).await
    }

    async fn load_with(
        &mut self,
        loader: Arc<dyn SampleLoader>,
        samples: Vec<types::Sample>,
        spec: PixelSpec,
        format: images::PixelFormat,
    ) -> Result<images::Loaded, ImportError> {
        let extraction = self.extraction()?.clone();
        let allowance = &extraction.context.allowance;
        spec.check().map_err(OpError::from)?;
        for sample in &samples {
            check_name(&sample.key)?;
            check_name(sample.etag.as_deref().unwrap_or_default())?;
        }
        allowance.count_reads(samples.len())?;
        // Pixels are normalized on demand, usually by the lane that executes the stage.
        let pixels = match format {
            images::PixelFormat::Raw => None,
            images::PixelFormat::Normalized => Some(Normalization::from_spec(&spec)),
        };
        let batch = Shape::new(spec.sample_shape()).batched(samples.len());
        let charge = allowance.charge_tensor(batch.elements().map_err(OpError::from)?)?;
        let samples = samples
            .into_iter()
            .map(|sample| extraction.pinned(sample.key, sample.etag))
            .collect();
        let loaded = extraction.on_host(loader.load(samples, spec, PixelFormat::U8));
        let loaded = self.wait_for("loading images", loaded).await?;
        // The host has recorded the bytes read. Check the sum.
        allowance.count_object_bytes(0)?;
        loaded
            .failed
            .iter()
            .for_each(|failure| self.record_host_error(&failure.error));
        let failed = loaded.failed.iter().map(failed_sample).collect();
        Ok(images::Loaded {
            pixels: self.push_tensor(loaded.pixels, pixels, charge)?,
            failed,
        })
    }
}

pub(crate) fn pixel_spec(spec: &types::PixelSpec) -> PixelSpec {
    PixelSpec {
        resize: spec.resize,
        mean: spec.mean.into(),
        std: spec.std.into(),
        ..PixelSpec::imagenet(spec.crop_height, spec.crop_width)
    }
}

fn pixel_recipe(recipe: &types::PixelRecipe) -> PixelSpec {
    PixelSpec {
        interpolation: match recipe.interpolation {
            types::Interpolation::Nearest => Interpolation::Nearest,
            types::Interpolation::Bilinear => Interpolation::Bilinear,
            types::Interpolation::Bicubic => Interpolation::Bicubic,
            types::Interpolation::Lanczos => Interpolation::Lanczos,
        },
        resize_mode: match recipe.resize_mode {
            types::ResizeMode::Short => ResizeMode::Short,
            types::ResizeMode::Squash => ResizeMode::Squash,
            types::ResizeMode::Pad => ResizeMode::Pad,
        },
        fill: recipe.fill.into(),
        channels: match recipe.channels {
            types::ChannelOrder::Rgb => ChannelOrder::Rgb,
            types::ChannelOrder::Bgr => ChannelOrder::Bgr,
        },
        ..pixel_spec(&recipe.spec)
    }
}

fn failed_sample(failure: &SampleFailure) -> types::FailedSample {
    types::FailedSample {
        index: u32::try_from(failure.index).unwrap_or(u32::MAX),
        code: code_for_guest(failure.error.code),
        message: failure.error.message.clone(),
    }
}

impl log::Host for CallState {
    fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        let line = one_line(&message, MAX_LOG_LINE_BYTES);
        if let log::Level::Error = level {
            self.last_words = Some(line.clone());
        }
        let Some(extraction) = &self.extraction else {
            return Ok(());
        };
        if !extraction.context.allowance.count_log(line.len()) {
            return Ok(());
        }
        let level = match level {
            log::Level::Debug => "debug",
            log::Level::Info => "info",
            log::Level::Warn => "warn",
            log::Level::Error => "error",
        };
        let on_log_line = extraction.context.on_log_line.as_ref();
        if on_log_line.is_none_or(|on_log_line| on_log_line(level, &line)) {
            let labels = &extraction.context.labels;
            tracing::debug!(target: "frostline::guest", level, tenant = labels.tenant, guest = labels.guest,
                extraction = labels.extraction, "{line}");
        }
        Ok(())
    }
}
