//! Fuzz targets for all parsers of untrusted input. A target takes arbitrary bytes and panics only if a
//! guarantee is violated. Ordinary tests run the targets on seeds and a fixed number of mutations. libFuzzer
//! (`libfuzzer/`) runs them for any time.

mod image_decoder;
mod key_scoping;
mod model_run;
mod mutation;
mod onnx_reader;
mod request_head;
mod request_parser;
mod shard_index;
mod upload_validation;
mod wire_reader;

pub use image_decoder::{fix_png_checksums, image_decoder};
pub use key_scoping::key_scoping;
pub use model_run::model_run;
pub use mutation::Mutator;
pub use onnx_reader::onnx_reader;
pub use request_head::request_head;
pub use request_parser::request_parser;
pub use shard_index::shard_index;
pub use upload_validation::upload_validation;
pub use wire_reader::wire_reader;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use tar::Archive;

/// Fuzz target with seeds.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target and its binary in `libfuzzer/`.
    pub name: &'static str,
    /// Function that accepts any bytes.
    pub run: fn(&[u8]),
    /// Valid inputs to mutate.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Number of mutations in ordinary tests, which take a few seconds unoptimized.
    pub mutations: usize,
}

impl Target {
    /// Reads the inputs of `corpus/<name>.tar`, which libFuzzer found and minimized. They are run like seeds.
    ///
    /// # Errors
    /// Returns an error if the archive is missing or damaged.
    pub fn corpus(&self) -> io::Result<Vec<Vec<u8>>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let mut archive = Archive::new(File::open(folder.join(format!("{}.tar", self.name)))?);
        let mut inputs = Vec::new();
        for entry in archive.entries()? {
            let mut input = Vec::new();
            entry?.read_to_end(&mut input)?;
            inputs.push(input);
        }
        Ok(inputs)
    }
}

/// All fuzz targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "onnx_reader",
        run: onnx_reader,
        seeds: onnx_reader::seeds,
        mutations: 4000,
    },
    Target {
        name: "image_decoder",
        run: image_decoder,
        seeds: image_decoder::seeds,
        mutations: 8000,
    },
    Target {
        name: "key_scoping",
        run: key_scoping,
        seeds: key_scoping::seeds,
        mutations: 2000,
    },
    Target {
        name: "request_head",
        run: request_head,
        seeds: request_head::seeds,
        mutations: 8000,
    },
    Target {
        name: "request_parser",
        run: request_parser,
        seeds: request_parser::seeds,
        mutations: 8000,
    },
    Target {
        name: "upload_validation",
        run: upload_validation,
        seeds: upload_validation::seeds,
        mutations: 2000,
    },
    Target {
        name: "shard_index",
        run: shard_index,
        seeds: shard_index::seeds,
        mutations: 2000,
    },
    Target {
        name: "wire_reader",
        run: wire_reader,
        seeds: wire_reader::seeds,
        mutations: 4000,
    },
    Target {
        name: "model_run",
        run: model_run,
        seeds: model_run::seeds,
        mutations: 4000,
    },
];
