/* A guest in C. The host loads photos with the preprocessing of ImageNet and runs the network up to the split. */

#include <frostline.h>
#include <stdlib.h>

/* Preprocessing of a photo. The host resizes the short side, crops the center, scales colors to 0..1, subtracts `mean` and divides by
 * `std` for red, green and blue. */
static bool pixel_spec(const frozen_prefix_list_u32_t *input, frozen_prefix_pixel_spec_t *spec, frozen_prefix_failure_t *failure) {
    if (input->len != 3 || input->ptr[0] != 3) {
        return frostline_fail(failure, WASI_NN_ERRORS_ERROR_CODE_INVALID_ARGUMENT,
                              "this guest serves networks of RGB photos, [3, height, width] per sample");
    }
    uint32_t height = input->ptr[1], width = input->ptr[2];
    uint32_t side = height > width ? height : width;
    *spec = (frozen_prefix_pixel_spec_t){
        .resize = (side * 8 + 6) / 7,
        .crop_height = height,
        .crop_width = width,
        .mean = {0.485f, 0.456f, 0.406f},
        .std = {0.229f, 0.224f, 0.225f},
    };
    return true;
}

/* Describes the guest for a model. Called once per model. Must not read objects or compute anything. */
bool exports_frozen_prefix_describe(frozen_prefix_model_view_t *model, frozen_prefix_string_t *parameters,
                                    frozen_prefix_description_t *description, frozen_prefix_failure_t *failure) {
    (void)parameters;
    frozen_prefix_string_set(&description->name, "c-prefix");
    frozen_prefix_string_set(&description->version, "0.1.0");
    description->pixels.tag = FROZEN_PREFIX_PIXELS_SPEC;
    if (!pixel_spec(&model->input_shape, &description->pixels.val.spec, failure)) {
        return false;
    }
    size_t cuts = model->cuts.len;
    description->cuts.len = cuts;
    description->cuts.ptr = calloc(cuts, sizeof(frozen_prefix_served_cut_t));
    for (size_t i = 0; i < cuts; i++) {
        description->cuts.ptr[i].name = model->cuts.ptr[i].name;
        description->cuts.ptr[i].activation.tag = FROZEN_PREFIX_ACTIVATION_FAITHFUL;
    }
    return true;
}

/* Computes activations. The host chooses the number of samples, and calls this function in a new instance each time. */
bool exports_frozen_prefix_extract(frozen_prefix_list_sample_t *samples, frozen_prefix_job_t *job,
                                   frozen_prefix_activations_t *activations, frozen_prefix_failure_t *failure) {
    frozen_prefix_pixel_spec_t spec;
    if (!pixel_spec(&job->input_shape, &spec, failure)) {
        return false;
    }
    frostline_pushdown_images_list_sample_t asked = {samples->ptr, samples->len};
    frostline_pushdown_images_loaded_t loaded;
    if (!frostline_pushdown_images_load_augmented(&asked, &spec, FROSTLINE_PUSHDOWN_IMAGES_PIXEL_FORMAT_NORMALIZED, &loaded, failure)) {
        return false;
    }
    /* Report the samples that failed to load, and continue with the others. */
    activations->failed.ptr = loaded.failed.ptr;
    activations->failed.len = loaded.failed.len;
    return frostline_run(&job->stage, &job->input, loaded.pixels, &activations->tensor, failure);
}
