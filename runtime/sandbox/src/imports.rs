//! Implements the Frostline interfaces of guests (`objects`, `images`, `log`).

use crate::bindings::frostline::pushdown::{images, log, objects, types};
use crate::breach::{ImportError, Resource, check_limit};
use crate::state::CallState;
use crate::text::{MAX_MESSAGE_BYTES, check_name, one_line};
use frostline_tensor::{
    ChannelOrder, Interpolation, Normalization, OpError, OpErrorCode, PixelFormat, PixelSpec, ResizeMode,
    SampleFailure, Shape,
};

/// Maximum length of a log line in bytes. Longer lines are truncated.
const MAX_LOG_LINE_BYTES: usize = 1024;

impl types::Host for CallState {
    fn convert_error(&mut self, error: ImportError) -> wasmtime::Result<types::Error> {
        match error {
            ImportError::Guest(error) => {
                self.record_host_error(&error);
                Ok(error_for_guest(&error))
            }
            ImportError::Trap(error) => Err(error),
        }
    }
}

fn error_for_guest(error: &OpError) -> types::Error {
    types::Error {
        code: code_for_guest(error),
        message: one_line(&error.message, MAX_MESSAGE_BYTES),
    }
}

fn code_for_guest(error: &OpError) -> types::ErrorCode {
    match error.code {
        OpErrorCode::InvalidArgument => types::ErrorCode::InvalidArgument,
        OpErrorCode::InvalidEncoding => types::ErrorCode::InvalidData,
        OpErrorCode::Timeout => types::ErrorCode::Timeout,
        OpErrorCode::UnsupportedOperation => types::ErrorCode::Unsupported,
        OpErrorCode::TooLarge => types::ErrorCode::TooLarge,
        OpErrorCode::NotFound => types::ErrorCode::NotFound,
        OpErrorCode::Security => types::ErrorCode::NotPermitted,
        OpErrorCode::RuntimeError | OpErrorCode::Unknown if error.host_caused => {
            types::ErrorCode::Unavailable
        }
        OpErrorCode::RuntimeError | OpErrorCode::Unknown => types::ErrorCode::Failed,
    }
}

/// Converts the code of a guest's error. The host decides by its own records whether an error was host-caused, so
/// a guest cannot claim it.
pub(crate) const fn code_from_guest(code: types::ErrorCode) -> OpErrorCode {
    match code {
        types::ErrorCode::InvalidArgument => OpErrorCode::InvalidArgument,
        types::ErrorCode::InvalidData => OpErrorCode::InvalidEncoding,
        types::ErrorCode::NotFound => OpErrorCode::NotFound,
        types::ErrorCode::NotPermitted => OpErrorCode::Security,
        types::ErrorCode::Unsupported => OpErrorCode::UnsupportedOperation,
        types::ErrorCode::TooLarge => OpErrorCode::TooLarge,
        types::ErrorCode::Timeout => OpErrorCode::Timeout,
        types::ErrorCode::Unavailable | types::ErrorCode::Failed => OpErrorCode::RuntimeError,
    }
}

impl objects::Host for CallState {
    async fn size(&mut self, object: types::Sample) -> Result<u64, ImportError> {
        let extraction = self.extraction()?.clone();
        check_object(&object)?;
        extraction.context.allowance.count_reads(1)?;
        let object = extraction.pinned(object.key, object.etag);
        let size = extraction.on_host(extraction.context.objects.size(object));
        Ok(self.wait_for("reading an object's size", size).await?)
    }

    async fn read(
        &mut self,
        object: types::Sample,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, ImportError> {
        let extraction = self.extraction()?.clone();
        let allowance = &extraction.context.allowance;
        check_object(&object)?;
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
        let object = extraction.pinned(object.key, object.etag);
        let bytes = extraction.on_host(extraction.context.objects.read(object, range));
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
        recipe: images::Recipe,
        format: images::PixelFormat,
    ) -> Result<images::Loaded, ImportError> {
        let spec = pixel_spec(&recipe);
        let extraction = self.extraction()?.clone();
        let allowance = &extraction.context.allowance;
        spec.check().map_err(OpError::from)?;
        samples.iter().try_for_each(check_object)?;
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
        let context = &extraction.context;
        let loader = context.augmented.as_ref().unwrap_or(&context.loader);
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

/// Checks the lengths of a key and an etag.
fn check_object(object: &types::Sample) -> Result<(), OpError> {
    check_name(&object.key)?;
    check_name(object.etag.as_deref().unwrap_or_default())
}

pub(crate) fn pixel_spec(recipe: &images::Recipe) -> PixelSpec {
    PixelSpec {
        resize: recipe.resize,
        mean: recipe.mean.into(),
        std: recipe.std.into(),
        interpolation: match recipe.interpolation {
            images::Interpolation::Nearest => Interpolation::Nearest,
            images::Interpolation::Bilinear => Interpolation::Bilinear,
            images::Interpolation::Bicubic => Interpolation::Bicubic,
            images::Interpolation::Lanczos => Interpolation::Lanczos,
        },
        resize_mode: match recipe.resize_mode {
            images::ResizeMode::Short => ResizeMode::Short,
            images::ResizeMode::Squash => ResizeMode::Squash,
            images::ResizeMode::Pad => ResizeMode::Pad,
        },
        fill: recipe.fill.into(),
        channels: match recipe.channels {
            images::ChannelOrder::Rgb => ChannelOrder::Rgb,
            images::ChannelOrder::Bgr => ChannelOrder::Bgr,
        },
        ..PixelSpec::imagenet(recipe.crop_height, recipe.crop_width)
    }
}

fn failed_sample(failure: &SampleFailure) -> types::FailedSample {
    types::FailedSample {
        index: u32::try_from(failure.index).unwrap_or(u32::MAX),
        error: error_for_guest(&failure.error),
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
