use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Example for error messages.
const EXAMPLE: &str = "host=0.05,trainer=0.20,gb=0.09";

/// Prices of cores and traffic in any currency. Text form: `host=0.05,trainer=0.20,gb=0.09`. Omitted prices
/// are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prices {
    /// Price of a host core per hour.
    pub host: f64,
    /// Price of a trainer core per hour.
    pub trainer: f64,
    /// Price of 10^9 bytes from the hosts to the trainer.
    pub gb: f64,
}

impl FromStr for Prices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut host = None;
        let mut trainer = None;
        let mut gb = None;
        for part in text.split(',') {
            let (name, price) = part
                .split_once('=')
                .ok_or_else(|| format!("invalid price {part:?}: expected NAME=PRICE (example: {EXAMPLE})"))?;
            let place = match name.trim() {
                "host" => &mut host,
                "trainer" => &mut trainer,
                "gb" => &mut gb,
                other => {
                    return Err(format!(
                        "unknown price '{other}'; use host, trainer or gb (example: {EXAMPLE})"
                    ));
                }
            };
            let price: f64 = price.trim().parse().map_err(|_| invalid(name, price))?;
            if !(price >= 0.0 && price.is_finite()) {
                return Err(invalid(name, price));
            }
            if place.replace(price).is_some() {
                return Err(format!("duplicate price '{}'", name.trim()));
            }
        }
        Ok(Self {
            host: host.unwrap_or_default(),
            trainer: trainer.unwrap_or_default(),
            gb: gb.unwrap_or_default(),
        })
    }
}

fn invalid(name: &str, price: impl fmt::Display) -> String {
    format!(
        "the price of '{}' is {price}; use a nonnegative number (example: {EXAMPLE})",
        name.trim()
    )
}

impl fmt::Display for Prices {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, trainer, gb } = self;
        write!(to, "host={host},trainer={trainer},gb={gb}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_and_written_alike() {
        let prices: Prices = "trainer=0.2, host=0.05,gb=0.09".parse().unwrap();
        assert_eq!(prices.to_string(), "host=0.05,trainer=0.2,gb=0.09");
        assert_eq!(prices.to_string().parse(), Ok(prices));
        let only: Prices = "gb=0.09".parse().unwrap();
        assert_eq!((only.host, only.trainer, only.gb), (0.0, 0.0, 0.09));
    }

    #[test]
    fn a_wrong_price_is_named() {
        for (text, named) in [
            ("", "invalid price \"\""),
            ("0.05", "invalid price \"0.05\""),
            ("egress=1", "unknown price 'egress'"),
            ("gb=cheap", "the price of 'gb' is cheap"),
            ("gb=-1", "the price of 'gb' is -1"),
            ("gb=inf", "the price of 'gb' is inf"),
            ("gb=1,gb=2", "duplicate price 'gb'"),
        ] {
            let said = text.parse::<Prices>().unwrap_err();
            assert!(said.starts_with(named), "{text}: {said}");
        }
    }
}
