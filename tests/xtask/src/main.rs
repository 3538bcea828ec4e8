//! Development commands, run as `cargo xtask <command>`.

mod bench;
mod book;
mod demo;
mod deploy;
mod dist;
mod fuzz;
mod gpu;
mod gpu_kit;
#[cfg(feature = "source")]
mod layers;
mod link;
#[cfg(feature = "source")]
mod lint;
mod markdown;
mod needs;
mod ort;
#[cfg(feature = "source")]
mod pages;
mod parallel;
mod python;
#[cfg(feature = "source")]
mod reference;
mod relay;
mod stores;
#[cfg(feature = "source")]
mod structure;
mod test;
mod wheel;
mod workspace;

use anyhow::{Result, bail};
use std::process::{Command, ExitCode};

const HELP: &str = "\
Usage: cargo xtask <command>

  demo       run the demo: fine-tune the bundled network on the bundled photos with and without pushdown
  test       run the tests, except long ones
             --all      include long tests: hostile tenants, exhaustive properties, large networks, several hosts
             --skipped  run only the tests that the previous run skipped; fail if .ci/may-skip does not list a test that is skipped again
             --gpu      fail if the GPU tests cannot run
             other arguments are passed to the test runner
  lint       check formatting, clippy, dependency rules, import cycles, names, links, tables, and licenses with cargo-deny
  structure  print lines, functions, import cycles and public names per crate: cargo xtask structure [FOLDER]
  reference  write the reference of commands, settings, metrics and routes (--check: fail if it is stale)
  fuzz       run the fuzz targets, 30 s each: cargo xtask fuzz [--seconds N] [--keep] [TARGET..]
  guests     build the guests from source (--check: fail if the committed component is stale)
  dist       write the artifacts of a release to dist/: cargo xtask dist [tarball|wheel|deb|image|chart|sbom..]
             (--profile dev: unoptimized)
  deploy     check these artifacts on clean systems, and the chart and the alerts without a cluster: cargo xtask deploy [CHECK..]
  wheel      build the Python wheel and print its path (--release: optimized)
  link       relay a loopback port to a host at a fixed rate: cargo xtask link PORT TO MBIT
  ort        download the ONNX Runtime library to target/ and print its path (--gpu: the build for NVIDIA GPUs)
  gpu-kit    pack tests and benchmarks for a machine with a GPU and nothing else: cargo xtask gpu-kit [--photos DIR] [--arch N]
             (--cpu: pack them for the CPU and try them here)
  stores     test against third-party object stores: cargo xtask stores [--install] [azurite|fake_gcs|swift|moto..]
             (--serve: only start them and print their connection files)
  book       build the documentation site in target/book (rendered if mdBook is installed)
  bench      run a benchmark: cargo xtask bench NAME [--quick]; without NAME, list the benchmarks";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match command.as_str() {
        "demo" => demo::run(&rest),
        "test" => test::run(&rest),
        "fuzz" => fuzz::run(&rest),
        "lint" | "reference" | "structure" => source(&command, &rest),
        "guests" => workspace::run(Command::new(workspace::program("guest-builder")?).args(&rest)),
        "deploy" => deploy::run(&rest),
        "dist" => dist::run(&rest),
        "wheel" => wheel::run_command(&rest),
        "link" => link::run(&rest),
        "ort" => ort::run(&rest),
        "gpu-kit" => gpu_kit::run(&rest),
        "book" => book::run(&rest),
        "bench" => bench::run(&rest),
        "stores" => stores::run(&rest),
        "" | "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => bail!("unknown command {other:?}\n\n{HELP}"),
    }
}

#[cfg(feature = "source")]
fn source(command: &str, arguments: &[String]) -> Result<()> {
    match command {
        "lint" => lint::run(),
        "reference" => reference::run(arguments),
        _ => structure::run(arguments),
    }
}

/// Runs this program again with the feature `source`.
#[cfg(not(feature = "source"))]
fn source(command: &str, arguments: &[String]) -> Result<()> {
    let again = [
        "run",
        "--quiet",
        "--package",
        "xtask",
        "--features",
        "source",
        "--",
        command,
    ];
    workspace::run(workspace::cargo().args(again).args(arguments))
}
