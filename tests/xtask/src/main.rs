//! Development commands, run as `cargo xtask <command>`.

mod bench;
mod book;
mod demo;
mod deploy;
mod fuzz;
mod gpu;
#[cfg(feature = "source")]
mod links;
#[cfg(feature = "source")]
mod lint;
mod markdown;
mod needs;
mod ort;
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
use std::process::Command;

const HELP: &str = "\
Usage: cargo xtask <command>

  demo     set everything up and run the main job on the bundled photos
  test     set everything up and run the tests (--quick: without whole systems and large networks; --gpu: fail where those that need a
           GPU cannot run; --skipped: only what the last run skipped, and fail where anything stays skipped that .ci/may-skip does not
           name; other arguments go to the runner)
  lint     formatting, clippy, the rules of the dependency graph, broken links of pages, cargo-deny where installed
  structure  lines, functions, circles and public names of the product's crates; another copy's by its folder
  reference  write the reference of commands, settings, metrics and routes (--check: fail when it is stale)
  fuzz     run the fuzz targets, 30 s each: cargo xtask fuzz [--seconds N] [target..]
  guests   build the guests from source (--check: fail when the committed component is stale)
  deploy   check the chart, the package and the image of runtime/deploy, or write them (build-deb, build-image)
  wheel    build the Python wheel and print where it is (--release: optimised)
  ort      put the ONNX Runtime library under target/ (--gpu: the one that runs networks on an NVIDIA GPU)
  stores   start object stores of others, try them, and print what came of it: cargo xtask stores [--install] [azurite|fake_gcs|swift|moto..]
           (--serve: only start them and say how they are reached)
  book     make a site of all pages in target/book, rendered where mdBook is installed
  bench    run a benchmark: cargo xtask bench <name> [--quick]; without a name, lists them";

fn main() -> Result<()> {
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
        "wheel" => wheel::run_command(&rest),
        "ort" => ort::run(&rest),
        "book" => book::run(&rest),
        "bench" => bench::run(&rest),
        "stores" => stores::run(&rest),
        "" | "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => bail!("there is no command {other:?}\n\n{HELP}"),
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

/// Runs this program again, built with what reads source.
#[cfg(not(feature = "source"))]
fn source(command: &str, arguments: &[String]) -> Result<()> {
    let again = ["run", "--quiet", "--package", "xtask", "--", command];
    workspace::run(workspace::cargo().args(again).args(arguments))
}
