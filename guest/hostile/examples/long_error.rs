//! Fails with a message of fifteen megabytes.

frostline_hostile::extracts!("long_error", |_| Err(Error::invalid("no\n".repeat(5 << 20))));
