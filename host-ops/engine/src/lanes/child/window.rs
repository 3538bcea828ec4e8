use crate::tensor_spec::TensorSpec;
use frostline_tensor::{ShapeError, Tensor};
use rustix::fs::{Stat, fstat};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Maximum size in bytes of a tensor in the window. The largest output of common networks is the first layer
/// of VGG19 with 3.3 GB for a batch of 256. Without this limit, a process could make the host allocate any
/// announced size.
pub(super) const TENSOR_BYTES: usize = 4 << 30;

/// Number of bytes that the window retains for the next tensor between consecutive batches. The process
/// retains the same amount for the batch. Touching memory for the first time is more expensive than the copy.
/// The limit is enough for the pixels of 64 samples (39 MB) and for 64 of ResNet50's largest activations (206
/// MB). Larger contents are released after reading.
pub(super) const KEPT_BYTES: usize = 256 << 20;

/// Shared memory of a lane and the lane's process. It contains a single tensor or network.
///
/// The window is accessed with system calls and never mapped. The other end can change its content, but
/// cannot make a reader fault by truncating it.
pub(crate) struct Window(File);

impl Window {
    /// Creates a window in memory.
    pub(super) fn new() -> Result<Self> {
        anonymous_file().map(Self)
    }

    /// Opens the other end of a window.
    pub(super) fn from_fd(fd: OwnedFd) -> Self {
        Self(fd.into())
    }

    /// Returns a descriptor for the other end.
    pub(super) fn share(&self) -> Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    pub(super) fn write<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        let mut at = 0;
        for piece in pieces {
            self.0.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    pub(super) fn read(&self, length: usize) -> Result<Vec<u8>> {
        self.check(length)?;
        let bytes = bytemuck::allocation::try_zeroed_vec(length);
        let mut bytes = bytes.map_err(|()| Error::from(ErrorKind::OutOfMemory))?;
        self.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Reads a tensor and reuses the memory of `spare` if possible.
    ///
    /// # Errors
    /// Returns [`ErrorKind::OutOfMemory`] if the tensor cannot be allocated, and [`ErrorKind::InvalidData`]
    /// if the window does not contain it or it exceeds [`TENSOR_BYTES`].
    pub(super) fn read_tensor(&self, spec: &TensorSpec, spare: Option<Tensor>) -> Result<Tensor> {
        self.check(spec.bytes())?;
        let mut tensor = Tensor::in_memory_of(spare, spec.dtype, spec.shape.clone()).map_err(|error| {
            let kind = match error {
                ShapeError::Memory { .. } => ErrorKind::OutOfMemory,
                _ => ErrorKind::InvalidData,
            };
            Error::new(kind, error)
        })?;
        self.read_at(tensor.as_bytes_mut(), 0)?;
        Ok(tensor)
    }

    /// Checks an announced `length` before memory is allocated: the window must contain that many bytes, and
    /// they must not exceed [`TENSOR_BYTES`].
    pub(crate) fn check(&self, length: usize) -> Result<()> {
        let held = self.bytes()?;
        if length <= TENSOR_BYTES && length as u64 <= held {
            return Ok(());
        }
        let text = format!("{length} bytes were announced, but the window contains {held}");
        Err(Error::new(ErrorKind::InvalidData, text))
    }

    /// Returns the size of the content in bytes.
    pub(super) fn bytes(&self) -> Result<u64> {
        Ok(self.attributes()?.st_size.unsigned_abs())
    }

    /// Returns the memory of the content in bytes. A lost lane can write at an offset far beyond the content,
    /// which changes the size but not the memory.
    pub(super) fn memory(&self) -> Result<u64> {
        /// Unit of the number of blocks, independent of the file system.
        const BLOCK: u64 = 512;
        Ok(self.attributes()?.st_blocks.unsigned_abs() * BLOCK)
    }

    /// Calls `fstat`, because the standard library's `statx` is not available behind the walls.
    fn attributes(&self) -> Result<Stat> {
        Ok(fstat(&self.0)?)
    }

    /// Fills `target` with the content that starts at byte `from`.
    pub(crate) fn read_at(&self, target: &mut [u8], from: usize) -> Result<()> {
        self.0.read_exact_at(target, from as u64)
    }

    /// Releases the content after it was used, if it is larger than the retained size.
    pub(super) fn done(&self) -> Result<()> {
        match self.bytes()? > KEPT_BYTES as u64 {
            true => self.clear(),
            false => Ok(()),
        }
    }

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
            window.write([tensor.as_bytes()]).unwrap();
            assert_eq!(other.read_tensor(&spec(&[rows, 3]), None).unwrap(), tensor);
        }
    }

    #[test]
    fn what_a_process_announces_is_not_believed() {
        let window = Window::new().unwrap();
        window.write([&[0; 24][..]]).unwrap();
        assert!(window.read_tensor(&spec(&[7]), None).is_err());
        assert!(window.read_tensor(&spec(&[usize::MAX, 2]), None).is_err());
        // A sparse file with the announced length, but without memory.
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
            window.write([tensor.as_bytes()]).unwrap();
            spare = window.read_tensor(&spec(&[rows, 3]), Some(spare)).unwrap();
            assert_eq!((&spare, spare.as_bytes().as_ptr()), (&tensor, memory));
        }
        let bytes = Tensor::new([2], Data::U8(vec![1, 2])).unwrap();
        window.write([bytes.as_bytes()]).unwrap();
        let spec = TensorSpec {
            dtype: DType::U8,
            shape: Shape::new([2]),
        };
        let read = window.read_tensor(&spec, Some(spare)).unwrap();
        assert_eq!(read, bytes);
    }

    #[test]
    fn memory_is_given_back_after_large_contents() {
        let window = Window::new().unwrap();
        for (bytes, kept) in [(KEPT_BYTES, KEPT_BYTES), (KEPT_BYTES + 1, 0)] {
            window.write([vec![1; bytes].as_slice()]).unwrap();
            window.done().unwrap();
            assert_eq!(window.0.metadata().unwrap().len(), kept as u64);
        }
    }
}
