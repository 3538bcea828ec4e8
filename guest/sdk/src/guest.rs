use crate::{Activations, Description, Failure, Job, ModelView, Sample};

/// Functions of a guest. The host may call them on any instance, concurrently and in any order. Results must
/// depend only on the arguments.
pub trait FrozenPrefix {
    /// Returns a description of the guest for `model`, given the job's `parameters`.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the guest cannot serve this model or these parameters. Users see the message.
    fn describe(model: ModelView, parameters: String) -> Result<Description, Failure>;

    /// Computes activations, with an `f32` row for each successful sample in request order, and the list of
    /// failed samples.
    ///
    /// # Errors
    /// Returns a [`Failure`] if all of `samples` failed. Report individual failures in
    /// [`Activations::failed`] instead.
    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure>;
}

/// Logs the message of every panic to the host, because traps do not contain it. Called by
/// [`export!`](crate::export).
#[doc(hidden)]
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        crate::log::write(crate::log::Level::Error, &panic.to_string());
    }));
}

/// Exports a type that implements [`FrozenPrefix`] as the guest of this crate.
#[macro_export]
macro_rules! export {
    ($guest:ty) => {
        const _: () = {
            struct Exported;
            impl $crate::bindings::Guest for Exported {
                fn describe(
                    model: $crate::ModelView,
                    parameters: ::std::string::String,
                ) -> ::std::result::Result<$crate::Description, $crate::Failure> {
                    $crate::log_panics();
                    <$guest as $crate::FrozenPrefix>::describe(model, parameters)
                }
                fn extract(
                    samples: ::std::vec::Vec<$crate::Sample>,
                    job: $crate::Job,
                ) -> ::std::result::Result<$crate::Activations, $crate::Failure> {
                    $crate::log_panics();
                    <$guest as $crate::FrozenPrefix>::extract(samples, job)
                }
            }
    $crate::bindings::export_world!(Exported with_types_in $crate::bindings);
        };
    };
}
