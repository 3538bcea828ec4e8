//! Measures all candidate cuts for the networks and links. Compares the planned cut with the best cut and the
//! choices of other policies.

mod cell;
mod summary;

use crate::networks::{Extent, Grid, Network, short, skip_untrainable};
use crate::planner::Plan;
use crate::report::{Report, commit, folder};
use crate::tiers::Tiers;
use crate::trainer::Trainer;
use anyhow::{Context, Result};
use cell::{Cell, Measurement};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Estimated time for uploading and profiling a network.
const START: Duration = Duration::from_secs(40);

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let grid = Grid::read()?;
    let quick = report.quick();
    let extent = grid.extent(report);
    let records = Records::open(quick)?;
    let (mut cells, mut missing) = (Vec::new(), Vec::new());
    let mut wanted: Vec<PendingCell> = Vec::new();
    for name in &extent.networks {
        let network = grid.network(name)?;
        for mbit in &extent.links_mbit {
            let batch = network.batch(quick);
            let key = format!("{name} {mbit} Mbit/s batch {batch}");
            match records.find(&key) {
                Some(cell) => cells.push(cell.clone()),
                None => wanted.push(PendingCell {
                    network: network.clone(),
                    mbit: *mbit,
                    batch,
                    key,
                }),
            }
        }
    }
    if !wanted.is_empty() {
        let tiers = Tiers::open(&report.photos())?;
        let all = extent.networks.len() * extent.links_mbit.len();
        let usual = extent.minutes * 60.0 * wanted.len() as f64 / all as f64;
        let mut work = Work {
            tiers: &tiers,
            extent: &extent,
            quick,
            ends: Instant::now() + Duration::from_secs(report.seconds_or(usual as u64)),
            cells_left: 0,
            networks_left: 0,
            records: &records,
            report,
        };
        let networks: Vec<&[PendingCell]> = wanted
            .chunk_by(|one, other| one.network.name == other.network.name)
            .collect();
        for (index, network) in networks.iter().enumerate() {
            work.networks_left = networks.len() - index - 1;
            work.cells_left = networks.iter().skip(index).map(|network| network.len()).sum();
            let Some(first) = network.first() else { continue };
            let measured = work.network(network, &mut cells, &mut missing);
            skip_untrainable(work.report, &first.network.name, measured)?;
        }
    }
    summary::show(report, &cells)?;
    for key in missing {
        println!("{key} skipped: out of time; run the benchmark again to continue");
    }
    Ok(())
}

/// A cell that is still to be measured.
struct PendingCell {
    network: Network,
    mbit: f64,
    batch: usize,
    key: String,
}

struct Work<'a> {
    tiers: &'a Tiers,
    extent: &'a Extent,
    quick: bool,
    ends: Instant,
    /// Number of cells still to be measured, including the current cell.
    cells_left: usize,
    /// Number of networks after the current one.
    networks_left: usize,
    records: &'a Records,
    report: &'a mut Report,
}

impl Work<'_> {
    /// Starts a new host and measures all cells of the network.
    fn network(
        &mut self,
        wanted: &[PendingCell],
        cells: &mut Vec<Cell>,
        missing: &mut Vec<String>,
    ) -> Result<()> {
        let first = wanted.first().context("no pending cell")?;
        if Instant::now() >= self.ends {
            missing.extend(wanted.iter().map(|cell| cell.key.clone()));
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        self.tiers.link().hold(None)?;
        let host = self.tiers.host(folder.path())?;
        let mut trainer = Trainer::open(self.tiers, &host, &first.network, first.batch)?;
        let upload = trainer.upload()?;
        let candidates = first.network.candidates(self.quick);
        let profiled = Instant::now();
        Plan::ask(&trainer, &candidates)?;
        let name = &first.network.name;
        println!(
            "{name}: {:.0} MB of frozen layers sent in {:.1} s, profiled in {:.1} s",
            upload.bytes as f64 / 1e6,
            upload.seconds,
            profiled.elapsed().as_secs_f64()
        );
        self.report.set(&format!("{name}_upload_bytes"), upload.bytes);
        self.report.set(&format!("{name}_upload_seconds"), upload.seconds);
        for cell in wanted {
            let left = self.ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                missing.push(cell.key.clone());
                continue;
            }
            let begun = Instant::now();
            let starts = START.mul_f64(self.networks_left as f64);
            let budget = left.saturating_sub(starts).div_f64(self.cells_left.max(1) as f64);
            let measurement = Measurement::begin(&mut trainer, cell.mbit, self.extent, &candidates, budget)?;
            let mut measured = measurement.finish(candidates.clone())?;
            measured.key.clone_from(&cell.key);
            measured.commit = commit();
            print_cell(&measured, begun.elapsed());
            self.records.add(&measured)?;
            cells.push(measured);
            self.cells_left = self.cells_left.saturating_sub(1);
        }
        Ok(())
    }
}

fn print_cell(cell: &Cell, took: Duration) {
    println!(
        "\n{} ({:.0} s): planned {} in {}",
        cell.key,
        took.as_secs_f64(),
        short(&cell.planned),
        cell.encoding
    );
    let mut timings: Vec<_> = cell.timings.iter().collect();
    timings.sort_by(|one, other| one.1.median().total_cmp(&other.1.median()));
    for (split, timing) in timings {
        let notes: Vec<&str> = [
            (split == &cell.planned, "planned"),
            (split == &cell.winner, "fastest"),
        ]
        .into_iter()
        .filter_map(|(holds, note)| holds.then_some(note))
        .collect();
        println!(
            "  {:<44} {:>8.3} s, predicted {:>7.3}; {:>7.0} KB, link {:>3.0} % used; {} runs {}",
            short(split),
            timing.median(),
            cell.predicted.get(split).copied().unwrap_or(f64::NAN),
            timing.bytes / 1e3,
            timing.bytes * 8.0 / (timing.median() * cell.mbit * 1e6) * 100.0,
            timing.runs.len(),
            notes.join(", ")
        );
    }
    for (split, seconds) in &cell.ruled_out {
        println!(
            "  {:<44} ruled out, transfer alone would need {seconds:.1} s",
            short(split)
        );
    }
}

/// Finished cells of full runs, stored one per line so that an interrupted run can continue.
struct Records {
    file: Option<PathBuf>,
    cells: Vec<Cell>,
}

impl Records {
    fn open(quick: bool) -> Result<Self> {
        if quick {
            return Ok(Self {
                file: None,
                cells: Vec::new(),
            });
        }
        let folder = folder()?.join("grid");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("cells.jsonl");
        let text = if file.is_file() {
            std::fs::read_to_string(&file)?
        } else {
            String::new()
        };
        // Skips incomplete lines after a crash. The benchmark then measures these cells again.
        let cells = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        Ok(Self {
            file: Some(file),
            cells,
        })
    }

    /// Returns the cell called `key` if the same commit measured it.
    fn find(&self, key: &str) -> Option<&Cell> {
        let commit = commit();
        self.cells
            .iter()
            .rev()
            .find(|cell| cell.key == key && cell.commit == commit)
    }

    fn add(&self, cell: &Cell) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
        let line = serde_json::to_string(cell)? + "\n";
        file.write_all(line.as_bytes())?;
        Ok(())
    }
}
