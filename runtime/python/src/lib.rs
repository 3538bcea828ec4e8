//! Native part of the Python package `frostline`: access to hosts, based on `frostline-client`.
//!
//! * `hosts::Hosts`: listings, uploads, removal and load.
//! * `dataset::dataset`: training, validation and test samples.
//! * `stream::Stream`, `rows::Rows`: activations as NumPy arrays in the requested order.
//! * `features::FeatureCache`: features cached on this machine's disk.
//!
//! Python objects hold only settings, so they can be pickled and used after a fork. Connections and threads
//! belong to one process (`process`). The interpreter's lock is released during waits (`process::wait`).

mod connections;
mod dataset;
mod errors;
mod features;
mod hints;
mod hosts;
mod process;
mod rows;
mod settings;
mod stream;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<hosts::PyHosts>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<features::FeatureCache>()?;
    module.add_function(wrap_pyfunction!(dataset::dataset, module)?)?;
    module.add_function(wrap_pyfunction!(hosts::content_name, module)?)?;
    module.add_function(wrap_pyfunction!(hosts::stock_guest, module)?)?;
    module.add_function(wrap_pyfunction!(settings::check_augmentation, module)?)?;
    module.add_function(wrap_pyfunction!(settings::position_in_image, module)?)?;
    module.add_function(wrap_pyfunction!(features::feature_limit, module)?)?;
    module.add_function(wrap_pyfunction!(features::layers, module)?)?;
    module.add_function(wrap_pyfunction!(features::joint_tensors, module)?)?;
    module.add_function(wrap_pyfunction!(features::split_layers, module)?)?;
    module.add_function(wrap_pyfunction!(features::network, module)?)?;
    module.add_function(wrap_pyfunction!(features::stated_pixels, module)?)?;
    module.add_function(wrap_pyfunction!(dataset::epoch_order, module)?)
}
