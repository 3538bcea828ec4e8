use super::super::batch::TensorSpec;
use frostline_tensor::{ShapeError, Tensor};
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
pub(crate) struct Window(File);

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

    /// Lays `pieces` into it, one behind another.
    pub(super) fn write<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        let mut at = 0;
        for piece in pieces {
            self.0.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// The first `length` bytes.
    pub(super) fn read(&self, length: usize) -> Result<Vec<u8>> {
        self.check(length)?;
        let bytes = bytemuck::allocation::try_zeroed_vec(length);
        let mut bytes = bytes.map_err(|()| Error::from(ErrorKind::OutOfMemory))?;
        self.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// The tensor that lies in it, in the memory of `spare` if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when there is no memory for it.
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

    /// Before memory is reserved for `length` bytes: that so many lie in the window.
    pub(crate) fn check(&self, length: usize) -> Result<()> {
        let held = self.bytes()?;
        if length <= TENSOR_BYTES && length as u64 <= held {
            return Ok(());
        }
        let text = format!("{length} bytes were announced, {held} lie in the window");
        Err(Error::new(ErrorKind::InvalidData, text))
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// Fills `target` with what lies from byte `from` on.
    pub(crate) fn read_at(&self, target: &mut [u8], from: usize) -> Result<()> {
        self.0.read_exact_at(target, from as u64)
    }

    /// What was in it is no longer needed: gives memory back that is more than to keep.
    pub(super) fn done(&self) -> Result<()> {
        match self.bytes()? > KEPT_BYTES as u64 {
            true => self.clear(),
            false => Ok(()),
        }
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
