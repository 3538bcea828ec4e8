use super::message::TensorSpec;
use frostline_tensor::Tensor;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// The largest tensor that is taken out of the window. The largest output of the usual networks (VGG19's first layer, a
/// batch of 256) takes 3.3 GB; a process that announces more must not make the host reserve it.
pub(super) const TENSOR_BYTES: usize = 4 << 30;

/// What the window keeps for the next tensor while one run follows another, and as much for the batch in the process: memory
/// that is touched for the first time costs several times what the copy does. 64 samples' pixels (39 MB) stay, and 64 of
/// ResNet50's widest activations (206 MB); beyond that memory is given back as soon as the tensor was read.
pub(super) const KEPT_BYTES: usize = 256 << 20;

/// Memory that a lane and its process share, for one tensor or network at a time.
///
/// It is read and written with system calls and never mapped, so the other end can change what lies in it, but not take
/// it away from under a reader.
pub(super) struct Window(File);

impl Window {
    /// One of its own, in memory.
    pub(super) fn new() -> Result<Self> {
        anonymous_file().map(Self)
    }

    /// The other end of a window that was handed over.
    pub(super) fn from_fd(fd: OwnedFd) -> Self {
        Self(fd.into())
    }

    /// To hand over.
    pub(super) fn share(&self) -> Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    pub(super) fn write(&self, bytes: &[u8]) -> Result<()> {
        self.0.write_all_at(bytes, 0)
    }

    /// The first `length` bytes.
    pub(super) fn read(&self, length: usize) -> Result<Vec<u8>> {
        self.check(length)?;
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// The tensor that lies in it, in the memory of `spare` if there is one.
    pub(super) fn read_tensor(&self, spec: &TensorSpec, spare: Option<Tensor>) -> Result<Tensor> {
        let size = spec.shape.bytes(spec.dtype.size());
        self.check(size.unwrap_or(usize::MAX))?;
        let (dtype, shape) = (spec.dtype, spec.shape.clone());
        let tensor = match spare {
            Some(spare) => Tensor::in_memory_of(spare, dtype, shape),
            None => Tensor::zeros(dtype, shape),
        };
        let mut tensor = tensor.map_err(Error::other)?;
        self.fill(tensor.as_bytes_mut())?;
        Ok(tensor)
    }

    /// Before memory is reserved for `length` bytes: that so many lie in the window.
    fn check(&self, length: usize) -> Result<()> {
        let held = self.0.metadata()?.len();
        if length <= TENSOR_BYTES && length as u64 <= held {
            return Ok(());
        }
        let text = format!("{length} bytes were announced, {held} lie in the window");
        Err(Error::new(ErrorKind::InvalidData, text))
    }

    fn fill(&self, bytes: &mut [u8]) -> Result<()> {
        self.0.read_exact_at(bytes, 0)?;
        if bytes.len() > KEPT_BYTES {
            self.clear()?;
        }
        Ok(())
    }

    /// Gives its memory back, and what lies in it.
    pub(super) fn clear(&self) -> Result<()> {
        self.0.set_len(0)
    }
}

#[cfg(target_os = "linux")]
fn anonymous_file() -> Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(memfd_create("frostline-lane", MemfdFlags::CLOEXEC)?.into())
}

#[cfg(not(target_os = "linux"))]
fn anonymous_file() -> Result<File> {
    tempfile::tempfile()
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::{DType, Data, Shape};

    fn spec(dims: &[usize]) -> TensorSpec {
        TensorSpec {
            dtype: DType::F32,
            shape: Shape::new(dims),
        }
    }

    #[test]
    fn tensors_come_out_as_they_went_in() {
        let window = Window::new().unwrap();
        let other = Window::from_fd(window.share().unwrap());
        for rows in [5, 2, 0] {
            let tensor = Tensor::f32([rows, 3], vec![1.5; rows * 3]).unwrap();
            window.write(tensor.as_bytes()).unwrap();
            assert_eq!(other.read_tensor(&spec(&[rows, 3]), None).unwrap(), tensor);
        }
    }

    #[test]
    fn what_a_process_announces_is_not_believed() {
        let window = Window::new().unwrap();
        window.write(&[0; 24]).unwrap();
        assert!(window.read_tensor(&spec(&[7]), None).is_err());
        assert!(window.read_tensor(&spec(&[usize::MAX, 2]), None).is_err());
        // A hole: as long as it says, with no memory behind it.
        window.0.set_len(1 << 40).unwrap();
        assert!(window.read_tensor(&spec(&[1 << 31]), None).is_err());
        assert!(window.read(24).is_ok());
    }

    #[test]
    fn a_tensor_takes_the_memory_of_a_spare_one() {
        let window = Window::new().unwrap();
        let mut spare = Tensor::f32([4, 3], vec![7.0; 12]).unwrap();
        let memory = spare.as_bytes().as_ptr();
        for rows in [4, 2, 3] {
            let tensor = Tensor::f32([rows, 3], vec![rows as f32; rows * 3]).unwrap();
            window.write(tensor.as_bytes()).unwrap();
            spare = window.read_tensor(&spec(&[rows, 3]), Some(spare)).unwrap();
            assert_eq!((&spare, spare.as_bytes().as_ptr()), (&tensor, memory));
        }
        let bytes = Tensor::new([2], Data::U8(vec![1, 2])).unwrap();
        window.write(bytes.as_bytes()).unwrap();
        let read = window.read_tensor(&TensorSpec::of(&bytes), Some(spare)).unwrap();
        assert_eq!(read, bytes);
    }

    #[test]
    fn memory_is_given_back_after_large_contents() {
        let window = Window::new().unwrap();
        for (bytes, kept) in [(KEPT_BYTES, KEPT_BYTES), (KEPT_BYTES + 1, 0)] {
            window.write(&vec![1; bytes]).unwrap();
            window.read(bytes).unwrap();
            assert_eq!(window.0.metadata().unwrap().len(), kept as u64);
        }
    }
}
