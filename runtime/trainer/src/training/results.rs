//! Results in the run folder: predictions for all validation samples, and the worst mistakes with images.

use crate::evaluation::{Mistake, Predictions};
use crate::event::warn;
use crate::training::run::fetcher;
use crate::{Events, Job, TrainerError, blocking, whole_file};
use frostline_client::{Hosts, RowKind, SampleFiles, Source};
use frostline_tensor::PixelSpec;
use frostline_wire::{Encoding, ObjectInfo, Split, Terms};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Number of mistakes to show. More would rarely be looked at.
const MISTAKES: usize = 24;
/// Width and height of the images in pixels.
const SIDE: u32 = 128;
/// Limit for the size of the objects in total: enough for photos in most data sets, and transferred within
/// two seconds on most links.
const MAX_OBJECT_BYTES: u64 = 8 << 20;
/// Timeout for fetching the objects.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Results to write to the run folder.
pub(crate) struct Results {
    pub(crate) folder: PathBuf,
    pub(crate) predictions: Arc<Predictions>,
    /// Names of the outputs.
    pub(crate) names: Vec<String>,
    /// The data root.
    pub(crate) root: String,
    /// True if this machine can decode the samples.
    pub(crate) images: bool,
    /// Maximum number of pixels of an image.
    pub(crate) image_pixels: Option<u64>,
}

/// Entry of `mistakes/mistakes.json`.
#[derive(Serialize)]
struct ListedMistake {
    #[serde(flatten)]
    mistake: Mistake,
    /// File name of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
}

impl Results {
    /// Returns the results of a job with a run folder.
    pub(crate) fn of_job(job: &Job, predictions: Arc<Predictions>, names: Vec<String>) -> Option<Self> {
        Some(Self {
            folder: job.run.as_ref()?.path.clone(),
            predictions,
            names,
            root: job.spec.data.clone(),
            images: job.guest.takes() == SampleFiles::Images,
            image_pixels: job.spec.hosts.image_pixels,
        })
    }

    /// Writes all results. Failures are warnings, because the model is already written.
    pub(crate) async fn write(self, hosts: &Hosts, events: &Events) {
        let file = self.folder.join("predictions.csv");
        let predictions = Arc::clone(&self.predictions);
        let names = self.names.clone();
        let written = blocking(move || predictions.write(&names, &file)).await;
        let worst = self.predictions.worst(&self.names, MISTAKES);
        let images = match tokio::time::timeout(TIMEOUT, self.images(hosts, &worst)).await {
            Ok(fetched) => {
                fetched.map_err(|error| format!("cannot fetch the images of the worst mistakes: {error}"))
            }
            Err(_) => Err(format!(
                "fetching the images of the worst mistakes timed out after {} s",
                TIMEOUT.as_secs()
            )),
        };
        let images = images.unwrap_or_else(|what| {
            warn_incomplete(events, &what);
            Vec::new()
        });
        let path = self.folder.join("mistakes");
        let shown = blocking(move || {
            write_mistakes(&path, worst, &images).map_err(TrainerError::unwritten("predictions", &path))
        });
        for error in [written, shown.await].into_iter().filter_map(Result::err) {
            warn_incomplete(events, &error.to_string());
        }
    }

    /// Fetches images up to [`MAX_OBJECT_BYTES`] in total. Returns pairs of an index in `worst` and an image.
    async fn images(
        &self,
        hosts: &Hosts,
        worst: &[(ObjectInfo, Mistake)],
    ) -> Result<Vec<(usize, Vec<f32>)>, TrainerError> {
        let places = fitting(worst.iter().map(|(sample, _)| sample.size), MAX_OBJECT_BYTES);
        if places.is_empty() || !self.images {
            return Ok(Vec::new());
        }
        let spec = PixelSpec {
            resize: SIDE,
            crop_height: SIDE,
            crop_width: SIDE,
            mean: [0.0; 3],
            std: [1.0; 3],
            ..PixelSpec::imagenet(1, 1)
        };
        let source = Source {
            root: self.root.clone(),
            split: Split::None,
            encoding: Encoding::F32,
            guest: None,
            model: None,
            parameters: String::new(),
            terms: Terms::default(),
            view: None,
            rows: RowKind::Objects(spec),
            shape: spec.sample_shape().to_vec(),
            tensors: Vec::new(),
            request_samples: MISTAKES,
        };
        let samples = places.iter().filter_map(|place| worst.get(*place));
        let samples: Arc<[ObjectInfo]> = samples.map(|(sample, _)| sample.clone()).collect();
        let fetched = fetcher(2, 1, self.image_pixels)?
            .fetch(hosts, Arc::new(source), samples)
            .await?;
        let kept = fetched
            .indices
            .iter()
            .filter_map(|kept| places.get(*kept).copied());
        let pixels = 3 * (SIDE * SIDE) as usize;
        let images = fetched.rows.as_f32().unwrap_or_default().chunks_exact(pixels);
        Ok(kept.zip(images.map(<[f32]>::to_vec)).collect())
    }
}

fn warn_incomplete(events: &Events, what: &str) {
    warn(events, format!("the run's folder is incomplete: {what}"));
}

/// Selects the indices of `sizes` that fit in `room` together, in order.
fn fitting(sizes: impl Iterator<Item = u64>, room: u64) -> Vec<usize> {
    let mut left = room;
    let places = sizes
        .enumerate()
        .filter(|(_, size)| left.checked_sub(*size).inspect(|rest| left = *rest).is_some());
    places.map(|(place, _)| place).collect()
}

/// Writes the mistakes `worst` and their `images` to `folder` and removes its previous content. Images have
/// the shape `[3, side, side]` and values from 0 to 1.
fn write_mistakes(
    folder: &Path,
    worst: Vec<(ObjectInfo, Mistake)>,
    images: &[(usize, Vec<f32>)],
) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ if worst.is_empty() => return Ok(()),
        _ => std::fs::create_dir_all(folder)?,
    }
    for (place, image) in images {
        whole_file::write(&folder.join(image_name(*place)), |to| encode(image, to))?;
    }
    let mistakes = worst.into_iter().enumerate();
    let mistakes: Vec<ListedMistake> = mistakes
        .map(|(place, (_, mistake))| ListedMistake {
            mistake,
            image: images
                .iter()
                .any(|(of, _)| *of == place)
                .then(|| image_name(place)),
        })
        .collect();
    whole_file::write(&folder.join("mistakes.json"), |to| {
        Ok(serde_json::to_writer_pretty(to, &mistakes)?)
    })
}

fn image_name(place: usize) -> String {
    format!("{place:02}.png")
}

/// Writes an image as PNG.
fn encode(image: &[f32], to: &mut impl io::Write) -> io::Result<()> {
    let plane = (SIDE * SIDE) as usize;
    let channel = |place: usize, channel: usize| image.get(channel * plane + place).copied().unwrap_or(0.0);
    let bytes: Vec<u8> = (0..plane)
        .flat_map(|place| (0..3).map(move |of| (channel(place, of).clamp(0.0, 1.0) * 255.0).round() as u8))
        .collect();
    let mut encoder = png::Encoder::new(to, SIDE, SIDE);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(io::Error::other)?;
    writer.write_image_data(&bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_do_not_fit_are_skipped() {
        let chosen = |sizes: &[u64]| fitting(sizes.iter().copied(), 10);
        assert_eq!(chosen(&[4, 7, 6, 1]), [0, 2]);
        assert_eq!(chosen(&[11, 10, 0]), [1, 2]);
        assert_eq!(chosen(&[u64::MAX, 3, u64::MAX, 3]), [1, 3]);
    }

    #[test]
    fn mistakes_of_an_earlier_job_are_removed() {
        let run = tempfile::tempdir().unwrap();
        let folder = run.path().join("mistakes");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("23.png"), "of another job").unwrap();
        write_mistakes(&folder, Vec::new(), &[]).unwrap();
        assert!(!folder.exists());
    }
}
