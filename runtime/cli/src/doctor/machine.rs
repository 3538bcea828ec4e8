//! Checks of the library, the GPU, the walls and a data root on this machine.

use super::finding::{CheckState, Finding};
use crate::hints::NextStep;
use crate::host::embedded_root;
use crate::output::bytes;
use anyhow::{Result, ensure};
use frostline_engine::{Device, EngineError, Session, SessionOptions, free_device_memory, library_version};
use frostline_graph::onnx::GraphProto;
use frostline_graph::{Model, build};
use frostline_objects::Store;
use frostline_tensor::{SampleRef, Tensor};
use std::path::Path;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Deadline for a store. The client retries several times if the credentials are wrong.
const STORE: Duration = Duration::from_secs(30);

/// Deadline for a device. CUDA loads kernels at the first use.
const DEVICE: Duration = Duration::from_secs(120);

/// Checks the library on the CPU, and a GPU if `device` selects one. Otherwise, reports if a GPU is
/// available.
pub(super) async fn engine(device: Option<Device>) -> Vec<Finding> {
    let library = match try_device(Device::Cpu).await {
        Ok(version) => Finding::works("library", format!("{version} ran a network on the CPU")),
        Err(error) => Finding::fails(
            "library",
            error,
            "run frostline onnxruntime install, or set ORT_DYLIB_PATH to an installed library",
        ),
    };
    let gpu = match device {
        Some(device @ Device::Cuda(_)) => match try_device(device).await {
            Ok(version) => Finding::works(
                "gpu",
                format!("{version} ran a network on {device}{}", free(device)),
            ),
            Err(error) => Finding::fails(
                "gpu",
                error,
                "install NVIDIA's driver and a library built for CUDA (pip install onnxruntime-gpu), and make CUDA and cuDNN available to the loader",
            ),
        },
        _ if free_device_memory(Device::Cuda(0)).is_some() => {
            let found = format!("found an NVIDIA GPU{}", free(Device::Cuda(0)));
            Finding::skipped("gpu", found).or(&NextStep::set("device", "cuda:0"))
        }
        _ => Finding::skipped("gpu", "no NVIDIA driver found, so networks run on the CPU"),
    };
    vec![library, gpu]
}

/// Checks the walls around the processes of a host. A missing wall is a failure if `required` is set, and
/// otherwise a skipped check.
pub(super) fn walls(device: Device, required: bool) -> Finding {
    let missing = frostline_walls::missing();
    let (found, advice) = match (device, missing.as_slice()) {
        (Device::Cpu, []) => {
            return Finding::works(
                "walls",
                "Landlock and seccomp confine a host's lanes and compilers here",
            );
        }
        (Device::Cpu, missing) => {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            (
                format!(
                    "a host's lanes and compilers are not confined by {}",
                    missing.join(" and ")
                ),
                "use Linux 5.13 or later with Landlock among its security modules (lsm=), and let the container's profile permit both",
            )
        }
        (Device::Cuda(_), _) => (
            "lanes on a GPU have no walls".to_owned(),
            "keep hosts with a GPU to tenants that trust each other (see the page security.md)",
        ),
    };
    let state = if required {
        CheckState::Fails
    } else {
        CheckState::Skipped
    };
    Finding {
        state,
        ..Finding::fails("walls", found, advice)
    }
}

fn free(device: Device) -> String {
    let free = free_device_memory(device).map(|free| format!(", {} free", bytes(free)));
    free.unwrap_or_default()
}

/// Runs a convolution, which loads cuDNN on a GPU. Returns the name and version of the library.
#[expect(clippy::disallowed_methods, reason = "runs for an operator")]
async fn try_device(device: Device) -> Result<String, String> {
    let trying = spawn_blocking(move || run_one(device).map_err(|error| error.to_string()));
    match timeout(DEVICE, trying).await {
        Ok(Ok(ran)) => ran,
        Ok(Err(lost)) => Err(lost.to_string()),
        Err(_) => Err(format!("timed out after {} s", DEVICE.as_secs())),
    }
}

fn unusable(error: impl std::fmt::Display) -> EngineError {
    EngineError::Model {
        reason: error.to_string(),
    }
}

fn run_one(device: Device) -> Result<String, EngineError> {
    let version = library_version()?;
    let one = Tensor::f32([1, 1, 1, 1], vec![1.0]).map_err(unusable)?;
    let graph = GraphProto {
        name: "one".to_owned(),
        node: vec![
            build::node("Conv", &["x", "w"], &["c"]),
            build::node("Relu", &["c"], &["y"]),
        ],
        initializer: vec![build::initializer("w", &one)],
        input: vec![build::batched("x", &[1, 1, 1])],
        output: vec![build::batched("y", &[1, 1, 1])],
        ..GraphProto::default()
    };
    let network = Model::from_proto(build::model(17, graph)).map_err(unusable)?;
    let network = network.to_bytes().map_err(unusable)?;
    let options = SessionOptions {
        device,
        ..SessionOptions::default()
    };
    Session::open(&network, &options)?.run(&[("x", &one)])?;
    Ok(format!("onnxruntime {version}"))
}

/// Checks that the root can be listed and read from this machine. Links may lead to `follow_links`, a folder
/// above the root.
pub(super) async fn store(root: &str, follow_links: Option<&Path>) -> Finding {
    let advice = "check the root and the credentials in the environment (see the page stores.md)";
    match timeout(STORE, first_of(root, follow_links)).await {
        Ok(Ok(found)) => Finding::works("data", found),
        Ok(Err(error)) => Finding::fails("data", error.to_string(), advice),
        Err(_) => Finding::fails(
            "data",
            format!("{root}: timed out after {} s", STORE.as_secs()),
            advice,
        ),
    }
}

async fn first_of(root: &str, follow_links: Option<&Path>) -> Result<String> {
    let granted = embedded_root(root, follow_links)?;
    let below = Path::new(root).strip_prefix(&granted).ok().and_then(Path::to_str);
    let store = Store::open(&granted)?;
    let store = match below.filter(|below| !below.is_empty()) {
        Some(below) => store.below(below)?,
        None => store,
    };
    let page = store.list(None, 1).await?;
    let Some(object) = page.objects.first() else {
        ensure!(page.left_out.links.is_empty(), "{root}: {}", page.left_out.links);
        return Ok(format!("{root} can be listed from this machine, but is empty"));
    };
    let key = &object.sample.key;
    store.read_range(&SampleRef::new(key), 0..1).await?;
    Ok(format!(
        "{root} can be listed from this machine, and {key} can be read"
    ))
}
