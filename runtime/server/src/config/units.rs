//! Deserialization of amounts that may have a unit, as on the command line.

use frostline_wire::{Quota, QuotaKey, QuotaUnit, parse_seconds_or_number, parse_size};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// A number, or a string with a unit.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, or a text with a unit, such as \"4GiB\" or \"60s\""
)]
enum Amount {
    Number(u64),
    Text(String),
}

impl Amount {
    fn read(self, parse: fn(&str) -> Result<u64, String>) -> Result<u64, String> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(text) => parse(&text),
        }
    }
}

pub(super) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Amount::deserialize(from)?
        .read(parse_size)
        .map_err(D::Error::custom)
}

pub(super) fn optional_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    bytes(from).map(Some)
}

pub(super) fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let written = Amount::deserialize(from)?;
    written.read(parse_seconds_or_number).map_err(D::Error::custom)
}

pub(super) fn quota<'de, D: Deserializer<'de>>(from: D) -> Result<Quota, D::Error> {
    let written: BTreeMap<QuotaKey, Amount> = BTreeMap::deserialize(from)?;
    written
        .into_iter()
        .map(|(key, written)| {
            let value = written.read(match key.unit() {
                QuotaUnit::Bytes => parse_size,
                QuotaUnit::Seconds => parse_seconds_or_number,
                QuotaUnit::Number => {
                    |text| Err(format!("invalid number {text:?}: units are not supported here"))
                }
            });
            Ok((key, value.map_err(D::Error::custom)?))
        })
        .collect()
}
