//! GPU memory usage, as reported by the driver.

use crate::Device;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use std::sync::OnceLock;

/// Measures this process's usage of device memory.
pub(crate) trait Gauge: Send + Sync {
    /// Returns the bytes that the whole process uses, or `None` if they are unknown.
    fn used(&self) -> Option<u64>;
}

/// NVIDIA's management library.
pub(crate) struct Driver;

impl Gauge for Driver {
    /// Adds up all GPUs. A lane uses only one GPU, but the index here can differ from CUDA's. In a container
    /// with its own process ids, the driver may not list this process. The usage is unknown then.
    fn used(&self) -> Option<u64> {
        let driver = driver()?;
        let process = std::process::id();
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

/// Returns the free bytes of the memory of `device` as reported by the driver, or `None` for a CPU and if no
/// driver is installed.
pub fn free_device_memory(device: Device) -> Option<u64> {
    match device {
        Device::Cpu => None,
        Device::Cuda(index) => Some(driver()?.device_by_index(index).ok()?.memory_info().ok()?.free),
    }
}

/// Returns the management library, which is loaded by the first call.
fn driver() -> Option<&'static Nvml> {
    static DRIVER: OnceLock<Option<Nvml>> = OnceLock::new();
    DRIVER.get_or_init(load_driver).as_ref()
}

fn load_driver() -> Option<Nvml> {
    match Nvml::init() {
        Ok(driver) => Some(driver),
        // This library is not installed on machines without a GPU.
        Err(NvmlError::LibloadingError(_)) => None,
        Err(error) => {
            tracing::warn!(%error, "cannot read GPU memory usage from the driver");
            None
        }
    }
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
        #[ignore = "requires a GPU, run by cargo xtask test"]
        fn the_driver_reports_free_memory() {
            let free = free_device_memory(Device::Cuda(0)).unwrap();
            assert!(free > 1 << 20, "{free}");
        }
    }
}
