use crate::{Description, Error, Extracted, Job, Model};

/// Functions of a guest. The host may call them on any instance, concurrently and in any order. Results must
/// depend only on the arguments.
pub trait FrozenPrefix {
    /// Fills the description of the guest for `model`, given the job's `parameters`.
    ///
    /// # Errors
    /// Returns an [`Error`] if the guest cannot serve this model or these parameters. Users see the message.
    fn describe(model: Model, parameters: String, description: &Description) -> Result<(), Error>;

    /// Computes the tensors at a cut, with a row for each successful sample in request order, and the list of
    /// failed samples.
    ///
    /// # Errors
    /// Returns an [`Error`] if all samples failed. Report individual failures in [`Extracted::failed`] instead.
    fn extract(job: Job) -> Result<Extracted, Error>;
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
            impl $crate::bindings::exports::frostline::pushdown::prefix::Guest for Exported {
                fn describe(
                    model: $crate::Model,
                    parameters: ::std::string::String,
                    description: &$crate::Description,
                ) -> ::std::result::Result<(), $crate::Error> {
                    $crate::log_panics();
                    <$guest as $crate::FrozenPrefix>::describe(model, parameters, description)
                }
                fn extract(job: $crate::Job) -> ::std::result::Result<$crate::Extracted, $crate::Error> {
                    $crate::log_panics();
                    <$guest as $crate::FrozenPrefix>::extract(job)
                }
            }
    $crate::bindings::export_world!(Exported with_types_in $crate::bindings);
        };
    };
}
