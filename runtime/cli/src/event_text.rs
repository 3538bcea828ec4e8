//! Formats events as text.

use crate::output::bytes;
use frostline_client::{HostState, Notice, SkippedObjects, Task};
use frostline_job::{pixels_line, plain_line};
use frostline_tensor::is_cloud_placeholder;
use frostline_trainer::{Event, Received, TrainedEpoch};

/// Returns a line of text for an event. Steps and upload progress only update the progress bar and return
/// `None`.
pub(crate) fn text(event: &Event) -> Option<String> {
    let line = match event {
        Event::Notice(notice) => of_notice(notice),
        event => of_data(event).or_else(|| of_training(event)),
    };
    let line = line.map(|line| plain_line(&line).into_owned());
    line.or_else(|| of_run(event))
}

/// Formats events about data, uploads and splits. Like all functions below, returns `None` for other events.
fn of_data(event: &Event) -> Option<String> {
    Some(match event {
        Event::Dataset(data) => {
            let of = match data.task {
                Task::Classes => "in {} classes",
                Task::Labels => "with {} labels",
                Task::Numbers => "with {} numbers each",
            };
            let of = of.replace("{}", &data.classes.len().to_string());
            let [train, validation] = [data.train, data.validation];
            format!("data       {train} training and {validation} validation images {of}")
        }
        Event::LeftOut(skipped) => left_out(skipped),
        Event::Upload {
            what,
            name,
            bytes: size,
            skipped,
            seconds,
            resumed_at,
        } => {
            let what = what.to_string();
            let size = bytes(*size);
            let resumed = resumed_at.map_or_else(String::new, |at| format!(", resumed at {}", bytes(at)));
            if *skipped {
                format!("{what:<10} {name}: already uploaded ({size})")
            } else {
                format!("{what:<10} {name}: uploaded ({size} in {seconds:.1} s{resumed})")
            }
        }
        Event::Split {
            split,
            module,
            encoding,
            bytes_per_sample,
            reason,
        } => {
            let module = module.as_ref().map(|module| format!(" ({module})"));
            format!(
                "split      {split}{} as {encoding}, {} an image: {reason}",
                module.unwrap_or_default(),
                bytes(*bytes_per_sample)
            )
        }
        Event::Profile { reason, .. } => format!("profile    {reason}"),
        Event::BadSample { key, message } => format!("skipped    {key}: {message}"),
        _ => return None,
    })
}

fn left_out(SkippedObjects { objects, first }: &SkippedObjects) -> String {
    let more = if *objects > first.len() { ", .." } else { "" };
    let names = first.join(", ");
    let hint = if first.iter().any(|key| is_cloud_placeholder(key)) {
        "; download .icloud placeholders in Finder or with brctl download"
    } else {
        ""
    };
    format!("skipped    {objects} non-image or unlabeled objects: {names}{more}{hint}")
}

/// Formats events about cached features, the precision, epochs and their results.
fn of_training(event: &Event) -> Option<String> {
    Some(match event {
        Event::Features {
            kept,
            rows,
            bytes: needed,
            limit,
            folder,
        } => format!(
            "cache      {kept} of {rows} features cached; all need {}, limit {}, in {}",
            bytes(*needed),
            bytes(*limit),
            folder.display()
        ),
        Event::Int8 {
            used,
            quantized_layers,
            layers,
            cosine,
            speedup,
            reason,
        } => format!(
            "precision  {} for the frozen layers: int8 is {speedup:.1} times as fast on this machine, cosine similarity {cosine:.4}, {quantized_layers} of {layers} \
             layers; {reason}",
            if *used { "int8" } else { "f32" }
        ),
        Event::Baseline { validation, .. } => format!("before     validation {validation}"),
        Event::Epoch(epoch) => epoch_line(epoch),
        Event::Unfreeze { epoch, freeze } => {
            format!("unfreeze   training the layers after {freeze} from epoch {epoch}")
        }
        Event::Replan {
            to, encoding, reason, ..
        } => format!("replan     split {to} as {encoding}: {reason}"),
        Event::EarlyStop { epoch, best } => {
            format!("early stop after epoch {epoch}: no improvement since epoch {best}")
        }
        _ => return None,
    })
}

fn epoch_line(ended: &TrainedEpoch) -> String {
    let kept = match (ended.cached_rows, ended.fetched_rows) {
        (0, _) => String::new(),
        (_, 0) => ", all images from cache".to_owned(),
        (kept, fetched) => format!(", {kept} of {} images from cache", kept + fetched),
    };
    let skipped = match ended.skipped {
        0 => String::new(),
        skipped => format!(", {skipped} images skipped"),
    };
    format!(
        "epoch {:<4} loss {:.4}, validation {}, {} received, {:.1} s ({:.1} s waiting){kept}{skipped}",
        ended.epoch,
        ended.loss,
        ended.validation,
        bytes(ended.bytes_received),
        ended.seconds,
        ended.waited_seconds
    )
}

/// Formats events about the run folder and the result, which has two lines.
fn of_run(event: &Event) -> Option<String> {
    Some(match event {
        Event::Run {
            folder,
            checkpoint,
            epoch,
            steps,
        } => {
            let folder = folder.display();
            match checkpoint {
                None => format!("run        {folder}"),
                Some(_) => format!("run        {folder}: resuming in epoch {epoch} after step {steps}"),
            }
        }
        Event::Checkpoint {
            steps,
            file,
            error: Some(error),
            ..
        } => format!(
            "checkpoint after step {steps}: cannot write {} ({error}); the previous checkpoint stays, training continues",
            file.display()
        ),
        Event::Pixels { recipe, source } => format!("pixels     {}", pixels_line(recipe, *source)),
        Event::Test {
            quality,
            samples,
            seconds,
        } => format!("test       {quality} on {samples} images, {seconds:.1} s"),
        Event::HostTime { host, seconds } => format!("host time  {host}: {}", seconds.summary()),
        Event::Done(done) => format!(
            "done       {}: the model after epoch {}, validation {}, {} received, {:.1} s\nreceived   {}",
            done.model.display(),
            done.epoch,
            done.validation,
            bytes(done.bytes_received),
            done.seconds,
            by_use(&done.received)
        ),
        Event::Warning { message } => format!("warning    {message}"),
        _ => return None,
    })
}

/// Formats notices about hosts and objects. Returns `None` for the progress and the retries of requests and
/// uploads.
fn of_notice(notice: &Notice) -> Option<String> {
    Some(match notice {
        Notice::NoKeys { count, names } => format!(
            "skipped    {count} invalid object names (empty or dot segments, control characters, not UTF-8, or links to nothing): \
             {}{}",
            names.join(", "),
            if *count > names.len() as u64 { ", .." } else { "" }
        ),
        Notice::OutwardLinks { links } => format!("skipped    {links}"),
        Notice::Host {
            host,
            state,
            reason,
            left_seconds,
        } => {
            let state = match state {
                HostState::Down => "down",
                HostState::Up => "up again",
            };
            format!("host       {host} is {state}: {reason}{}", until(*left_seconds))
        }
        Notice::Precision { host, permitted, .. } => {
            let place = format!("host {host}");
            format!("precision  {}", Notice::precision_text(&place, *permitted))
        }
        // Retries are summarized as outages.
        Notice::Uploading { .. } | Notice::Retry { .. } | Notice::UploadRetry { .. } => return None,
    })
}

/// Formats the remaining time until the job gives up, if no host is available.
pub(crate) fn until(left_seconds: Option<f64>) -> String {
    left_seconds.map_or_else(String::new, |left| format!(", for another {left:.0} s"))
}

/// Formats received bytes by use. Unused categories are omitted.
fn by_use(received: &Received) -> String {
    let uses = [
        (received.listing, "listing"),
        (received.measuring, "measuring"),
        (received.baseline, "baseline validation"),
        (received.training, "training"),
        (received.validation, "validation"),
        (received.other, "other"),
    ];
    let uses = uses.iter().filter(|(count, _)| *count > 0);
    let uses = uses.map(|(count, what)| format!("{} {what}", bytes(*count)));
    let lost = match received.interrupted {
        0 => String::new(),
        lost => format!("; {} in interrupted responses", bytes(lost)),
    };
    uses.collect::<Vec<_>>().join(", ") + &lost
}
