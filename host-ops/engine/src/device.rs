use frostline_tensor::Precision;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Device on which sessions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Device {
    /// The CPU of the host.
    #[default]
    Cpu,
    /// The NVIDIA GPU with this index.
    Cuda(u32),
}

/// Rows of every engine batch on a GPU. If the number of rows changes, ONNX Runtime lets cuDNN plan each
/// convolution again. With 32 rows an H200 reaches 70 % (ResNet50 in f32) to 100 % (ViT-B/16) of its best
/// rate.
const GPU_ROWS: usize = 32;

impl Device {
    /// Returns the number of rows to which batches are padded, or `None` if the device does not need batches
    /// of equal size.
    pub fn padded_rows(self) -> Option<usize> {
        match self {
            Self::Cpu => None,
            Self::Cuda(_) => Some(GPU_ROWS),
        }
    }

    /// Returns the precision of computations for which `allowed` is permitted. Only a GPU computes with less
    /// than full precision.
    pub fn precision(self, allowed: Precision) -> Precision {
        match self {
            Self::Cpu => Precision::Full,
            Self::Cuda(_) => allowed,
        }
    }

    /// Describes the memory of this device for ONNX Runtime.
    pub(crate) fn memory(self) -> ort::Result<MemoryInfo<'static>> {
        let kind = match self {
            Self::Cpu => AllocationDevice::CPU,
            Self::Cuda(_) => AllocationDevice::CUDA,
        };
        MemoryInfo::new(kind, self.index(), AllocatorType::Device, MemoryType::Default)
    }

    /// Returns the number of this device in ONNX Runtime.
    pub(crate) fn index(self) -> i32 {
        match self {
            Self::Cpu => 0,
            Self::Cuda(index) => i32::try_from(index).unwrap_or(i32::MAX),
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

/// Error for an invalid device name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid device `{text}`; write `cpu`, or `cuda:0` for the first NVIDIA GPU")]
pub struct ParseDeviceError {
    /// The rejected name.
    pub text: String,
}

impl FromStr for Device {
    type Err = ParseDeviceError;

    /// Parses `cpu`, `cuda` (the first GPU) or `cuda:<index>`.
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

/// Parses the index of a device. Signs are rejected, and the index must fit into CUDA's `i32`.
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
        use Precision::{F16, Full, Tf32};
        for allowed in [Full, Tf32, F16] {
            assert_eq!(Device::Cpu.precision(allowed), Full);
            assert_eq!(Device::Cuda(0).precision(allowed), allowed);
        }
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
