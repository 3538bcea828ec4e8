//! What the author of a Frostline guest depends on.
//!
//! A guest implements [`FrozenPrefix`] and names its type in [`export!`]; built for `wasm32-unknown-unknown` it imports
//! nothing but what a Frostline host gives it. Tensors stay on the host: a [`Tensor`] here is a handle, and bytes enter
//! the guest's memory only through [`Tensor::data`] and [`objects::read`].
//!
//! ```ignore
//! use frostline_guest::{images, stage, Activations, Failure, FrozenPrefix, Job, Sample, /* ... */};
//!
//! struct Mine;
//! impl FrozenPrefix for Mine { /* describe, extract */ }
//! frostline_guest::export!(Mine);
//! ```

mod failure;
mod guest;
pub mod stage;

/// The bindings to package `frostline:pushdown`, as wit-bindgen makes them.
pub mod bindings {
    #![allow(missing_docs)]
    wit_bindgen::generate!({
        world: "frozen-prefix",
        path: "../wit",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_world",
        default_bindings_module: "frostline_guest::bindings",
    });
}

pub use bindings::frostline::pushdown::types::{
    ChannelOrder, FailedSample, Failure, Interpolation, PixelRecipe, PixelSpec, ResizeMode, Sample,
};
pub use bindings::frostline::pushdown::{images, log, objects};
pub use bindings::wasi::nn::errors::ErrorCode;
pub use bindings::wasi::nn::tensor::{Tensor, TensorType};
pub use bindings::{Activation, Activations, Cut, Description, Job, ModelView, Pixels, ServedCut};
pub use guest::{FrozenPrefix, log_panics};
