// Factories of all layer classes, one line a class; the files are one a family.
#pragma once

#include "models/layer_table.h"

namespace tessera::models::layers {

std::unique_ptr<Layer> make_activation_layer(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_activity_regularization(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_add(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_alpha_dropout(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_average(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_batch_normalization(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_concatenate(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_dense(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_dot(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_dropout(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_einsum_dense(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_elu(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_embedding(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_flatten(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_gaussian_dropout(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_gaussian_noise(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_group_normalization(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_identity(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_layer_normalization(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_leaky_relu(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_masking(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_maximum(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_minimum(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_multiply(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_normalization(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_permute(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_prelu(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_relu(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_repeat_vector(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_rescaling(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_reshape(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_reversible_embedding(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_rms_normalization(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_softmax(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_spatial_dropout_1d(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_spatial_dropout_2d(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_spatial_dropout_3d(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_subtract(LayerInfo info, json::Arguments& config);
std::unique_ptr<Layer> make_unit_normalization(LayerInfo info, json::Arguments& config);

}  // namespace tessera::models::layers
