//! Deterministic run folders, similar to those of real jobs.

use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Configuration of a sample run.
pub(crate) struct Sample {
    /// `classes`, `labels` or `numbers`.
    pub(crate) task: &'static str,
    /// Names of classes, labels or numbers.
    pub(crate) classes: Vec<String>,
    /// Number of epochs.
    pub(crate) epochs: u32,
    /// Number of steps per epoch.
    pub(crate) steps: u64,
    /// True if features are cached from the first epoch on.
    pub(crate) reuse: bool,
    /// Learning rate.
    pub(crate) rate: f64,
    /// True for failing hosts, a split change and other events.
    pub(crate) eventful: bool,
    /// Seed of the random numbers.
    pub(crate) seed: u64,
}

impl Sample {
    /// Returns a run with photos of clothing.
    pub(crate) fn clothing() -> Self {
        let classes = [
            "dress",
            "hat",
            "longsleeve",
            "outwear",
            "pants",
            "shirt",
            "shoes",
            "shorts",
            "skirt",
            "t-shirt",
        ];
        Self {
            task: "classes",
            classes: classes.map(str::to_owned).to_vec(),
            epochs: 20,
            steps: 48,
            reuse: true,
            rate: 0.05,
            eventful: true,
            seed: 7,
        }
    }

    /// Writes the run to `<folder>/<name>` and returns the path.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let run = folder.join(name);
        fs::create_dir_all(&run).unwrap();
        let mut draw = Draw(self.seed);
        fs::write(run.join("config.json"), self.config().to_string()).unwrap();
        fs::write(run.join("events.jsonl"), self.events(&mut draw)).unwrap();
        fs::write(run.join("plan.json"), plan().to_string()).unwrap();
        let predictions = match self.task {
            "classes" => self.predictions(&mut draw),
            task => self.values(task == "labels", &mut draw),
        };
        fs::write(run.join("predictions.csv"), predictions).unwrap();
        run
    }

    fn config(&self) -> Value {
        json!({
            "model": "squeezenet1_1.onnx", "data": "s3://photos/clothing", "freeze": "features.12", "split": "auto", "batch": 64,
            "hosts": ["https://store-1:8443", "https://store-2:8443"], "seed": self.seed, "feature_cache": if self.reuse { "8 GB" } else { "off" },
            "recipe": {"optimizer": "sgd", "lr": self.rate, "momentum": 0.9, "weight_decay": 0.0001, "epochs": self.epochs,
                "schedule": {"kind": "cosine", "warmup_epochs": 1}, "label_smoothing": null, "milestones": [8, 14]},
        })
    }

    fn events(&self, draw: &mut Draw) -> String {
        let mut out = String::new();
        let mut at = 0.4;
        let line = |out: &mut String, at: f64, mut event: Value| {
            event["at"] = json!((at * 1e3).round() / 1e3);
            writeln!(out, "{event}").unwrap();
        };
        let train = self.steps * 64;
        let validation = self.steps * 16;
        line(
            &mut out,
            at,
            json!({"event": "dataset", "task": self.task, "classes": self.classes, "train": train, "validation": validation,
            "steps_per_epoch": self.steps, "epochs": self.epochs}),
        );
        at += 2.1;
        line(
            &mut out,
            at,
            json!({"event": "upload", "what": "model", "name": "m", "bytes": 4_900_000, "skipped": false, "seconds": 1.9}),
        );
        at += 3.0;
        line(
            &mut out,
            at,
            json!({"event": "split", "split": "features.12", "encoding": "f16", "bytes_per_sample": 86_528,
            "reason": "predicted 0.131 s an iteration, bounded by the link"}),
        );
        at += 2.2;
        let mut baseline = json!({"event": "baseline", "bytes_received": 66_000_000, "seconds": 2.2});
        self.figures(&mut baseline, 0.0, draw);
        line(&mut out, at, baseline);
        let mut step = 0;
        for epoch in 1..=self.epochs {
            let began = at;
            let stored = self.reuse && epoch > 1;
            let progress = f64::from(epoch) / f64::from(self.epochs.max(1));
            let late = self.eventful && epoch * 3 > self.epochs;
            let split = if late { "features.7" } else { "features.12" };
            let mut sum = 0.0;
            let mut waits = 0.0;
            for place in 0..self.steps {
                step += 1;
                let done = progress - 1.0 / f64::from(self.epochs) * (1.0 - place as f64 / self.steps as f64);
                let loss =
                    0.25 + 2.1 * (-3.2 * done * (self.rate / 0.05).sqrt()).exp() + 0.3 * (draw.next() - 0.5);
                let waited = if stored { 0.001 } else { 0.07 + 0.06 * draw.next() };
                let computed = 0.030 + 0.006 * draw.next();
                at += waited + computed;
                (sum, waits) = (sum + loss, waits + waited);
                let bytes = if stored { 0 } else { 5_537_792 };
                line(
                    &mut out,
                    at,
                    json!({"event": "step", "epoch": epoch, "step": step, "loss": loss as f32, "split": split,
                    "waited_seconds": waited, "computed_seconds": computed, "bytes_received": bytes, "rows": 64, "cached_rows": 0}),
                );
                if self.eventful && step == self.steps / 2 {
                    line(
                        &mut out,
                        at,
                        json!({"event": "host", "host": "https://store-2:8443", "state": "down", "reason": "connection timed out"}),
                    );
                    line(
                        &mut out,
                        at,
                        json!({"event": "retry", "host": "https://store-2:8443", "lost": 24, "attempt": 0, "wait_seconds": 0.0,
                        "reason": "connection refused"}),
                    );
                }
                if self.eventful && step == self.steps * 2 {
                    line(
                        &mut out,
                        at,
                        json!({"event": "host", "host": "https://store-2:8443", "state": "up", "reason": "reachable again"}),
                    );
                }
            }
            at += if stored { 0.4 } else { 2.0 };
            let (kept, fetched) = if stored { (train - 3, 3) } else { (0, train) };
            let mut ended = json!({"event": "epoch", "epoch": epoch, "loss": sum / self.steps as f64, "bytes_received": if stored { 310_000 } else { 330_000_000 },
                "validation_bytes_received": 0, "seconds": at - began, "waited_seconds": waits, "split": split, "skipped": u32::from(self.eventful)});
            ended["cached_rows"] = json!(kept);
            ended["fetched_rows"] = json!(fetched);
            self.figures(&mut ended, progress, draw);
            line(&mut out, at, ended);
            if self.eventful {
                self.between(&mut out, at, epoch, &line);
            }
        }
        let mut done = json!({"event": "done", "model": "tuned.onnx", "split": "features.7", "epoch": self.epochs, "bytes_received": 412_000_000, "seconds": at + 0.3,
            "received": {"listing": 120_000, "measuring": 9_000_000, "baseline": 66_000_000, "training": 266_000_000, "validation": 70_000_000,
                "other": 880_000, "interrupted": 2_100_000}});
        self.figures(&mut done, 1.0, draw);
        line(&mut out, at + 0.3, done);
        out
    }

    /// Writes the events that follow certain epochs.
    fn between(&self, out: &mut String, at: f64, epoch: u32, line: &impl Fn(&mut String, f64, Value)) {
        if epoch == 1 {
            line(
                out,
                at,
                json!({"event": "features", "kept": 0, "rows": 3069, "bytes": 265_000_000, "limit": 8_000_000_000_u64, "folder": "features"}),
            );
            line(
                out,
                at,
                json!({"event": "bad_sample", "key": "train/hat/broken <1>.jpg", "message": "invalid JPEG"}),
            );
        }
        if epoch == self.epochs / 3 {
            line(
                out,
                at,
                json!({"event": "replan", "step": 1, "from": "features.12", "to": "features.7", "encoding": "int8",
                "reason": "the link is half as fast as measured; saves 21 % of the remaining time"}),
            );
        }
        if epoch == self.epochs / 2 {
            line(
                out,
                at,
                json!({"event": "unfreeze", "epoch": epoch + 1, "freeze": "features.7"}),
            );
        }
    }

    fn figures(&self, event: &mut Value, progress: f64, draw: &mut Draw) {
        let good = 1.0 - 0.9 * (-4.0 * progress).exp() - 0.09 + 0.03 * (draw.next() - 0.5);
        let figures = match self.task {
            "labels" => vec![
                ("f1_micro", good),
                ("f1_macro", good - 0.08),
                ("mean_average_precision", good - 0.03),
            ],
            "numbers" => vec![
                ("mae", 4.0 * (1.05 - good)),
                ("rmse", 5.5 * (1.05 - good)),
                ("r2", 2.0 * good - 1.0),
            ],
            _ => vec![("accuracy", if progress == 0.0 { 0.09 } else { good })],
        };
        for (name, value) in figures {
            event[format!("validation_{name}")] = json!(value);
        }
    }

    fn predictions(&self, draw: &mut Draw) -> String {
        let mut out = String::from("key,label,predicted,probability,rank\n");
        let count = self.classes.len() as u64;
        for place in 0..count * 60 {
            let is = (place % count) as usize;
            let sure = draw.next();
            // Neighboring classes are confused with increasing probability.
            let right = draw.next() > 0.05 + 0.25 * (is as f64 / count as f64);
            let taken = if right {
                is
            } else {
                (is + 1 + (draw.next() * 3.0) as usize) % self.classes.len()
            };
            let rank = if right { 1 } else { 2 + (draw.next() * 6.0) as u64 };
            writeln!(
                out,
                "validation/{}/{place:04}.jpg,\"{}\",\"{}\",{:.4},{rank}",
                is,
                self.classes[is].replace('"', "\"\""),
                self.classes[taken].replace('"', "\"\""),
                0.4 + 0.6 * sure
            )
            .unwrap();
        }
        out
    }
}

impl Sample {
    /// Returns predictions of labels or numbers. Two of three labels are correct, and errors of numbers are
    /// up to 0.5.
    fn values(&self, labels: bool, draw: &mut Draw) -> String {
        let mut out = String::from("key");
        for name in &self.classes {
            let name = name.replace('"', "\"\"");
            write!(out, ",\"label:{name}\",\"predicted:{name}\"").unwrap();
            if labels {
                write!(out, ",\"probability:{name}\"").unwrap();
            }
        }
        for place in 0..60 {
            write!(out, "\nvalidation/{place:04}.jpg").unwrap();
            for _ in &self.classes {
                let is = draw.next();
                let off = draw.next();
                if labels {
                    let is = is > 0.5;
                    let right = off > 1.0 / 3.0;
                    let said = is == right;
                    let probability = if said { 0.5 + off / 2.0 } else { off / 2.0 };
                    write!(out, ",{},{},{probability}", u8::from(is), u8::from(said)).unwrap();
                } else {
                    write!(out, ",{},{}", 40.0 * is, 40.0 * is + off - 0.5).unwrap();
                }
            }
        }
        out.push('\n');
        out
    }
}

/// Adds a mistake for each of the images.
pub(crate) fn add_mistakes(run: &Path, images: &[PathBuf]) {
    let folder = run.join("mistakes");
    fs::create_dir_all(&folder).unwrap();
    let mut listed = Vec::new();
    for (place, image) in images.iter().enumerate() {
        let extension = image.extension().unwrap().to_str().unwrap();
        let name = format!("{place:02}.{extension}");
        fs::copy(image, folder.join(&name)).unwrap();
        listed.push(json!({"key": format!("validation/shirt/a-rather-long-name-of-a-photo-{place:04}.jpg"), "label": "shirt",
            "predicted": "longsleeve", "probability": 0.99 - place as f64 * 0.02, "image": name}));
    }
    fs::write(folder.join("mistakes.json"), Value::from(listed).to_string()).unwrap();
}

fn plan() -> Value {
    let splits = [
        ("none", "f32", 0.92, "link", 109_000.0, 0.02, 0.92, 0.41),
        ("input", "u8", 1.21, "link", 150_528.0, 0.11, 1.21, 0.38),
        ("features.2", "f16", 3.3, "link", 390_000.0, 0.19, 3.3, 0.31),
        ("features.5", "f16", 1.4, "link", 186_624.0, 0.24, 1.4, 0.24),
        ("features.7", "int8", 0.134, "link", 46_656.0, 0.10, 0.134, 0.09),
        ("features.7", "f16", 0.19, "link", 93_312.0, 0.10, 0.19, 0.09),
        ("features.12", "f16", 0.121, "host", 86_528.0, 0.121, 0.118, 0.034),
        ("features.12", "f32", 0.21, "link", 173_056.0, 0.121, 0.21, 0.034),
    ];
    let candidates = splits.map(|(split, encoding, iteration, bottleneck, bytes, host, link, trainer)| {
        json!({"split": split, "encoding": encoding, "iteration_seconds": iteration, "bottleneck": bottleneck, "bytes_per_sample": bytes,
            "host_seconds": host, "link_seconds": link, "trainer_seconds": trainer, "upload_seconds": 0.0, "total_seconds": iteration * 1000.0})
    });
    json!({"split": "features.12", "encoding": "f16", "policy": "auto", "iteration_seconds": 0.121, "link_bytes_per_second": 6.2e6,
        "bottleneck": "host", "batch": 64, "iterations": 1200, "candidates": candidates})
}

/// SplitMix64 random number generator (Steele, Lea and Flood 2014).
struct Draw(u64);

impl Draw {
    /// Returns a number from 0 to 1, exclusive.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
