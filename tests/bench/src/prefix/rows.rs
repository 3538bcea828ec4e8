//! Measures the rate of frozen layers on a single core by the number of rows per engine batch, and compares
//! the chosen number with the best.

use crate::networks::{Grid, Network};
use crate::report::{Report, geometric_mean, median, quantile};
use anyhow::{Context, Result};
use frostline_engine::{Session, SessionOptions};
use frostline_graph::Model;
use frostline_profile::efficient_rows;
use frostline_tensor::Tensor;
use std::time::Instant;

const MOST: usize = 16;
const ROWS: [usize; 5] = [1, 2, 4, 8, MOST];
/// Each round measures all numbers of rows in turn, with [`MOST`] rows in total for each.
const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 2;

/// Measures every network in both precisions.
pub(super) fn run(report: &mut Report) -> Result<()> {
    let grid = Grid::read()?;
    println!("\nimages per second on a single core by rows per engine batch");
    println!(
        "{:<17} {:>7} {:>7} {:>7} {:>7} {:>7}   chosen",
        "network", "1", "2", "4", "8", "16"
    );
    let (mut over_most, mut over_best) = (Vec::new(), Vec::new());
    for name in super::names(report) {
        for name in [format!("{name}-int8"), name] {
            let [most, best] = network(report, &grid.network(&name)?)?;
            over_most.push(most);
            over_best.push(best);
        }
    }
    let (gain, least) = (geometric_mean(&over_most), quantile(&over_best, 0.0));
    report.set("efficient_rows_over_16_geomean", gain);
    report.set("efficient_rows_over_best_min", least);
    println!(
        "\nrate with the chosen rows relative to {MOST} rows: geometric mean {gain:.2}; relative to the best: minimum {least:.2}"
    );
    Ok(())
}

/// Returns the rate with the chosen rows relative to [`MOST`] rows, and relative to the best rate.
fn network(report: &mut Report, network: &Network) -> Result<[f64; 2]> {
    let model = Model::read(&network.file()?)?;
    let frozen = model.slice(None, Some(&network.freeze))?;
    let chosen = efficient_rows(&frozen, MOST)?;
    let shape = model.network()?.input.shape.batched(MOST);
    let zeros = vec![0.0; shape.elements()?];
    let rows = Tensor::f32(shape, zeros)?;
    let mut session = Session::open(&frozen.to_bytes()?, &SessionOptions::default())?;
    let input = session
        .inputs()
        .first()
        .context("the network must have an input")?
        .name
        .clone();
    let mut seconds = ROWS.map(|_| Vec::new());
    let rounds = if report.quick() { QUICK_ROUNDS } else { ROUNDS };
    for round in 0..=rounds {
        for (size, seconds) in ROWS.iter().zip(&mut seconds) {
            let started = Instant::now();
            for start in (0..MOST).step_by(*size) {
                session.run(&[(&input, &rows.slice_rows(start, start + size)?)])?;
            }
            // The first round is a warm-up.
            if round > 0 {
                seconds.push(started.elapsed().as_secs_f64());
            }
        }
    }
    let rates = seconds.map(|seconds| MOST as f64 / median(&seconds));
    let name = &network.name;
    print!("{name:<17}");
    for (size, rate) in ROWS.iter().zip(rates) {
        print!(" {rate:>7.2}");
        report.set(&format!("{name}_rows_{size}_images_per_second"), rate);
    }
    println!("   {chosen}");
    report.set(&format!("{name}_efficient_rows"), chosen);
    let of = |rows: usize| ROWS.iter().zip(rates).find(|(size, _)| **size == rows);
    let (_, rate) = of(chosen).context("the chosen number of rows is not in ROWS")?;
    let (_, most) = of(MOST).context("ROWS must contain MOST")?;
    Ok([rate / most, rate / quantile(&rates, 1.0)])
}
