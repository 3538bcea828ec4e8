//! Invalid photos, folders, flags and disks. Commands print one clear error, exit with code 1 and leave no
//! incomplete files.

use crate::harness::{Scratch, events, series, sorted};
use frostline_e2e::finish;
use std::fs;
use std::process::Command;

/// Files that no decoder accepts.
const BAD_PHOTOS: [(&str, &[u8]); 3] = [
    ("empty.jpg", b""),
    ("text.jpg", b"this is no image"),
    ("cut.jpg", &[0xff, 0xd8, 0xff, 0xe0, 0, 16]),
];

#[test]
fn a_bad_photo_ends_the_job_and_is_named() {
    for (name, bytes) in BAD_PHOTOS {
        for split in ["none", "input", "features"] {
            let scratch = Scratch::with_photos(4, 2);
            fs::write(scratch.class("train", 1).join(name), bytes).unwrap();
            // The only batch contains the photo, so there is no model to keep.
            let run = scratch.train(&["--split", split, "--batch", "16"]);
            scratch.assert_failed(&run, &[name]);
        }
    }
}

#[test]
fn bad_photos_can_be_skipped_and_are_asked_for_once() {
    let scratch = Scratch::with_photos(6, 2);
    for (name, bytes) in BAD_PHOTOS {
        fs::write(scratch.class("train", 0).join(name), bytes).unwrap();
    }
    let events = events(&scratch.train(&["--on-bad-sample", "skip", "--epochs", "3"]));
    let reported: Vec<_> = events
        .iter()
        .filter(|event| event["event"] == "bad_sample")
        .collect();
    assert_eq!(
        reported.len(),
        3,
        "each bad photo is reported once in three epochs"
    );
    assert_eq!(series(&events, "epoch", "skipped"), [3.0, 3.0, 3.0]);
}

#[test]
fn a_class_without_validation_photos_is_named() {
    let scratch = Scratch::with_photos(4, 2);
    let class = scratch.class("validation", 2);
    let name = class.file_name().unwrap().to_string_lossy().into_owned();
    fs::remove_dir_all(&class).unwrap();
    let finished = scratch.train(&[]);
    let events = finished.objects().unwrap();
    let warning = events.iter().find(|event| event["event"] == "warning").unwrap();
    let message = warning["message"].as_str().unwrap();
    assert!(
        message.contains(&format!("'{name}'")) && message.contains("not validated"),
        "{message}"
    );
}

#[test]
fn one_class_is_not_enough() {
    let scratch = Scratch::with_photos(4, 2);
    for part in ["train", "validation"] {
        for class in sorted(&scratch.path("photos").join(part)).iter().skip(1) {
            fs::remove_dir_all(class).unwrap();
        }
    }
    scratch.assert_failed(&scratch.train(&[]), &["class"]);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let scratch = Scratch::new();
    scratch.assert_failed(
        &scratch.train(&["--data", scratch.path("nowhere").to_str().unwrap()]),
        &["nowhere"],
    );
}

#[test]
fn an_output_folder_that_is_not_there_is_named_before_training() {
    let scratch = Scratch::with_photos(4, 2);
    let run = scratch.train(&["--out", scratch.path("nowhere/tuned.onnx").to_str().unwrap()]);
    scratch.assert_failed(&run, &["nowhere"]);
    assert!(
        !run.stdout.contains("\"step\""),
        "training started although the result cannot be written"
    );
}

mod long {
    use super::*;

    #[test]
    fn a_full_disk_leaves_no_half_written_model() {
        let scratch = Scratch::with_photos(4, 2);
        let host = scratch.host(&[]);
        let train = scratch.train_command(&[
            "--host",
            &host.url(),
            "--token-file",
            host.token_file().to_str().unwrap(),
        ]);
        // A file size limit of 64 KiB simulates the full disk. It applies only to the trainer.
        let mut limited = Command::new("bash");
        limited
            .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "bash"])
            .arg(train.get_program())
            .args(train.get_args());
        scratch.assert_failed(&finish(&mut limited).unwrap(), &["cannot write", "tuned.onnx"]);
    }
}
