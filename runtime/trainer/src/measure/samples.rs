//! Selection of real samples for measurements.

use crate::TrainerError;
use bytes::Bytes;
use frostline_client::Hosts;
use frostline_tensor::is_image_name;
use frostline_wire::ObjectInfo;

/// Selects `count` images from `objects`, evenly distributed over the listing so that all classes are
/// represented. If no object has the name of an image, all objects are considered.
pub(crate) fn spread(objects: &[ObjectInfo], count: usize) -> Vec<ObjectInfo> {
    let images = objects.iter().filter(|object| is_image_name(&object.sample.key));
    let images: Vec<&ObjectInfo> = images.collect();
    let all: Vec<&ObjectInfo> = if images.is_empty() {
        objects.iter().collect()
    } else {
        images
    };
    let count = count.min(all.len());
    let picked = (0..count).filter_map(|index| all.get(index * all.len() / count));
    picked.map(|&object| object.clone()).collect()
}

/// Reads `objects` of the data root from any host. Objects that cannot be read are skipped.
pub(crate) async fn read(
    hosts: &Hosts,
    root: &str,
    objects: &[ObjectInfo],
) -> Result<Vec<Bytes>, TrainerError> {
    let read = hosts.first(|client| async move { client.read(root, objects).await });
    Ok(read.await?.into_iter().flatten().collect())
}

/// Returns the mean of `sizes`, or 0 if the iterator is empty.
pub(crate) fn mean_size(sizes: impl Iterator<Item = u64>) -> u64 {
    let (total, count) = sizes.fold((0_u128, 0_u128), |(total, count), size| {
        (total + u128::from(size), count + 1)
    });
    u64::try_from(total / count.max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_wire::SampleRef;

    fn objects(keys: &[&str]) -> Vec<ObjectInfo> {
        let object = |key: &&str| ObjectInfo {
            sample: SampleRef::new(*key),
            size: 1,
            label: None,
            changed: None,
        };
        keys.iter().map(object).collect()
    }

    fn keys(objects: &[ObjectInfo], count: usize) -> Vec<String> {
        spread(objects, count)
            .into_iter()
            .map(|object| object.sample.key)
            .collect()
    }

    #[test]
    fn samples_are_images_from_all_over_the_listing() {
        let listing = objects(&["a/1.jpg", "a/2.JPG", "a/notes.txt", "b/1.png", "b/2.jpeg"]);
        assert_eq!(keys(&listing, 2), ["a/1.jpg", "b/1.png"]);
        assert_eq!(keys(&listing, 100), ["a/1.jpg", "a/2.JPG", "b/1.png", "b/2.jpeg"]);
        assert!(keys(&listing, 0).is_empty());
        assert!(keys(&[], 3).is_empty());
    }

    #[test]
    fn objects_without_an_images_name_will_do() {
        assert_eq!(keys(&objects(&["x", "y", "z"]), 2), ["x", "y"]);
    }
}
