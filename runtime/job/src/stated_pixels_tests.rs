use super::*;
use ChannelOrder::{Bgr, Rgb};
use Interpolation::{Bicubic, Bilinear};
use ResizeMode::{Pad, Short, Squash};
use frostline_tensor::{ChannelOrder, Interpolation};
use serde_json::json;

fn stated(config: &Value) -> Result<PixelSpec, String> {
    StatedPixels::from_json(&config.to_string()).map(|stated| stated.0)
}

/// Creates a recipe with mean and standard deviation of ImageNet, or of 0.5 if `half` is set.
fn spec(resize: u32, crop: u32, mode: ResizeMode, interpolation: Interpolation, half: bool) -> PixelSpec {
    let imagenet = PixelSpec::imagenet(crop, crop);
    PixelSpec {
        resize,
        resize_mode: mode,
        interpolation,
        mean: if half { [0.5; 3] } else { imagenet.mean },
        std: if half { [0.5; 3] } else { imagenet.std },
        ..imagenet
    }
}

fn timm(input: u32, crop_pct: f64, mode: &str, half: bool) -> Value {
    let spec = spec(1, 1, Short, Bicubic, half);
    json!({"architecture": "any", "num_classes": 1000, "pretrained_cfg": {
        "input_size": [3, input, input], "fixed_input_size": true, "interpolation": "bicubic", "crop_pct": crop_pct,
        "crop_mode": mode, "mean": spec.mean.map(f64::from), "std": spec.std.map(f64::from), "classifier": "head"}})
}

#[test]
fn timm_states_share_and_mode() {
    let cases = [
        (
            timm(224, 0.9, "center", true),
            spec(248, 224, Short, Bicubic, true),
        ),
        (
            timm(224, 0.95, "center", false),
            spec(235, 224, Short, Bicubic, false),
        ),
        (
            timm(224, 0.875, "center", false),
            spec(256, 224, Short, Bicubic, false),
        ),
        (
            timm(518, 1.0, "center", false),
            spec(518, 518, Short, Bicubic, false),
        ),
        (
            timm(299, 0.875, "center", true),
            spec(341, 299, Short, Bicubic, true),
        ),
        (
            timm(224, 0.9, "squash", true),
            spec(248, 224, Squash, Bicubic, true),
        ),
    ];
    for (config, expected) in cases {
        assert_eq!(stated(&config), Ok(expected), "{config}");
        assert_eq!(stated(&config["pretrained_cfg"]), Ok(expected), "{config}");
    }
    let border = stated(&timm(224, 1.0, "border", false)).unwrap();
    assert_eq!((border.resize_mode, border.fill), (Pad, [124, 116, 104]));
}

#[test]
fn timm_has_defaults_for_what_is_missing_or_null() {
    let usual = spec(256, 224, Short, Bicubic, false);
    for config in [
        json!({"input_size": [3, 224, 224]}),
        json!({"architecture": "resnet18", "pretrained_cfg": {}}),
        json!({"input_size": [3, 224, 224], "crop_pct": null, "crop_mode": null, "interpolation": null, "mean": null, "std": []}),
        json!({"input_size": [3, 224, 224], "crop_pct": 0.0, "crop_mode": "", "interpolation": ""}),
    ] {
        assert_eq!(stated(&config), Ok(usual), "{config}");
    }
    let tall = |mode: &str, crop_pct: f64| {
        stated(&json!({"input_size": [3, 256, 128], "crop_mode": mode, "crop_pct": crop_pct}))
    };
    assert_eq!(tall("squash", 0.5).unwrap().resize, 256);
    for (mode, crop_pct) in [("center", 1.0), ("squash", 0.95)] {
        let error = tall(mode, crop_pct).unwrap_err();
        assert!(error.contains("256x128 is not square"), "{error}");
    }
    let gray = stated(&json!({"input_size": [1, 28, 28]})).unwrap_err();
    assert!(gray.contains("1 channels"), "{gray}");
    let gray = stated(&json!({"input_size": [3, 28, 28], "mean": [0.5]})).unwrap_err();
    assert!(gray.contains("mean has 1 values"), "{gray}");
}

/// Processor configuration of transformers with some fields replaced.
fn processor(changes: Value) -> Value {
    let mut config = json!({"do_normalize": true, "do_resize": true, "do_rescale": true, "rescale_factor": 0.00392156862745098,
        "image_processor_type": "ViTImageProcessor", "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2,
        "size": {"height": 224, "width": 224}});
    let changes: serde_json::Map<String, Value> = serde_json::from_value(changes).unwrap();
    config.as_object_mut().unwrap().extend(changes);
    config
}

#[test]
fn processors_of_transformers_squash_or_crop() {
    let square = |side: u32| json!({"height": side, "width": side});
    let cases = [
        (json!({}), spec(224, 224, Squash, Bilinear, true)),
        (json!({"resample": 3}), spec(224, 224, Squash, Bicubic, true)),
        (json!({"size": 384}), spec(384, 384, Squash, Bilinear, true)),
        (
            json!({"size": square(256), "do_center_crop": true, "crop_size": square(224), "resample": 3}),
            spec(256, 224, Squash, Bicubic, true),
        ),
        (
            json!({"size": {"shortest_edge": 224}, "do_center_crop": true, "crop_size": square(224), "resample": 3}),
            spec(224, 224, Short, Bicubic, true),
        ),
        (
            json!({"feature_extractor_type": "CLIPFeatureExtractor", "image_processor_type": "CLIPFeatureExtractor", "size": 224, "do_center_crop": true, "crop_size": 224}),
            spec(224, 224, Short, Bilinear, true),
        ),
        (
            json!({"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224}, "crop_pct": 0.875}),
            spec(256, 224, Short, Bilinear, true),
        ),
        (
            json!({"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384}, "crop_pct": 0.875}),
            spec(384, 384, Squash, Bilinear, true),
        ),
        (
            json!({"feature_extractor_type": "LevitFeatureExtractor", "size": 224, "do_center_crop": true, "crop_size": 224}),
            spec(256, 224, Short, Bilinear, true),
        ),
        (
            json!({"image_processor_type": "LevitImageProcessor", "size": {"shortest_edge": 224}, "crop_size": square(224)}),
            spec(256, 224, Short, Bilinear, true),
        ),
        (
            json!({"image_processor_type": "PoolFormerImageProcessor", "size": {"shortest_edge": 224}, "crop_pct": 0.95}),
            spec(235, 224, Short, Bilinear, true),
        ),
        (
            json!({"image_processor_type": "PoolFormerImageProcessor", "size": square(224), "crop_pct": null}),
            spec(248, 224, Short, Bilinear, true),
        ),
    ];
    for (changes, expected) in cases {
        let mut config = processor(changes);
        if config.get("feature_extractor_type").is_some() {
            config.as_object_mut().unwrap().remove("image_processor_type");
        }
        assert_eq!(stated(&config), Ok(expected), "{config}");
    }
}

#[test]
fn a_missing_or_null_field_has_the_default_of_the_class() {
    // Written by version 4.5 of transformers.
    let fast = json!({
        "crop_size": null, "data_format": "channels_first", "default_to_square": true, "device": null, "disable_grouping": null,
        "do_center_crop": null, "do_convert_rgb": null, "do_normalize": true, "do_pad": null, "do_rescale": true,
        "do_resize": true, "image_mean": [0.5, 0.5, 0.5], "image_processor_type": "ViTImageProcessorFast",
        "image_std": [0.5, 0.5, 0.5], "input_data_format": null, "resample": 2, "rescale_factor": 0.00392156862745098,
        "return_tensors": null, "size": {"height": 224, "width": 224, "longest_edge": null}});
    let vit = spec(224, 224, Squash, Bilinear, true);
    assert_eq!(stated(&fast), Ok(vit));
    assert_eq!(
        stated(&json!({"image_processor": fast, "processor_class": "Any"})),
        Ok(vit)
    );
    assert_eq!(
        stated(&json!({"image_processor_type": "ViTImageProcessorPil"})),
        Ok(vit)
    );
    let clip = stated(&json!({"image_processor_type": "CLIPImageProcessor"})).unwrap();
    let mean = [0.481_454_66, 0.457_827_5, 0.408_210_73];
    let short = spec(224, 224, Short, Bicubic, true);
    assert_eq!(
        PixelSpec {
            std: short.std,
            ..clip
        },
        PixelSpec { mean, ..short }
    );
    let whole = stated(&json!({"image_processor_type": "CLIPImageProcessor", "do_center_crop": false}));
    assert!(whole.unwrap_err().contains("without a crop"));
}

#[test]
fn efficientnet_divides_twice_and_may_subtract_one() {
    let near = |ours: [f32; 3], theirs: f32| ours.iter().all(|value| (value - theirs).abs() < 1e-6);
    let efficient = |changes: Value| {
        let mut config = processor(changes);
        config["image_processor_type"] = "EfficientNetImageProcessor".into();
        stated(&config).unwrap()
    };
    for twice in [
        json!({"include_top": true}),
        json!({"include_top": null}),
        json!({}),
    ] {
        let twice = efficient(twice);
        assert!(near(twice.mean, 0.5) && near(twice.std, 0.25), "{twice:?}");
    }
    assert!(near(efficient(json!({"include_top": false})).std, 0.5));
    let only = efficient(json!({"do_normalize": false}));
    assert!(near(only.mean, 0.0) && near(only.std, 0.5), "{only:?}");
    let offset = json!({"rescale_offset": true, "rescale_factor": 1.0 / 127.5, "include_top": false});
    let offset = efficient(offset);
    assert!(near(offset.mean, 0.75) && near(offset.std, 0.25), "{offset:?}");
    let gray = efficient(json!({"image_mean": 0.5, "image_std": 0.5, "include_top": false}));
    assert!(near(gray.mean, 0.5) && near(gray.std, 0.5), "{gray:?}");
}

#[test]
fn scales_become_mean_and_std() {
    let near = |ours: [f32; 3], theirs: f32| ours.iter().all(|value| (value - theirs).abs() < 1e-6);
    let bytes = stated(&processor(
        json!({"do_rescale": false, "image_mean": [127.5, 127.5, 127.5], "image_std": [1.0, 1.0, 1.0]}),
    ));
    let bytes = bytes.unwrap();
    assert!(near(bytes.mean, 0.5) && near(bytes.std, 1.0 / 255.0), "{bytes:?}");
    let plain = stated(&processor(
        json!({"do_normalize": false, "do_flip_channel_order": true}),
    ))
    .unwrap();
    assert!(near(plain.mean, 0.0) && near(plain.std, 1.0), "{plain:?}");
    assert_eq!(plain.channels, Bgr);
    assert_eq!(stated(&processor(json!({}))).unwrap().channels, Rgb);
}

#[test]
fn what_cannot_be_followed_is_refused_by_name() {
    for (config, words) in [
        (json!({"size": {"shortest_edge": 800}}), "without a crop"),
        (json!({"do_resize": false}), "do_resize"),
        (json!({"rescale_offset": true}), "rescale_offset"),
        (json!({"do_pad": true}), "do_pad"),
        (json!({"resample": 5}), "resample 5"),
        (json!({"image_std": [0.0, 1.0, 1.0]}), "std"),
        (json!({"resample": 5}), "hamming"),
        (json!({"do_thumbnail": true}), "do_thumbnail"),
        (json!({"include_top": true}), "include_top"),
        (
            json!({"image_processor_type": "DPTImageProcessor", "keep_aspect_ratio": true}),
            "keep_aspect_ratio",
        ),
        (
            json!({"image_processor_type": "DPTImageProcessor", "ensure_multiple_of": 14}),
            "ensure_multiple_of is 14",
        ),
        (
            json!({"image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": true}),
            "crop_to_patches",
        ),
        (
            json!({"image_processor_type": "PerceiverImageProcessor"}),
            "PerceiverImageProcessor",
        ),
        (
            json!({"image_processor_type": "WhisperFeatureExtractor"}),
            "WhisperImageProcessor",
        ),
        (json!({"image_processor_type": null, "crop_pct": 0.9}), "crop_pct"),
        (
            json!({"image_processor_type": "ConvNextImageProcessor"}),
            "ConvNextImageProcessor",
        ),
        (
            json!({"size": {"longest_edge": 800, "shortest_edge": 600}}),
            "longest_edge",
        ),
        (json!({"do_center_crop": true}), "crop_size null"),
        (
            json!({"image_processor_type": "SegformerImageProcessor", "do_center_crop": true, "crop_size": 224}),
            "do_center_crop",
        ),
    ] {
        let error = stated(&processor(config)).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let unstated = stated(&json!({"do_resize": true, "size": 224})).unwrap_err();
    assert!(unstated.contains("without image_mean"), "{unstated}");
    assert!(
        stated(&json!({"hidden_size": 768}))
            .unwrap_err()
            .contains("neither")
    );
    assert!(StatedPixels::from_json("no").is_err());
    assert!("/no/such/file.json".parse::<StatedPixels>().is_err());
}

#[test]
fn a_recipe_is_written_as_it_is_read() {
    let recipe = stated(&timm(224, 1.0, "border", false)).unwrap();
    let text = StatedPixels(recipe).to_string();
    assert_eq!(text.parse(), Ok(StatedPixels(recipe)));
    let classic = StatedPixels(PixelSpec::imagenet(224, 224)).to_string();
    assert!(
        !classic.contains("interpolation") && !classic.contains("fill"),
        "{classic}"
    );
}
