use frostline_tensor::Precision;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Where sessions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Device {
    /// The host's processor.
    #[default]
    Cpu,
    /// The NVIDIA GPU of this index.
    Cuda(u32),
}

/// Rows of every run on a GPU. ONNX Runtime has cuDNN plan each convolution anew when the number of rows differs from the last run's. Of the best
/// rate on an H200, 32 rows reach 70 % (ResNet50 in f32) to 100 % (ViT-B/16).
const GPU_ROWS: usize = 32;

impl Device {
    /// Rows that every run should have, where the device needs runs of one size.
    pub fn padded_rows(self) -> Option<usize> {
        match self {
            Self::Cpu => None,
            Self::Cuda(_) => Some(GPU_ROWS),
        }
    }

    /// How exactly it computes what may be computed as `allowed`.
    pub fn precision(self, allowed: Precision) -> Precision {
        match self {
            Self::Cpu => Precision::Full,
            Self::Cuda(_) => allowed,
        }
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// Text that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid device `{text}`; write `cpu`, or `cuda:0` for the first NVIDIA GPU")]
pub struct ParseDeviceError {
    /// What was written.
    pub text: String,
}

impl FromStr for Device {
    type Err = ParseDeviceError;

    /// Reads `cpu`, `cuda` (the first GPU) or `cuda:<index>`.
    fn from_str(text: &str) -> Result<Self, ParseDeviceError> {
        let index = match text {
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Some(0),
            other => other.strip_prefix("cuda:").and_then(parse_index),
        };
        index.map(Self::Cuda).ok_or_else(|| ParseDeviceError {
            text: text.to_owned(),
        })
    }
}

/// CUDA counts devices in an `i32`; a sign or a leading `+` is no index.
fn parse_index(digits: &str) -> Option<u32> {
    let only_digits = digits.bytes().all(|b| b.is_ascii_digit());
    digits
        .parse()
        .ok()
        .filter(|&index| only_digits && i32::try_from(index).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_read_back_as_written() {
        for text in ["cpu", "cuda:0", "cuda:7"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
    }

    #[test]
    fn only_a_gpu_computes_less_exactly_and_only_what_may_be() {
        use Precision::{Full, Tf32};
        assert_eq!(
            [Full, Tf32].map(|allowed| Device::Cpu.precision(allowed)),
            [Full, Full]
        );
        assert_eq!(
            [Full, Tf32].map(|allowed| Device::Cuda(0).precision(allowed)),
            [Full, Tf32]
        );
    }

    #[test]
    fn other_text_is_refused_with_a_hint() {
        for text in [
            "",
            "gpu",
            "CPU",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:4294967295",
            "cuda:x",
        ] {
            let error = text.parse::<Device>().unwrap_err();
            assert!(error.to_string().contains("cuda:0"), "{error}");
        }
    }
}
