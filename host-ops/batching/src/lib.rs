//! How many samples a call gets, and in which order lanes work: pure decisions
