//! Writes sample runs into a folder, with their reports: `cargo run -p frostline-report --example sample -- FOLDER [IMAGE..]`

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../tests/report/sample.rs"]
mod sample;

use frostline_report::Run;
use sample::{Sample, add_mistakes};
use std::path::PathBuf;

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().unwrap();
    let images: Vec<PathBuf> = arguments.collect();
    let many = (0..60)
        .map(|place| format!("species of bird number {place}"))
        .collect();
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let samples = [
        ("clothing", Sample::clothing()),
        (
            "clothing-slow",
            Sample {
                rate: 0.01,
                seed: 8,
                reuse: false,
                eventful: false,
                ..Sample::clothing()
            },
        ),
        (
            "clothing-fast",
            Sample {
                rate: 0.2,
                seed: 9,
                epochs: 12,
                ..Sample::clothing()
            },
        ),
        (
            "birds",
            Sample {
                classes: many,
                epochs: 8,
                ..Sample::clothing()
            },
        ),
        (
            "x-rays",
            Sample {
                task: "labels",
                classes: named(&["effusion", "nodule", "mass"]),
                ..Sample::clothing()
            },
        ),
        (
            "ages",
            Sample {
                task: "numbers",
                classes: named(&["age"]),
                eventful: false,
                ..Sample::clothing()
            },
        ),
    ];
    for (name, sample) in samples {
        let run = sample.write(&folder, &format!("2026-11-23T01-30-00-{name}"));
        if name == "clothing" {
            add_mistakes(&run, &images);
        }
        let page = frostline_report::html(&[Run::read(&run).unwrap()]);
        std::fs::write(run.join("report.html"), page).unwrap();
    }
    let compared = ["clothing", "clothing-slow", "clothing-fast"];
    let read = compared.map(|name| Run::read(&folder.join(format!("2026-11-23T01-30-00-{name}"))).unwrap());
    std::fs::write(folder.join("compared.html"), frostline_report::html(&read)).unwrap();
}
