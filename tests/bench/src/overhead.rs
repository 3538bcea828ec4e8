//! Cost of the layers between a trainer and the engine. The same decoding and prefix run directly on the
//! engine, on lanes in child processes, through the stock guest, and through hosts with HTTP and Arrow on
//! loopback, with lanes in this process or in child processes as under `frostline serve`. All have the same
//! parallelism and threads and run in turns.

mod bare;
mod rig;

use crate::report::{Report, median};
use anyhow::Result;
use rig::WAYS;

pub(crate) use bare::Bare;
pub(crate) use rig::{Rig, Way};

/// A network with the cut at the end of the prefix.
struct Subject {
    network: &'static str,
    cut: &'static str,
    /// Suffix of the keys in the report.
    suffix: &'static str,
}

/// The lightest common network, with small activations, and a network with activations larger than the input.
const SUBJECTS: [Subject; 2] = [
    Subject {
        network: "squeezenet1_1",
        cut: "classifier.3",
        suffix: "",
    },
    Subject {
        network: "resnet50",
        cut: "layer2.3",
        suffix: "_large",
    },
];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for subject in &SUBJECTS {
        runtime.block_on(measure(report, subject))?;
    }
    Ok(())
}

async fn measure(report: &mut Report, subject: &Subject) -> Result<()> {
    let rounds = if report.quick() { 9 } else { 21 };
    let rig = Rig::start(subject.network, subject.cut, &report.photos()).await?;
    println!("\n{}, {rounds} rounds", rig.describe());
    rig.round(0).await?;
    let mut rates = WAYS.map(|_| Vec::new());
    for round in 0..rounds {
        let round = rig.round(round).await?;
        for (rates, rate) in rates.iter_mut().zip(round) {
            rates.push(rate);
        }
    }
    rig.end().await;
    show(report, subject, &rates);
    Ok(())
}

/// Shows each way's median rate, and the median ratio to the direct rate in the same round.
fn show(report: &mut Report, subject: &Subject, rates: &[Vec<f64>; WAYS.len()]) {
    let [direct, ..] = rates;
    println!("{:<44} {:>10} {:>8}", "", "images/s", "ratio");
    for (way, rates) in WAYS.iter().zip(rates) {
        let ratios: Vec<f64> = rates
            .iter()
            .zip(direct)
            .map(|(rate, direct)| rate / direct)
            .collect();
        let (rate, ratio) = (median(rates), median(&ratios));
        println!("{:<44} {rate:>10.1} {ratio:>8.3}", way.title());
        let (name, suffix) = (way.name(), subject.suffix);
        report.set(&format!("{name}_images_per_second{suffix}"), rate);
        if *way != Way::Direct {
            report.set(&format!("{name}_ratio{suffix}"), ratio);
        }
    }
}
