//! Measures the effect of augmentation with repeated views on small data sets. Trains a pretrained network's
//! head on 5, 10 and 40 photos per class.

use crate::accuracy::mean;
use crate::photos::Pretrained;
use crate::report::Report;
use crate::run::{last_number, text, train};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Photos per class.
const COUNTS: [usize; 3] = [5, 10, 40];

const SEEDS: usize = 5;

/// Epochs for the largest count. Smaller counts get proportionally more epochs, so that the number of batches
/// is about the same.
const EPOCHS: usize = 20;
const BATCH: &str = "50";

/// Name and additional flags.
const WAYS: [(&str, &[&str]); 2] = [
    ("plain", &[]),
    (
        "pixels",
        &[
            "--random-resized-crop",
            "0.35,1",
            "--hflip",
            "0.5",
            "--views",
            "8",
        ],
    ),
];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let (photos, pretrained) = (report.photos(), Pretrained::find());
    let seeds = if report.quick() { 1 } else { SEEDS };
    println!(
        "\n{:<8} {:<10} {:>9} {:>12} {:>8}   by seed",
        "photos", "varied", "accuracy", "difference", "seconds"
    );
    for count in COUNTS {
        let mut found = WAYS.map(|_| (Vec::new(), Vec::new()));
        for seed in 0..seeds {
            let folder = tempfile::tempdir()?;
            let root = folder.path().join("photos");
            choose(photos.root(), &root, count, seed)?;
            for ((way, flags), (accuracies, seconds)) in WAYS.iter().zip(&mut found) {
                let epochs = EPOCHS * COUNTS.into_iter().max().unwrap_or(count) / count;
                let events = train_few(
                    &pretrained,
                    &folder.path().join(way),
                    &root,
                    [epochs, seed],
                    flags,
                )?;
                for (key, values) in [("validation_accuracy", accuracies), ("seconds", seconds)] {
                    values.push(last_number(&events, "done", key)?);
                }
            }
        }
        let plain = found.first().map_or(f64::NAN, |(accuracies, _)| mean(accuracies));
        for ((way, _), (accuracies, seconds)) in WAYS.iter().zip(&found) {
            let (accuracy, seconds) = (mean(accuracies), mean(seconds));
            println!(
                "{count:<8} {way:<10} {accuracy:>9.3} {:>+12.3} {seconds:>8.1}   {accuracies:.3?}",
                accuracy - plain
            );
            report.set(&format!("few_{count}_{way}_accuracy"), accuracy);
            report.set(&format!("few_{count}_{way}_difference"), accuracy - plain);
            report.set(&format!("few_{count}_{way}_seconds"), seconds);
        }
    }
    report.set("few_seeds", seeds);
    Ok(())
}

/// Trains with a feature cache in `folder`, separate from those of other jobs, and returns the events.
/// `numbers` are epochs and seed.
fn train_few(
    pretrained: &Pretrained,
    folder: &Path,
    root: &Path,
    numbers: [usize; 2],
    flags: &[&str],
) -> Result<Vec<serde_json::Value>> {
    fs::create_dir_all(folder)?;
    let kept = folder.join("features");
    let [epochs, seed] = numbers.map(|number| number.to_string());
    let mut all = vec!["--batch", BATCH, "--epochs", &epochs, "--seed", &seed];
    all.extend(["--feature-cache", "4GiB", "--feature-folder", text(&kept)?]);
    all.extend(flags);
    train(&pretrained.file, root, pretrained.freeze, folder, &all)
}

/// Copies all validation photos and `count` training photos per class. Different seeds select different
/// photos if the class has enough.
fn choose(photos: &Path, root: &Path, count: usize, seed: usize) -> Result<()> {
    for (part, count) in [("train", count), ("validation", usize::MAX)] {
        for class in listed(&photos.join(part))? {
            let files = listed(&class)?;
            let count = count.min(files.len());
            ensure!(part != "train" || count > 0, "{} is empty", class.display());
            let folder = root.join(part).join(class.file_name().unwrap_or_default());
            fs::create_dir_all(&folder)?;
            for file in files.iter().cycle().skip(seed * count).take(count) {
                fs::copy(file, folder.join(file.file_name().unwrap_or_default()))?;
            }
        }
    }
    Ok(())
}

/// Returns the paths in a folder, sorted by name.
fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| {
        format!(
            "{}: photos must be in train/<class>/ and validation/<class>/",
            folder.display()
        )
    })?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_selects_different_photos() {
        let folder = tempfile::tempdir().unwrap();
        for class in ["train/a", "train/b", "validation/a"] {
            let class = folder.path().join("all").join(class);
            fs::create_dir_all(&class).unwrap();
            (0..4).for_each(|number| fs::write(class.join(format!("{number}.jpg")), "x").unwrap());
        }
        let names = |seed: usize, part: &str| -> Vec<String> {
            let root = folder.path().join(seed.to_string());
            choose(&folder.path().join("all"), &root, 2, seed).unwrap();
            let files = listed(&root.join(part)).unwrap().into_iter();
            files
                .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
                .collect()
        };
        assert_eq!(names(0, "train/a"), ["0.jpg", "1.jpg"]);
        assert_eq!(names(1, "train/b"), ["2.jpg", "3.jpg"]);
        assert_eq!(names(2, "train/a"), names(0, "train/a"));
        assert_eq!(names(1, "validation/a").len(), 4);
    }
}
