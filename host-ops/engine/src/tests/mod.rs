//! Tests against the real library, on tiny networks built here.

mod lanes;
mod networks;
mod resident;
mod session;
mod squeezenet;
