//! JPEG decoding: images per second of a host's decoder, of libjpeg-turbo in Pillow and torchvision, and of
//! nvJPEG on a GPU. Measurements alternate within a run. Rates of one thread are per second of CPU time, which
//! depends less on other load.

use crate::dialogue::Dialogue;
use crate::report::{Report, median};
use crate::run::{source, text};
use crate::training::torch;
use anyhow::{Context, Result, ensure};
use frostline_engine::Device;
use frostline_images::{DecodeLimits, ImageError, decode, load};
use frostline_tensor::PixelSpec;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Photos per set, and repetitions of each measurement.
const FULL: (usize, usize) = (48, 5);
const QUICK: (usize, usize) = (4, 2);

/// Encoded photos of a set.
type Photos = Vec<Vec<u8>>;

/// Measured work, by its name in `peers/decode.py`.
const WORK: [&str; 6] = ["decode", "torchvision", "pixels", "scaled", "all_cores", "gpu"];

/// Comparisons of libjpeg-turbo with our decoder: figure, work of the peer, work of ours.
const RATIOS: [(&str, &str, &str); 5] = [
    ("pillow_decode_ratio", "decode", "decode"),
    ("torchvision_decode_ratio", "torchvision", "decode"),
    ("pillow_pixels_ratio", "pixels", "pixels"),
    ("scaled_pixels_ratio", "scaled", "pixels"),
    ("pillow_all_cores_ratio", "all_cores", "all_cores"),
];

/// Difference of DCT-scaled decoding from full decoding, after the recipe.
#[derive(Debug, Deserialize)]
struct Accuracy {
    /// Mean absolute difference of the 8-bit values.
    difference: f64,
    cosine: f64,
}

/// Images per second by work, in the order of the repetitions.
#[derive(Default)]
struct Rates(BTreeMap<&'static str, Vec<f64>>);

impl Rates {
    fn push(&mut self, work: &'static str, rate: f64) {
        self.0.entry(work).or_default().push(rate);
    }

    fn median(&self, work: &str) -> Option<f64> {
        self.0.get(work).map(|rates| median(rates))
    }

    /// Median of the ratios to `other` in the same repetition.
    fn ratio(&self, work: &str, other: &Self, other_work: &str) -> Option<f64> {
        let pairs = self.0.get(work)?.iter().zip(other.0.get(other_work)?);
        Some(median(&pairs.map(|(one, other)| one / other).collect::<Vec<_>>()))
    }
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let (count, repetitions) = if report.quick() { QUICK } else { FULL };
    let deadline = Instant::now() + Duration::from_secs(report.seconds_or(3600));
    let folder = tempfile::tempdir()?;
    let mut peer = peer(report, folder.path(), count)?;
    let sets: BTreeMap<String, Vec<PathBuf>> = peer.answer()?;
    report.set("cores", cores());
    for (set, files) in sets {
        if Instant::now() > deadline {
            println!("{set} skipped: out of time");
            continue;
        }
        let read = files.iter().map(std::fs::read).collect::<Result<Photos, _>>();
        let photos = read.context("reading the enlarged photos")?;
        let bytes: usize = photos.iter().map(Vec::len).sum();
        println!(
            "\n{set}: {} photos of {} kB",
            photos.len(),
            bytes / photos.len().max(1) / 1000
        );
        let (mut ours, mut theirs) = (Rates::default(), Rates::default());
        for repetition in 0..repetitions {
            if repetition > 0 && Instant::now() > deadline {
                break;
            }
            for work in WORK {
                if let Some(rate) = measure(work, &photos)? {
                    ours.push(work, rate);
                }
                let answer: Option<f64> = peer.ask(format_args!("{set} {work}"))?;
                if let Some(rate) = answer {
                    theirs.push(work, rate);
                }
            }
        }
        show(report, &set, &ours, &theirs);
        compare(report, &set, &photos, &mut peer, folder.path())?;
    }
    Ok(())
}

fn peer(report: &Report, folder: &Path, count: usize) -> Result<Dialogue> {
    let device = match report.device() {
        Device::Cpu => "cpu".to_owned(),
        gpu @ Device::Cuda(_) => gpu.to_string(),
    };
    let mut command = Command::new(torch(&["--vision"])?);
    command
        .arg(source("tests/bench/peers/decode.py"))
        .arg("--photos")
        .arg(report.photos().part("train"))
        .arg("--out")
        .arg(folder)
        .args(["--count", &count.to_string(), "--device", &device]);
    Dialogue::start(&mut command)
}

/// Returns the images per second of our decoder, or `None` for work that it does not offer.
fn measure(work: &str, photos: &Photos) -> Result<Option<f64>> {
    let limits = DecodeLimits::default();
    let spec = PixelSpec::imagenet(224, 224);
    let started = Instant::now();
    let cpu = cpu_seconds();
    match work {
        "decode" => {
            for photo in photos {
                decode(photo, &limits)?;
            }
        }
        "pixels" => {
            to_pixels(photos, &spec)?;
        }
        "all_cores" => {
            thread::scope(|scope| {
                let start = |_| scope.spawn(|| to_pixels(photos, &spec));
                let threads: Vec<_> = (0..cores()).map(start).collect();
                let joined = threads.into_iter().map(|thread| thread.join().ok());
                let done: Option<Result<Vec<_>, ImageError>> = joined.collect();
                done.context("a decoding thread panicked")
            })??;
            let images = photos.len() * cores();
            return Ok(Some(images as f64 / started.elapsed().as_secs_f64()));
        }
        _ => return Ok(None),
    }
    Ok(Some(photos.len() as f64 / (cpu_seconds() - cpu)))
}

/// CPU time of this thread.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn to_pixels(photos: &Photos, spec: &PixelSpec) -> Result<Vec<u8>, ImageError> {
    let limits = DecodeLimits::default();
    let mut pixels = Vec::new();
    for photo in photos {
        pixels.extend(load(photo, spec, &limits)?);
    }
    Ok(pixels)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn show(report: &mut Report, set: &str, ours: &Rates, theirs: &Rates) {
    for (side, rates) in [("ours", ours), ("peer", theirs)] {
        for work in WORK {
            if let Some(rate) = rates.median(work) {
                println!("{side:<5} {work:<12} {rate:>9.1} images/s");
                report.set(&format!("{set}_{side}_{work}_images_per_second"), rate);
            }
        }
    }
    if let Some(ratio) = exchanged(ours, theirs) {
        println!("libjpeg_turbo_with_our_resize_ratio {ratio:.2}");
        report.set(&format!("{set}_libjpeg_turbo_with_our_resize_ratio"), ratio);
    }
    for (name, peer, own) in RATIOS {
        if let Some(ratio) = theirs.ratio(peer, ours, own) {
            println!("{name:<25} {ratio:.2}");
            report.set(&format!("{set}_{name}"), ratio);
        }
    }
}

/// Rate of pixels with libjpeg-turbo as decoder and our resize, relative to ours.
fn exchanged(ours: &Rates, theirs: &Rates) -> Option<f64> {
    let [decode, pixels] = [ours.median("decode")?, ours.median("pixels")?];
    let turbo = theirs.median("torchvision")?.max(theirs.median("decode")?);
    let resize = 1.0 / pixels - 1.0 / decode;
    Some(1.0 / pixels / (1.0 / turbo + resize))
}

/// Compares our pixels with Pillow's, and DCT-scaled decoding with full decoding.
fn compare(
    report: &mut Report,
    set: &str,
    photos: &Photos,
    peer: &mut Dialogue,
    folder: &Path,
) -> Result<()> {
    let file = folder.join("pixels");
    let scaled: Accuracy = peer.ask(format_args!("{set} accuracy {}", text(&file)?))?;
    let (ours, theirs) = (
        to_pixels(photos, &PixelSpec::imagenet(224, 224))?,
        std::fs::read(file)?,
    );
    ensure!(
        ours.len() == theirs.len(),
        "Pillow returned {} pixels instead of {}",
        theirs.len(),
        ours.len()
    );
    let differences = ours
        .iter()
        .zip(&theirs)
        .map(|(own, their)| u64::from(own.abs_diff(*their)));
    let difference = differences.sum::<u64>() as f64 / ours.len() as f64;
    println!("mean difference of our pixels from Pillow's: {difference:.3} of 255");
    println!(
        "of scaled from full decoding: {:.3}, cosine {:.6}",
        scaled.difference, scaled.cosine
    );
    report.set(&format!("{set}_pixel_difference"), difference);
    report.set(&format!("{set}_scaled_pixel_difference"), scaled.difference);
    report.set(&format!("{set}_scaled_cosine"), scaled.cosine);
    Ok(())
}
