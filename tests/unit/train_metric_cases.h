// Metrics with their results as Keras computes them (float32, on JAX) from rows 0-2 and then rows
// 3-4.
#pragma once

#include "tests/unit/train_cases.h"

namespace tessera::train::cases::metrics {

inline const Data kScores{
    {5, 4}, DType::float32, {0.1, 0.6, 0.2, 0.1, 0.3,  0.1,  0.2, 0.4, 0.25, 0.25,
                             0.4, 0.1, 0.7, 0.1, 0.15, 0.05, 0.2, 0.3, 0.3,  0.2}};
inline const Data kClasses{
    {5, 4}, DType::float32, {0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0}};
inline const Data kLabels{{5}, DType::int32, {1, 0, 0, 0, 2}};
inline const Data kColumn{{5, 1}, DType::int32, {1, 0, 0, 0, 2}};
inline const Data kBits{
    {5, 4}, DType::float32, {0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 1, 0}};
inline const Data kSure{
    {5, 4}, DType::float32, {0.5, 1,    0.85, 0,    0.9,  0.25, 0.3, 0.75, 0.6, 0.35,
                             0.1, 0.05, 0.45, 0.55, 0.95, 0.65, 0.2, 0.15, 0.7, 0.4}};
inline const Data kNumbers{
    {5, 3}, DType::float32, {1.5, -0.5, 2, -1, 0.75, 3, 0.5, 0.1, -0.3, 2, 1, 0, -0.5, 1.5, 0.25}};
inline const Data kTargets{
    {5, 3}, DType::float32, {1, 2, 0.5, 0.2, 1.5, 4, 3, 0.1, 0.7, 1, 0.5, 0.25, -1, 2, 0}};
inline const Data kPositive{
    {5, 3}, DType::float32, {1, 2, 0.5, 0.2, 1.5, 4, 3, 0.1, 0.7, 1, 0.5, 0.25, 1.5, 2, 0.3}};
inline const Data kCounts{
    {5, 3}, DType::float32, {0.4, 1, 2, 0.3, 2.5, 3, 2, 0.6, 0.2, 1, 0.2, 0.4, 0.5, 1.5, 2}};
inline const Data kFlat{{5, 1}, DType::float32, {0.3, 0.8, 0.6, 0.1, 0.5}};
inline const Data kFlatBits{{5, 1}, DType::float32, {0, 1, 0, 0, 1}};
inline const Data kIds{{5}, DType::int32, {0, 1, 2, 1, 0}};
inline const Data kGuesses{{5}, DType::int32, {0, 2, 2, 1, 1}};
inline const Data kOrder{
    {5, 4}, DType::float32, {1, 2, 0, 3, 2, 1, 0, 3, 3, 2, 1, 0, 0, 1, 2, 3, 3, 1, 2, 0}};
inline const Data kSteps{{5, 2, 3},
                         DType::float32,
                         {0.5, 1, -1, 2, 0.1, 0.3, 0,   -1,  1,   1,   1,   2,   -0.5, 0.25, 0.75,
                          3,   1, 0,  1, 0,   0.5, 0.2, 0.3, 0.4, 0.1, 0.9, 0.3, 0.6,  0.2,  0.1}};
inline const Data kStepLabels{{5, 2}, DType::int32, {1, 0, 2, 2, 1, 0, 0, 1, 1, 0}};
inline const Data kWeight{{5}, DType::float32, {2, 0.5, 1, 3, 0.25}};
inline const Data kWhole{{5}, DType::float32, {2, 1, 0, 3, 1}};
inline const Data kStepWeight{{5, 2}, DType::float32, {1, 2, 0.5, 1, 0, 1, 3, 1, 2, 0.25}};
inline const Data kStepMask{{5, 2}, DType::boolean, {1, 0, 1, 1, 0, 0, 1, 1, 1, 0}};
inline const Data kMask{{5}, DType::boolean, {1, 0, 1, 1, 0}};
inline const Data kNumbers4{
    {5, 4}, DType::float32, {1.5,  -0.5, 2, 0.2, -1, 0.75, 3,    -0.1, 0.5,  0.1,
                             -0.3, -2,   2, 1,   0,  0.4,  -0.5, 1.5,  0.25, 0.3}};
inline const Data kInverse{
    {5, 4}, DType::float32, {1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 1}};
inline const Data kOneHot3{{5, 3}, DType::float32, {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0}};

struct MetricCase {
  const char* config;
  const Data& y_true;
  const Data& y_pred;
  const Data* weight;
  const Data* mask;
  double result;
  const char* name;
  int direction;
};

inline const std::vector<MetricCase> kMetricCases = {
    {R"("accuracy")", kClasses, kScores, nullptr, nullptr, 0.4, "accuracy", 1},
    {R"("acc")", kLabels, kScores, nullptr, nullptr, 0.4, "acc", 1},
    {R"("acc")", kColumn, kScores, nullptr, nullptr, 0.4, "acc", 1},
    {R"("accuracy")", kFlatBits, kFlat, nullptr, nullptr, 0.6, "accuracy", 1},
    {R"({"class_name": "Accuracy", "config": {}})", kIds, kGuesses, nullptr, nullptr, 0.6,
     "accuracy", 1},
    {R"({"class_name": "Accuracy", "config": {}})", kIds, kGuesses, &kWeight, nullptr, 0.8888889,
     "accuracy", 1},
    {R"("binary_accuracy")", kBits, kSure, nullptr, nullptr, 0.85, "binary_accuracy", 1},
    {R"({"class_name": "BinaryAccuracy", "config": {"threshold": 0.8}})", kBits, kSure, &kWeight,
     nullptr, 0.7777778, "binary_accuracy", 1},
    {R"("categorical_accuracy")", kClasses, kScores, &kWeight, nullptr, 0.7407407,
     "categorical_accuracy", 1},
    {R"("sparse_categorical_accuracy")", kLabels, kScores, &kWeight, nullptr, 0.7407407,
     "sparse_categorical_accuracy", 1},
    {R"("sparse_categorical_accuracy")", kStepLabels, kSteps, nullptr, nullptr, 0.8,
     "sparse_categorical_accuracy", 1},
    {R"("sparse_categorical_accuracy")", kStepLabels, kSteps, &kStepWeight, nullptr, 0.9148936,
     "sparse_categorical_accuracy", 1},
    {R"("sparse_categorical_accuracy")", kStepLabels, kSteps, nullptr, &kStepMask, 0.8333333,
     "sparse_categorical_accuracy", 1},
    {R"("sparse_categorical_accuracy")", kStepLabels, kSteps, &kStepWeight, &kStepMask, 0.88235295,
     "sparse_categorical_accuracy", 1},
    {R"({"class_name": "TopKCategoricalAccuracy", "config": {"k": 1}})", kClasses, kScores, nullptr,
     nullptr, 0.6, "top_k_categorical_accuracy", 1},
    {R"({"class_name": "SparseTopKCategoricalAccuracy", "config": {"k": 1}})", kLabels, kScores,
     &kWeight, nullptr, 0.7777778, "sparse_top_k_categorical_accuracy", 1},
    {R"({"class_name": "TopKCategoricalAccuracy", "config": {"k": 2}})", kClasses, kScores, nullptr,
     nullptr, 1, "top_k_categorical_accuracy", 1},
    {R"({"class_name": "SparseTopKCategoricalAccuracy", "config": {"k": 2}})", kLabels, kScores,
     &kWeight, nullptr, 1, "sparse_top_k_categorical_accuracy", 1},
    {R"({"class_name": "TopKCategoricalAccuracy", "config": {"k": 3}})", kClasses, kScores, nullptr,
     nullptr, 1, "top_k_categorical_accuracy", 1},
    {R"({"class_name": "SparseTopKCategoricalAccuracy", "config": {"k": 3}})", kLabels, kScores,
     &kWeight, nullptr, 1, "sparse_top_k_categorical_accuracy", 1},
    {R"({"class_name": "SparseTopKCategoricalAccuracy", "config": {"k": 2, "from_sorted_ids": true}})",
     kLabels, kOrder, nullptr, nullptr, 0.4, "sparse_top_k_categorical_accuracy", 1},
    {R"({"class_name": "SparseTopKCategoricalAccuracy", "config": {"k": 2}})", kStepLabels, kSteps,
     nullptr, nullptr, 1, "sparse_top_k_categorical_accuracy", 1},
    {R"("mse")", kTargets, kNumbers, nullptr, nullptr, 1.3918333, "mse", -1},
    {R"("mae")", kTargets, kNumbers, nullptr, nullptr, 0.93, "mae", -1},
    {R"("mape")", kTargets, kNumbers, nullptr, nullptr, 16666782, "mape", -1},
    {R"("MeanSquaredError")", kTargets, kNumbers, nullptr, nullptr, 1.3918333, "MeanSquaredError",
     -1},
    {R"("msle")", kPositive, kCounts, nullptr, nullptr, 0.15613936, "msle", -1},
    {R"("poisson")", kPositive, kCounts, &kWeight, nullptr, 0.93235654, "poisson", -1},
    {R"("mse")", kTargets, kNumbers, &kWeight, nullptr, 1.497747, "mse", -1},
    {R"("mse")", kTargets, kNumbers, nullptr, &kMask, 1.9236112, "mse", -1},
    {R"("mse")", kTargets, kNumbers, &kWeight, &kMask, 1.59375, "mse", -1},
    {R"("root_mean_squared_error")", kTargets, kNumbers, nullptr, nullptr, 1.1797599,
     "root_mean_squared_error", -1},
    {R"({"class_name": "RootMeanSquaredError", "config": {}})", kTargets, kNumbers, &kWeight,
     nullptr, 1.2238247, "root_mean_squared_error", -1},
    {R"("cosine_similarity")", kTargets, kNumbers, nullptr, nullptr, 0.77066374,
     "cosine_similarity", 1},
    {R"({"class_name": "LogCoshError", "config": {}})", kTargets, kNumbers, nullptr, nullptr,
     0.47854614, "logcosh", -1},
    {R"("kl_divergence")", kClasses, kScores, nullptr, nullptr, 0.93234384, "kl_divergence", -1},
    {R"("hinge")", kBits, kSure, nullptr, nullptr, 0.79, "hinge", -1},
    {R"("squared_hinge")", kBits, kSure, nullptr, nullptr, 0.90675, "squared_hinge", -1},
    {R"("categorical_hinge")", kClasses, kScores, nullptr, nullptr, 0.86, "categorical_hinge", -1},
    {R"("bce")", kBits, kSure, nullptr, nullptr, 0.4064123, "bce", -1},
    {R"({"class_name": "BinaryCrossentropy", "config": {"from_logits": true, "label_smoothing": 0.1}})",
     kBits, kSure, nullptr, nullptr, 0.6384724, "binary_crossentropy", -1},
    {R"("categorical_crossentropy")", kClasses, kScores, nullptr, nullptr, 0.9323481,
     "categorical_crossentropy", -1},
    {R"({"class_name": "CategoricalCrossentropy", "config": {"label_smoothing": 0.1}})", kClasses,
     kScores, &kWeight, nullptr, 0.7564286, "categorical_crossentropy", -1},
    {R"("sparse_categorical_crossentropy")", kLabels, kScores, nullptr, nullptr, 0.9323481,
     "sparse_categorical_crossentropy", -1},
    {R"({"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true, "ignore_class": 1}})",
     kStepLabels, kSteps, nullptr, nullptr, 0.29188305, "sparse_categorical_crossentropy", -1},
    {R"({"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true, "ignore_class": 1}})",
     kStepLabels, kSteps, &kStepWeight, nullptr, 0.48327, "sparse_categorical_crossentropy", -1},
    {R"({"class_name": "PearsonCorrelation", "config": {}})", kTargets, kNumbers, nullptr, nullptr,
     0.5473057, "pearson_correlation", 1},
    {R"({"class_name": "ConcordanceCorrelation", "config": {}})", kTargets, kNumbers, &kWeight,
     nullptr, 0.11344193, "concordance_correlation", 1},
    {R"("r2_score")", kTargets, kNumbers, nullptr, nullptr, -0.28863567, "r2_score", 1},
    {R"({"class_name": "R2Score", "config": {"class_aggregation": "variance_weighted_average"}})",
     kTargets, kNumbers, &kWeight, nullptr, -0.97997546, "r2_score", 1},
    {R"({"class_name": "R2Score", "config": {"num_regressors": 2}})", kTargets, kNumbers, nullptr,
     nullptr, -0.50340843, "r2_score", 1},
    {R"({"class_name": "TruePositives", "config": {}})", kBits, kSure, nullptr, nullptr, 8,
     "true_positives", 0},
    {R"({"class_name": "TruePositives", "config": {"thresholds": 0.3}})", kBits, kSure, &kWeight,
     nullptr, 13.25, "true_positives", 0},
    {R"({"class_name": "TruePositives", "config": {}})", kFlatBits, kFlat, nullptr, nullptr, 1,
     "true_positives", 0},
    {R"({"class_name": "TrueNegatives", "config": {}})", kBits, kSure, nullptr, nullptr, 9,
     "true_negatives", 0},
    {R"({"class_name": "TrueNegatives", "config": {"thresholds": 0.3}})", kBits, kSure, &kWeight,
     nullptr, 5.25, "true_negatives", 0},
    {R"({"class_name": "TrueNegatives", "config": {}})", kFlatBits, kFlat, nullptr, nullptr, 2,
     "true_negatives", 0},
    {R"({"class_name": "FalsePositives", "config": {}})", kBits, kSure, nullptr, nullptr, 1,
     "false_positives", 0},
    {R"({"class_name": "FalsePositives", "config": {"thresholds": 0.3}})", kBits, kSure, &kWeight,
     nullptr, 8.25, "false_positives", 0},
    {R"({"class_name": "FalsePositives", "config": {}})", kFlatBits, kFlat, nullptr, nullptr, 1,
     "false_positives", 0},
    {R"({"class_name": "FalseNegatives", "config": {}})", kBits, kSure, nullptr, nullptr, 2,
     "false_negatives", 0},
    {R"({"class_name": "FalseNegatives", "config": {"thresholds": 0.3}})", kBits, kSure, &kWeight,
     nullptr, 0.25, "false_negatives", 0},
    {R"({"class_name": "FalseNegatives", "config": {}})", kFlatBits, kFlat, nullptr, nullptr, 1,
     "false_negatives", 0},
    {R"("Precision")", kBits, kSure, nullptr, nullptr, 0.8888889, "Precision", 1},
    {R"({"class_name": "Precision", "config": {"thresholds": 0.6}})", kBits, kSure, &kWeight,
     nullptr, 1, "precision", 1},
    {R"({"class_name": "Precision", "config": {"class_id": 2}})", kBits, kSure, nullptr, nullptr, 1,
     "precision", 1},
    {R"({"class_name": "Precision", "config": {"top_k": 2}})", kClasses, kScores, nullptr, nullptr,
     0.5, "precision", 1},
    {R"({"class_name": "Precision", "config": {"top_k": 1, "class_id": 2}})", kClasses, kScores,
     &kWeight, nullptr, 0, "precision", 1},
    {R"({"class_name": "Precision", "config": {"thresholds": [0.1, 0.3, 0.9]}})", kBits, kSure,
     nullptr, nullptr, 0.760181, "precision", 1},
    {R"({"class_name": "Precision", "config": {"thresholds": [0, 0.5, 1]}})", kBits, kSure, nullptr,
     nullptr, 0.4717349, "precision", 1},
    {R"("Recall")", kBits, kSure, nullptr, nullptr, 0.8, "Recall", 1},
    {R"({"class_name": "Recall", "config": {"thresholds": 0.6}})", kBits, kSure, &kWeight, nullptr,
     0.8333333, "recall", 1},
    {R"({"class_name": "Recall", "config": {"class_id": 2}})", kBits, kSure, nullptr, nullptr, 1,
     "recall", 1},
    {R"({"class_name": "Recall", "config": {"top_k": 2}})", kClasses, kScores, nullptr, nullptr, 1,
     "recall", 1},
    {R"({"class_name": "Recall", "config": {"top_k": 1, "class_id": 2}})", kClasses, kScores,
     &kWeight, nullptr, 0, "recall", 1},
    {R"({"class_name": "Recall", "config": {"thresholds": [0.1, 0.3, 0.9]}})", kBits, kSure,
     nullptr, nullptr, 0.7, "recall", 1},
    {R"({"class_name": "Recall", "config": {"thresholds": [0, 0.5, 1]}})", kBits, kSure, nullptr,
     nullptr, 0.59999996, "recall", 1},
    {R"({"class_name": "AUC", "config": {"curve": "ROC", "summation_method": "interpolation"}})",
     kBits, kSure, nullptr, nullptr, 0.9, "auc", 1},
    {R"({"class_name": "AUC", "config": {"curve": "ROC", "summation_method": "minoring"}})", kBits,
     kSure, nullptr, nullptr, 0.9, "auc", 1},
    {R"({"class_name": "AUC", "config": {"curve": "ROC", "summation_method": "majoring"}})", kBits,
     kSure, nullptr, nullptr, 0.9, "auc", 1},
    {R"({"class_name": "AUC", "config": {"curve": "PR", "summation_method": "interpolation"}})",
     kBits, kSure, nullptr, nullptr, 0.9292598, "auc", 1},
    {R"({"class_name": "AUC", "config": {"curve": "PR", "summation_method": "minoring"}})", kBits,
     kSure, nullptr, nullptr, 0.8266667, "auc", 1},
    {R"({"class_name": "AUC", "config": {"curve": "PR", "summation_method": "majoring"}})", kBits,
     kSure, nullptr, nullptr, 0.9317308, "auc", 1},
    {R"({"class_name": "AUC", "config": {"curve": "PRGAIN", "summation_method": "interpolation"}})",
     kBits, kSure, nullptr, nullptr, 0.86404324, "auc", 1},
    {R"({"class_name": "AUC", "config": {"curve": "PRGAIN", "summation_method": "minoring"}})",
     kBits, kSure, nullptr, nullptr, 0.8564815, "auc", 1},
    {R"({"class_name": "AUC", "config": {"curve": "PRGAIN", "summation_method": "majoring"}})",
     kBits, kSure, nullptr, nullptr, 0.8716049, "auc", 1},
    {R"({"class_name": "AUC", "config": {"num_thresholds": 7}})", kBits, kSure, &kWeight, nullptr,
     0.92421126, "auc", 1},
    {R"({"class_name": "AUC", "config": {"thresholds": [0.9, 0.2, 0.4]}})", kBits, kSure, nullptr,
     nullptr, 0.78499997, "auc", 1},
    {R"({"class_name": "AUC", "config": {"thresholds": [0.25, 0.5, 0.75], "curve": "PR"}})", kBits,
     kSure, nullptr, nullptr, 0.902984, "auc", 1},
    {R"({"class_name": "AUC", "config": {"multi_label": true, "num_thresholds": 20}})", kBits,
     kSure, nullptr, nullptr, 0.875, "auc", 1},
    {R"({"class_name": "AUC", "config": {"multi_label": true, "label_weights": [1, 2, 0, 0.5]}})",
     kBits, kSure, &kWeight, nullptr, 0.80680275, "auc", 1},
    {R"({"class_name": "AUC", "config": {"multi_label": true, "thresholds": [0.3, 0.4], "curve": "PR"}})",
     kBits, kSure, nullptr, nullptr, 0.7662929, "auc", 1},
    {R"({"class_name": "AUC", "config": {"label_weights": [1, 2, 0, 0.5]}})", kBits, kSure,
     &kWeight, nullptr, 0.8115976, "auc", 1},
    {R"({"class_name": "AUC", "config": {"from_logits": true}})", kBits, kNumbers4, nullptr,
     nullptr, 0.285, "auc", 1},
    {R"("auc")", kFlatBits, kFlat, nullptr, nullptr, 0.8333333, "auc", 1},
    {R"({"class_name": "SensitivityAtSpecificity", "config": {"specificity": 0.6}})", kBits, kSure,
     nullptr, nullptr, 0.9, "sensitivity_at_specificity", 1},
    {R"({"class_name": "SpecificityAtSensitivity", "config": {"sensitivity": 0.7}})", kBits, kSure,
     &kWeight, nullptr, 1, "specificity_at_sensitivity", 1},
    {R"({"class_name": "PrecisionAtRecall", "config": {"recall": 0.8, "num_thresholds": 10}})",
     kBits, kSure, nullptr, nullptr, 1, "precision_at_recall", 1},
    {R"({"class_name": "RecallAtPrecision", "config": {"precision": 0.7}})", kBits, kSure, nullptr,
     nullptr, 0.8, "recall_at_precision", 1},
    {R"({"class_name": "RecallAtPrecision", "config": {"precision": 0.6, "class_id": 1}})", kBits,
     kSure, nullptr, nullptr, 1, "recall_at_precision", 1},
    {R"({"class_name": "SensitivityAtSpecificity", "config": {"specificity": 0.5, "num_thresholds": 1}})",
     kBits, kSure, nullptr, nullptr, 0.8, "sensitivity_at_specificity", 1},
    {R"({"class_name": "RecallAtPrecision", "config": {"precision": 1}})", kBits, kInverse, nullptr,
     nullptr, 0, "recall_at_precision", 1},
    {R"({"class_name": "F1Score", "config": {"average": "micro"}})", kClasses, kScores, nullptr,
     nullptr, 0.5454545, "f1_score", 1},
    {R"({"class_name": "F1Score", "config": {"average": "macro"}})", kClasses, kScores, nullptr,
     nullptr, 0.45833325, "f1_score", 1},
    {R"({"class_name": "F1Score", "config": {"average": "weighted"}})", kClasses, kScores, nullptr,
     nullptr, 0.5666666, "f1_score", 1},
    {R"({"class_name": "F1Score", "config": {"average": null}})", kClasses, kScores, nullptr,
     nullptr, 0.45833325, "f1_score", 1},
    {R"({"class_name": "FBetaScore", "config": {"beta": 2, "average": "macro", "threshold": 0.4}})",
     kBits, kSure, nullptr, nullptr, 0.78125, "fbeta_score", 1},
    {R"({"class_name": "FBetaScore", "config": {"beta": 0.5, "average": "weighted"}})", kBits,
     kSure, &kWeight, nullptr, 0.6737391, "fbeta_score", 1},
    {R"({"class_name": "MeanIoU", "config": {"num_classes": 3}})", kIds, kGuesses, nullptr, nullptr,
     0.44444445, "mean_io_u", 1},
    {R"({"class_name": "MeanIoU", "config": {"num_classes": 3, "ignore_class": 0}})", kIds,
     kGuesses, nullptr, nullptr, 0.5, "mean_io_u", 1},
    {R"({"class_name": "IoU", "config": {"num_classes": 3, "target_class_ids": [0, 2]}})", kIds,
     kGuesses, &kWhole, nullptr, 0.33333334, "io_u", 1},
    {R"({"class_name": "MeanIoU", "config": {"num_classes": 4, "sparse_y_pred": false}})", kLabels,
     kScores, nullptr, nullptr, 0.20833334, "mean_io_u", 1},
    {R"({"class_name": "MeanIoU", "config": {"num_classes": 2}})", kIds, kGuesses, nullptr, nullptr,
     0.5, "mean_io_u", 1},
    {R"({"class_name": "OneHotIoU", "config": {"num_classes": 4, "target_class_ids": [0, 1]}})",
     kClasses, kScores, nullptr, nullptr, 0.4166667, "one_hot_io_u", 1},
    {R"({"class_name": "OneHotMeanIoU", "config": {"num_classes": 4}})", kClasses, kScores, nullptr,
     nullptr, 0.20833334, "one_hot_mean_io_u", 1},
    {R"({"class_name": "BinaryIoU", "config": {"target_class_ids": [1], "threshold": 0.6}})", kBits,
     kSure, nullptr, nullptr, 0.7999999, "binary_io_u", 1},
    {R"({"class_name": "BinaryIoU", "config": {}})", kBits, kSure, nullptr, nullptr, 0.6666667,
     "binary_io_u", 1},
    {R"({"class_name": "OneHotMeanIoU", "config": {"num_classes": 3, "sparse_y_pred": true}})",
     kOneHot3, kGuesses, nullptr, nullptr, 0.44444445, "one_hot_mean_io_u", 1},
};

}  // namespace tessera::train::cases::metrics
