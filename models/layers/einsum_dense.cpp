// EinsumDense: any two-operand einsum with a kernel, plus bias, activated.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "models/activations.h"
#include "models/layers/layers.h"
#include "runtime/ops/ops.h"

namespace tessera::models::layers {
namespace {

// The parts of "ab...,bc->ac..."; an ellipsis stands at the front, at the back, or nowhere.
struct Equation {
  std::string input;
  std::string kernel;
  std::string output;
  enum class Ellipsis : std::uint8_t { none, front, back } ellipsis = Ellipsis::none;
};

bool all_distinct_letters(const std::string& text) {
  std::string sorted = text;
  std::sort(sorted.begin(), sorted.end());
  const bool letters = std::all_of(sorted.begin(), sorted.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  return !text.empty() && letters &&
         std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

// Takes "..." off one end of `text`.
Equation::Ellipsis take_ellipsis(std::string& text) {
  if (text.rfind("...", 0) == 0) {
    text = text.substr(3);
    return Equation::Ellipsis::front;
  }
  if (text.size() > 3 && text.compare(text.size() - 3, 3, "...") == 0) {
    text.resize(text.size() - 3);
    return Equation::Ellipsis::back;
  }
  return Equation::Ellipsis::none;
}

std::optional<Equation> parse(std::string text) {
  std::erase(text, ' ');
  const std::size_t comma = text.find(',');
  const std::size_t arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    return std::nullopt;
  }
  Equation result{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
                  text.substr(arrow + 2)};
  result.ellipsis = take_ellipsis(result.input);
  if (take_ellipsis(result.output) != result.ellipsis) return std::nullopt;
  if (!all_distinct_letters(result.input) || !all_distinct_letters(result.kernel) ||
      !all_distinct_letters(result.output)) {
    return std::nullopt;
  }
  return result;
}

class EinsumDense : public TensorLayer {
 public:
  EinsumDense(LayerInfo info, json::Arguments& config)
      : TensorLayer(std::move(info), MaskRule::drop),
        activation_(make_activation(config.value("activation"), config.path_of("activation"),
                                    config.problems())),
        kernel_config_(read_weight(config, "kernel", "glorot_uniform")),
        bias_config_(read_weight(config, "bias", "zeros")),
        bias_axes_(config.optional_text("bias_axes").value_or("")) {
    const json::Value* equation = config.required("equation");
    if (equation != nullptr) {
      if (auto parsed = parse(equation->string)) {
        equation_ = std::move(*parsed);
      } else {
        config.problem(*equation, "equation",
                       "expected an einsum of two operands such as \"ab,bc->ac\" or "
                       "\"...x,xy->...y\", with distinct letters in each operand");
      }
    }
    read_output_shape(config);
    if (const json::Value* rank = config.value("lora_rank"); rank != nullptr && !rank->is_null()) {
      config.problem(*rank, "lora_rank", "expected null: low-rank adaptation is not supported");
    }
  }

 protected:
  void build(const Shape& input, WeightStore& store) override {
    expand_ellipsis(input);
    const std::map<char, std::int64_t> sizes = letter_sizes(input);
    Shape kernel;
    train::FanAxes axes;
    for (std::size_t i = 0; i < equation_.kernel.size(); ++i) {
      const char letter = equation_.kernel[i];
      const auto found = sizes.find(letter);
      if (found == sizes.end()) {
        fail(
            fmt::format("the size of kernel dimension '{}' is given neither by the input nor by "
                        "output_shape",
                        letter));
      }
      kernel.push_back(found->second);
      if (letter == full_input_.front()) fail("the kernel cannot have the batch dimension");
      const bool in_input = full_input_.find(letter) != std::string::npos;
      const bool in_output = full_output_.find(letter) != std::string::npos;
      if (in_input && !in_output) axes.input.push_back(static_cast<int>(i));
      if (in_output && !in_input) axes.output.push_back(static_cast<int>(i));
    }
    kernel_ = add_weight(store, "kernel", kernel, kernel_config_, {true, std::nullopt, axes});
    if (!bias_axes_.empty()) build_bias(sizes, store);
  }

  SymbolicTensor call(Pass& pass, SymbolicTensor x, SymbolicTensor /*mask*/) override {
    using ops::operator+;
    const std::string text = fmt::format("{},{}->{}", full_input_, equation_.kernel, full_output_);
    SymbolicTensor y = ops::einsum(text, x, pass.weight(kernel_, x.dtype()));
    if (bias_) y = y + pass.weight(bias_, y.dtype());
    return activation_ ? activation_(y) : y;
  }

 private:
  void read_output_shape(json::Arguments& config) {
    const json::Value* value = config.required("output_shape");
    if (value == nullptr) return;
    const std::vector<json::Value> single{*value};
    for (const json::Value& size : value->is_array() ? value->array : single) {
      if (size.is_null()) {
        output_shape_.push_back(-1);
      } else if (size.kind == json::Kind::integer && size.integer > 0 && size.integer <= kMaxSize) {
        output_shape_.push_back(size.integer);
      } else {
        config.problem(size, "output_shape", "expected sizes or null for each output dimension");
      }
    }
  }

  // Gives the dimensions under the ellipsis letters that the equation does not use.
  void expand_ellipsis(const Shape& input) {
    full_input_ = equation_.input;
    full_output_ = equation_.output;
    const bool fits = equation_.ellipsis == Equation::Ellipsis::none
                          ? input.rank() == equation_.input.size()
                          : input.rank() >= equation_.input.size();
    if (!fits) {
      fail(fmt::format("an input of shape {} does not fit \"{}\" of the equation", to_string(input),
                       equation_.input));
    }
    std::string hidden;
    const std::string used = equation_.input + equation_.kernel + equation_.output;
    for (char c = 'A'; hidden.size() < input.rank() - equation_.input.size(); ++c) {
      if (used.find(c) == std::string::npos) hidden += c;
    }
    const bool front = equation_.ellipsis == Equation::Ellipsis::front;
    full_input_ = front ? hidden + full_input_ : full_input_ + hidden;
    full_output_ = front ? hidden + full_output_ : full_output_ + hidden;
    hidden_ = hidden;
  }

  std::map<char, std::int64_t> letter_sizes(const Shape& input) const {
    std::map<char, std::int64_t> sizes;
    for (std::size_t i = 0; i < input.rank(); ++i) sizes[full_input_[i]] = input[i];
    // output_shape leaves out the batch, and dimensions under an ellipsis may be left out too: it
    // is read from the end, or from the front where the ellipsis is at the back.
    const std::string& letters = equation_.output;
    const bool back = equation_.ellipsis == Equation::Ellipsis::back;
    for (std::size_t i = 0; i < output_shape_.size(); ++i) {
      const std::size_t from_end = output_shape_.size() - i;
      std::optional<std::size_t> at;
      if (back && i + 1 < letters.size()) at = i + 1;
      if (!back && from_end <= letters.size()) at = letters.size() - from_end;
      if (!at || output_shape_[i] < 0) continue;
      const auto [known, added] = sizes.emplace(letters[*at], output_shape_[i]);
      if (!added && known->second != output_shape_[i]) {
        fail(fmt::format("output_shape gives dimension '{}' the size {}, the input {} gives it {}",
                         letters[*at], output_shape_[i], to_string(input), known->second));
      }
    }
    return sizes;
  }

  void build_bias(const std::map<char, std::int64_t>& sizes, WeightStore& store) {
    std::size_t first = equation_.output.size();
    for (const char letter : bias_axes_) {
      const std::size_t at = equation_.output.find(letter);
      if (at == std::string::npos) {
        fail(fmt::format("bias_axes: '{}' is no dimension of the output \"{}\"", letter,
                         equation_.output));
      }
      first = std::min(first, at);
    }
    Shape shape;
    for (const char letter : equation_.output.substr(first)) {
      shape.push_back(bias_axes_.find(letter) == std::string::npos ? 1 : sizes.at(letter));
    }
    if (equation_.ellipsis == Equation::Ellipsis::back) {
      for (std::size_t i = 0; i < hidden_.size(); ++i) shape.push_back(1);
    }
    bias_ = add_weight(store, "bias", shape, bias_config_);
  }

  Activation activation_;
  WeightConfig kernel_config_;
  WeightConfig bias_config_;
  std::string bias_axes_;
  Equation equation_{"a", "b", "a"};
  std::vector<std::int64_t> output_shape_;  // -1: given by the input
  std::string full_input_;                  // letters of all dimensions
  std::string full_output_;
  std::string hidden_;  // letters of the dimensions under the ellipsis
  Weight kernel_;
  Weight bias_;
};

}  // namespace

std::unique_ptr<Layer> make_einsum_dense(LayerInfo info, json::Arguments& config) {
  return std::make_unique<EinsumDense>(std::move(info), config);
}

}  // namespace tessera::models::layers
