//! The Python package `frostline`, as far as it is native: what talks to hosts, on `frostline-client`.
//!
//! * [`hosts::Hosts`]: listings, uploads, loads.
//! * [`dataset::dataset`]: samples as the trainer divides them.
//! * [`stream::Stream`], [`rows::Rows`]: activations as NumPy arrays, in the order they are asked for.
//! * [`kept::Kept`]: those that lie on this machine's disk.
//!
//! Python objects hold settings and nothing else; what works for them belongs to one process ([`process`]), so that they may be
//! pickled and used after a fork. The interpreter's lock is released while something is waited for ([`process::wait`]).

mod dataset;
mod errors;
mod hosts;
mod kept;
mod process;
mod rows;
mod settings;
mod stream;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<hosts::Hosts>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<kept::Kept>()?;
    module.add_function(wrap_pyfunction!(dataset::dataset, module)?)?;
    module.add_function(wrap_pyfunction!(kept::feature_limit, module)?)?;
    module.add_function(wrap_pyfunction!(kept::layers, module)?)?;
    module.add_function(wrap_pyfunction!(kept::stated_pixels, module)?)?;
    module.add_function(wrap_pyfunction!(dataset::shuffled, module)?)
}
