/* A guest in C. The host loads photos with the preprocessing of ImageNet and runs the network up to the split. */

#include <frostline.h>

/* Preprocessing of a photo. The host resizes the short side, crops the center, scales colors to 0..1, subtracts `mean` and divides by
 * `std` for red, green and blue. */
static bool recipe(const exports_frostline_pushdown_prefix_list_tensor_info_t *inputs, frostline_pushdown_images_recipe_t *recipe,
                   frostline_pushdown_types_error_t *error) {
    uint32_t height, width;
    if (!frostline_image_size(inputs, &height, &width, error)) {
        return false;
    }
    uint32_t side = height > width ? height : width;
    *recipe = (frostline_pushdown_images_recipe_t){
        .resize = (side * 8 + 6) / 7,
        .crop_height = height,
        .crop_width = width,
        .mean = {0.485f, 0.456f, 0.406f},
        .std = {0.229f, 0.224f, 0.225f},
        .interpolation = FROSTLINE_PUSHDOWN_IMAGES_INTERPOLATION_BILINEAR,
        .resize_mode = FROSTLINE_PUSHDOWN_IMAGES_RESIZE_MODE_SHORT,
        .channels = FROSTLINE_PUSHDOWN_IMAGES_CHANNEL_ORDER_RGB,
    };
    return true;
}

static bool describe(exports_frostline_pushdown_prefix_model_t *model, exports_frostline_pushdown_prefix_borrow_description_t description,
                     exports_frostline_pushdown_prefix_error_t *error) {
    frozen_prefix_string_t name, version;
    frozen_prefix_string_set(&name, "c-prefix");
    frozen_prefix_string_set(&version, "0.1.0");
    frostline_pushdown_descriptions_method_description_set_name(description, &name, &version);
    frostline_pushdown_images_recipe_t images;
    if (!recipe(&model->inputs, &images, error) ||
        !frostline_pushdown_descriptions_method_description_set_recipe(description, &images, error)) {
        return false;
    }
    for (size_t i = 0; i < model->cuts.len; i++) {
        if (!frostline_pushdown_descriptions_method_description_serve(description, &model->cuts.ptr[i].name, error)) {
            return false;
        }
    }
    return true;
}

/* Describes the guest for a model. Called once per model. Must not read objects or compute anything. */
bool exports_frostline_pushdown_prefix_describe(exports_frostline_pushdown_prefix_model_t *model, frozen_prefix_string_t *parameters,
                                                exports_frostline_pushdown_prefix_borrow_description_t description,
                                                exports_frostline_pushdown_prefix_error_t *error) {
    (void)parameters;
    bool described = describe(model, description, error);
    /* The host lends the description. A guest that keeps it is ended. */
    frostline_pushdown_descriptions_description_drop_borrow(description);
    return described;
}

/* Computes activations. The host chooses the number of samples, and calls this function in a new instance each time. */
bool exports_frostline_pushdown_prefix_extract(exports_frostline_pushdown_prefix_job_t *job,
                                               exports_frostline_pushdown_prefix_extracted_t *extracted,
                                               exports_frostline_pushdown_prefix_error_t *error) {
    frostline_pushdown_images_recipe_t images;
    if (!recipe(&job->inputs, &images, error)) {
        return false;
    }
    frostline_pushdown_images_list_sample_t asked = {job->samples.ptr, job->samples.len};
    frostline_pushdown_images_loaded_t loaded;
    if (!frostline_pushdown_images_load(&asked, &images, FROSTLINE_PUSHDOWN_IMAGES_PIXEL_FORMAT_NORMALIZED, &loaded, error)) {
        return false;
    }
    /* Report the samples that failed to load, and continue with the others. */
    extracted->failed.ptr = loaded.failed.ptr;
    extracted->failed.len = loaded.failed.len;
    return frostline_run(job, &loaded.pixels, &extracted->tensors, error);
}
