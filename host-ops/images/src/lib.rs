//! Photos to pixels: decode, resize, crop and normalise into a batch tensor, as torchvision does
