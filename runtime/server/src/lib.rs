//! The storage host: HTTP, guests, models, admission, extractions, metrics
