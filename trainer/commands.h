// The subcommands of `trainer`.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/run.h"

namespace tessera::trainer {

struct TrainOptions {
  ConfigSource config;
  std::string output;  // --output: overrides output.dir
  bool overwrite = false;
  std::string resume;  // "auto" or a checkpoint's folder
};
struct PlanOptions {
  ConfigSource config;
  int ranks = 1;
  int rank = 0;
  std::string format = "text";
};
struct WeightsOptions {
  ConfigSource config;
  std::string weights;
  std::string out;  // predict
};

void train(const TrainOptions& options);
void plan(const PlanOptions& options);
void evaluate(const WeightsOptions& options);
void predict(const WeightsOptions& options);
void summary(const ConfigSource& config);
void devices();
void schema(const std::string& format);

}  // namespace tessera::trainer
