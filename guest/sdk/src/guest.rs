use crate::{Activations, Description, Failure, Job, ModelView, Sample};

/// What a guest does. The host may call either function on any instance, several instances at once, and never relies
/// on an order: treat both as functions of their arguments.
pub trait FrozenPrefix {
    /// Says what the guest does for `model`, given the job's `parameters`.
    ///
    /// # Errors
    /// A [`Failure`] tells the user why the guest cannot serve this model or these parameters.
    fn describe(model: ModelView, parameters: String) -> Result<Description, Failure>;

    /// Turns samples into activations: one `f32` row per sample that worked, in order, and the others by index.
    ///
    /// # Errors
    /// A [`Failure`] fails all of `samples`; report a single broken one in [`Activations::failed`] instead.
    fn extract(samples: Vec<Sample>, job: Job) -> Result<Activations, Failure>;
}

/// Sends the text of every panic to the host's log, where the trap it ends in would lose it. [`export!`](crate::export)
/// calls this.
#[doc(hidden)]
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        crate::log::write(crate::log::Level::Error, &panic.to_string());
    }));
}

/// Makes a type that implements [`FrozenPrefix`] the guest of this crate.
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
