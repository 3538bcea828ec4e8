//! What a run's folder says of the model beside the model: what it made of each validation sample, and the worst of its mistakes with their images.

use crate::compute::blocking;
use crate::predictions::{OfClasses, Predictions};
use crate::run::fetcher;
use crate::{Event, Events, TrainerError, whole_file};
use frostline_client::{Hosts, RowKind, Source};
use frostline_tensor::PixelSpec;
use frostline_wire::{Encoding, ObjectInfo, Split, Terms};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Mistakes that are shown: what somebody looks at.
const MISTAKES: usize = 24;
/// Pixels of a side of their images.
const SIDE: u32 = 128;
/// How long their objects may take; without them the report has no images.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a job leaves in its folder.
pub(crate) struct Results {
    /// The run's folder.
    pub(crate) folder: PathBuf,
    pub(crate) predictions: Arc<Predictions>,
    /// Names of the outputs.
    pub(crate) names: Vec<String>,
    /// The data root.
    pub(crate) root: String,
    /// Whether this machine can decode samples as they are.
    pub(crate) images: bool,
}

/// A mistake, as `mistakes/mistakes.json` tells it.
#[derive(Serialize)]
struct Mistake {
    key: String,
    label: String,
    predicted: String,
    probability: f32,
    image: String,
}

impl Results {
    /// Writes all of it. What goes wrong is told, and the model is there all the same.
    pub(crate) async fn write(self, hosts: &Hosts, events: &Events) {
        let file = self.folder.join("predictions.csv");
        let (predictions, names) = (Arc::clone(&self.predictions), self.names.clone());
        let written = blocking(move || predictions.write(&names, &file)).await;
        let shown = match tokio::time::timeout(PATIENCE, self.show_mistakes(hosts)).await {
            Ok(shown) if self.images => shown,
            _ => Ok(()),
        };
        for error in [written, shown].into_iter().filter_map(Result::err) {
            let message = format!("the run's folder lacks some of its results: {error}");
            events(Event::Warning { message });
        }
    }

    async fn show_mistakes(&self, hosts: &Hosts) -> Result<(), TrainerError> {
        let worst = self.predictions.worst(MISTAKES);
        if worst.is_empty() || !self.images {
            return Ok(());
        }
        let spec = PixelSpec {
            resize: SIDE,
            crop_height: SIDE,
            crop_width: SIDE,
            mean: [0.0; 3],
            std: [1.0; 3],
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
            request_samples: MISTAKES,
        };
        let samples: Arc<[ObjectInfo]> = worst.iter().map(|(sample, _)| sample.clone()).collect();
        let fetched = fetcher(2, 1)?.fetch(hosts, Arc::new(source), samples).await?;
        let folder = self.folder.join("mistakes");
        let kept: Vec<OfClasses> = fetched
            .kept
            .iter()
            .filter_map(|place| worst.get(*place).map(|(_, said)| said.clone()))
            .collect();
        let names = self.names.clone();
        let values = fetched.rows.as_f32().unwrap_or_default().to_vec();
        let write = move || show(&folder, &kept, &names, &values);
        let failed = |path: PathBuf| move |source| TrainerError::Predictions { path, source };
        let at = self.folder.join("mistakes");
        blocking(move || write().map_err(failed(at))).await
    }
}

/// Writes the images, pixels of 0 to 1 `[3, side, side]` one after the other, and what was said of them.
fn show(folder: &Path, said: &[OfClasses], names: &[String], values: &[f32]) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let name = |place: Option<usize>| {
        place
            .and_then(|place| names.get(place))
            .cloned()
            .unwrap_or_default()
    };
    let pixels = 3 * (SIDE * SIDE) as usize;
    let mut mistakes = Vec::with_capacity(said.len());
    for ((number, one), image) in said.iter().enumerate().zip(values.chunks_exact(pixels)) {
        let file = format!("{number:02}.png");
        whole_file::write(&folder.join(&file), |to| encode(image, to))?;
        mistakes.push(Mistake {
            key: one.key.clone(),
            label: name(Some(one.label)),
            predicted: name(one.predicted),
            probability: one.probability,
            image: file,
        });
    }
    whole_file::write(&folder.join("mistakes.json"), |to| {
        Ok(serde_json::to_writer_pretty(to, &mistakes)?)
    })
}

/// Writes an image as PNG.
fn encode(image: &[f32], to: &mut impl io::Write) -> io::Result<()> {
    let plane = (SIDE * SIDE) as usize;
    let level = |value: f32| (value.clamp(0.0, 1.0) * 255.0).round() as u8;
    let channel = |place: usize, channel: usize| image.get(channel * plane + place).copied().unwrap_or(0.0);
    let bytes: Vec<u8> = (0..plane)
        .flat_map(|place| (0..3).map(move |of| level(channel(place, of))))
        .collect();
    let mut encoder = png::Encoder::new(to, SIDE, SIDE);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(io::Error::other)?;
    writer.write_image_data(&bytes).map_err(io::Error::other)
}
