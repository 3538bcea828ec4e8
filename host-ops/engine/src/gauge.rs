//! What a GPU's driver says of its memory.

use crate::Device;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use std::sync::OnceLock;

/// Tells what this process takes of a device's memory.
pub(crate) trait Gauge: Send + Sync {
    /// Bytes, whoever in the process asked for them; `None` where nobody tells.
    fn used(&self) -> Option<u64>;
}

/// NVIDIA's driver, by its management library.
pub(crate) struct Driver;

impl Gauge for Driver {
    /// Summed over all GPUs, as a lane uses one: their numbers here need not be those of CUDA. In a container without the machine's process
    /// ids the driver may name none of it, and then nothing is known.
    fn used(&self) -> Option<u64> {
        let (driver, process) = (driver()?, std::process::id());
        let devices = (0..driver.device_count().ok()?).filter_map(|index| driver.device_by_index(index).ok());
        let processes = devices.flat_map(|device| device.running_compute_processes().unwrap_or_default());
        let own = processes.filter(|told| told.pid == process);
        own.map(|told| match told.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        })
        .reduce(|all, one| Some(all?.saturating_add(one?)))?
    }
}

/// Bytes of the memory of `device` that nobody uses now, as its driver tells; `None` for a CPU, and where there is no driver.
pub fn free_device_memory(device: Device) -> Option<u64> {
    match device {
        Device::Cpu => None,
        Device::Cuda(index) => Some(driver()?.device_by_index(index).ok()?.memory_info().ok()?.free),
    }
}

/// Loaded when it is first asked for.
fn driver() -> Option<&'static Nvml> {
    static DRIVER: OnceLock<Option<Nvml>> = OnceLock::new();
    let load = || match Nvml::init() {
        Ok(driver) => Some(driver),
        // A machine without a GPU has no such library.
        Err(NvmlError::LibloadingError(_)) => None,
        Err(error) => {
            tracing::warn!(%error, "cannot read GPU memory usage from the driver");
            None
        }
    };
    DRIVER.get_or_init(load).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_has_no_memory_of_its_own() {
        assert_eq!(free_device_memory(Device::Cpu), None);
    }

    mod needs_gpu {
        use super::*;

        #[test]
        #[ignore = "needs a GPU: cargo xtask test runs it where there is one"]
        fn the_driver_tells_what_is_free() {
            let free = free_device_memory(Device::Cuda(0)).unwrap();
            assert!(free > 1 << 20, "{free}");
        }
    }
}
