//! What augmenting costs: images a second of decoding with each transform and without, on the host, which sends pixels (split `input`), and on the
//! trainer, which gets objects (split `none`); over loopback, all ways in turns.

use crate::overhead::Served;
use crate::photos::Pretrained;
use crate::report::{Report, median};
use crate::run::text;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use frostline_client::{Fetcher, Hosts, RowKind, Source};
use frostline_engine::{Device, LanesPlace};
use frostline_graph::Model;
use frostline_images::DecodePool;
use frostline_tensor::{
    Augmentation, ColorJitter, PixelSpec, RandAugment, RandomErasing, RandomResizedCrop, View,
};
use frostline_wire::{Encoding, Layout, ObjectInfo, Split, Terms};
use std::sync::Arc;
use std::time::Instant;

/// Photos of a round at most; there are two hundred to start with.
const PHOTOS: usize = 512;

const PLACES: [&str; 2] = ["host", "trainer"];

/// Recipes by name, the first of which the others are held against.
fn recipes() -> [(&'static str, Augmentation); 7] {
    let nothing = Augmentation::default();
    let crop = Augmentation {
        random_resized_crop: Some(RandomResizedCrop::default()),
        ..nothing
    };
    let crop_flip = Augmentation { hflip: 0.5, ..crop };
    let jitter = Some(ColorJitter {
        brightness: 0.4,
        contrast: 0.4,
        saturation: 0.4,
        hue: 0.0,
    });
    let hue = jitter.map(|jitter| ColorJitter { hue: 0.1, ..jitter });
    let rand_augment = Some(RandAugment::default());
    let random_erasing = Some(RandomErasing {
        p: 0.25,
        ..RandomErasing::default()
    });
    [
        ("none", nothing),
        ("crop", crop),
        ("crop_flip", crop_flip),
        (
            "jitter",
            Augmentation {
                color_jitter: jitter,
                ..crop_flip
            },
        ),
        (
            "jitter_hue",
            Augmentation {
                color_jitter: hue,
                ..crop_flip
            },
        ),
        (
            "rand_augment",
            Augmentation {
                rand_augment,
                ..crop_flip
            },
        ),
        (
            "everything",
            Augmentation {
                color_jitter: jitter,
                rand_augment,
                random_erasing,
                ..crop_flip
            },
        ),
    ]
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(report))
}

/// A host on loopback, and what is asked of it.
struct Bench {
    host: Served,
    fetcher: Fetcher,
    root: String,
    spec: PixelSpec,
    photos: Arc<[ObjectInfo]>,
}

async fn measure(report: &mut Report) -> Result<()> {
    let bench = Bench::start(report).await?;
    let rounds = if report.quick() { 3 } else { 9 };
    println!(
        "{} photos of {:.0} kB on average, {rounds} rounds, images/s and their share of those without augmentation\n",
        bench.photos.len(),
        bench.photos.iter().map(|photo| photo.size as f64).sum::<f64>() / bench.photos.len() as f64 / 1e3,
    );
    println!("{:<14} {:>10} {:>7} {:>10} {:>7}", "", "host", "", "trainer", "");
    let recipes = recipes();
    let mut seconds = vec![[const { Vec::new() }; PLACES.len()]; recipes.len()];
    for round in 0..=rounds {
        for ((_, augmentation), seconds) in recipes.iter().zip(&mut seconds) {
            for (place, seconds) in PLACES.iter().zip(seconds) {
                let spent = bench.load(place, *augmentation, round).await?;
                // The first warms up.
                if round > 0 {
                    seconds.push(spent);
                }
            }
        }
    }
    let rates = |seconds: &[Vec<f64>; PLACES.len()]| {
        seconds
            .each_ref()
            .map(|seconds| bench.photos.len() as f64 / median(seconds))
    };
    let plain = rates(seconds.first().context("no recipe")?);
    for ((name, _), seconds) in recipes.iter().zip(&seconds) {
        let rates = rates(seconds);
        print!("{name:<14}");
        for ((place, rate), plain) in PLACES.iter().zip(rates).zip(plain) {
            print!(" {rate:>10.0} {:>7.3}", rate / plain);
            report.set(&format!("{place}_{name}_images_per_second"), rate);
            report.set(&format!("{place}_{name}_ratio"), rate / plain);
        }
        println!();
    }
    report.set("photos", bench.photos.len());
    report.set("rounds", rounds);
    Ok(())
}

impl Bench {
    async fn start(report: &Report) -> Result<Self> {
        let data = std::path::absolute(report.photos().part("train"))?;
        let root = text(&data)?.to_owned();
        let model = Model::read(&Pretrained::find().file)?;
        let network = model.network()?;
        let first = network.cuts.first().context("a network without a cut")?;
        let layers = Bytes::from(model.slice(None, Some(&first.name))?.to_bytes()?);
        let host = Served::start(LanesPlace::InProcess, Device::Cpu, &root, layers).await?;
        let mut photos = host.client.objects(&root, Layout::Auto).await?;
        photos.truncate(PHOTOS);
        ensure!(!photos.is_empty(), "no photos in {root}");
        let cores = std::thread::available_parallelism()?.get();
        let &[_, height, width] = network.input.shape.dims() else {
            anyhow::bail!("the network's input is not an image")
        };
        Ok(Self {
            host,
            fetcher: Fetcher::new(4, DecodePool::start(cores)?),
            root,
            spec: PixelSpec::imagenet(u32::try_from(height)?, u32::try_from(width)?),
            photos: photos.into(),
        })
    }

    /// Seconds until all photos are pixels on the trainer.
    async fn load(&self, place: &str, augmentation: Augmentation, round: u32) -> Result<f64> {
        let (split, encoding, rows) = match place {
            "host" => (Split::Input, Encoding::U8, RowKind::Pixels(self.spec)),
            _ => (Split::None, Encoding::F32, RowKind::Objects(self.spec)),
        };
        let source = Source {
            root: self.root.clone(),
            split,
            encoding,
            guest: Some(self.host.guest.clone()),
            model: Some(self.host.model.clone()),
            parameters: String::new(),
            terms: Terms::default(),
            view: (!augmentation.is_none()).then_some(View {
                augmentation,
                seed: 0,
                number: round,
            }),
            rows,
            shape: self.spec.sample_shape().to_vec(),
            request_samples: 32,
        };
        let hosts = Hosts::from(self.host.client.clone());
        let begun = Instant::now();
        for batch in self.photos.chunks(128) {
            let fetched = self
                .fetcher
                .fetch(&hosts, Arc::new(source.clone()), batch.into())
                .await?;
            ensure!(fetched.bad.is_empty(), "photos that cannot be decoded");
        }
        Ok(begun.elapsed().as_secs_f64())
    }
}
