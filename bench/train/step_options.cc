#include "bench/train/step_options.h"

#include <charconv>
#include <cstdlib>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

namespace lockstep::bench {
namespace {

using Setter = std::function<bool(StepOptions&, std::string_view value)>;

template <class T>
bool read_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

template <class T>
Setter number(T StepOptions::*member) {
  return [member](StepOptions& options, std::string_view value) {
    return read_number(value, options.*member);
  };
}

Setter text(std::string StepOptions::*member) {
  return [member](StepOptions& options, std::string_view value) {
    options.*member = value;
    return !value.empty();
  };
}

bool set_precision(StepOptions& options, std::string_view value) {
  options.precision = value == "bf16" ? kernels::Precision::kBf16 : kernels::Precision::kF32;
  return value == "bf16" || value == "fp32";
}

bool set_attention(StepOptions& options, std::string_view value) {
  options.attention = value == "cudnn" ? kernels::AttentionBy::kCudnn : kernels::AttentionBy::kOwn;
  return value == "cudnn" || value == "own";
}

bool set_device(StepOptions& options, std::string_view value) {
  options.device =
      value == "cuda" ? kernels::Device{kernels::DeviceType::kCuda, 0} : kernels::Device{};
  return value == "cuda" || value == "cpu";
}

bool set_curve(StepOptions& options, std::string_view value) {
  options.curve = value == "yes";
  return value == "yes" || value == "no";
}

bool set_exchange(StepOptions& options, std::string_view value) {
  const Result<Exchange> exchange = parse_exchange(value);
  if (exchange.ok()) options.exchange = *exchange;
  return exchange.ok();
}

bool set_transport(StepOptions& options, std::string_view value) {
  options.shares_memory = value == "shared";
  return value == "shared" || value == "tcp";
}

bool set_algorithms(StepOptions& options, std::string_view value) {
  using enum kernels::blas::AlgorithmChoice;
  options.algorithms = value == "measured" ? kMeasured : kFirst;
  return value == "measured" || value == "first";
}

const std::map<std::string_view, Setter>& setters() {
  static const std::map<std::string_view, Setter> kSetters = {
      {"--preset", text(&StepOptions::preset)},
      {"--precision", set_precision},
      {"--attention", set_attention},
      {"--device", set_device},
      {"--threads", number(&StepOptions::threads)},
      {"--ranks", number(&StepOptions::ranks)},
      {"--layers", number(&StepOptions::layers)},
      {"--width", number(&StepOptions::width)},
      {"--heads", number(&StepOptions::heads)},
      {"--vocabulary", number(&StepOptions::vocabulary)},
      {"--batch", number(&StepOptions::batch)},
      {"--accumulate", number(&StepOptions::accumulate)},
      {"--context", number(&StepOptions::context)},
      {"--warmup", number(&StepOptions::warmup)},
      {"--steps", number(&StepOptions::steps)},
      {"--tokens", text(&StepOptions::tokens)},
      {"--weights", text(&StepOptions::weights)},
      {"--rate", number(&StepOptions::rate)},
      {"--peak", number(&StepOptions::peak)},
      {"--curve", set_curve},
      {"--timeline", text(&StepOptions::timeline)},
      {"--exchange", set_exchange},
      {"--transport", set_transport},
      {"--algorithms", set_algorithms}};
  return kSetters;
}

}  // namespace

Result<StepOptions> parse_step_options(int argc, char** argv) {
  StepOptions options;
  for (int i = 1; i < argc; i += 2) {
    const auto setter = setters().find(argv[i]);
    if (setter == setters().end()) return invalid("unknown flag " + std::string(argv[i]));
    if (i + 1 == argc || !setter->second(options, argv[i + 1])) {
      return invalid(std::string(argv[i]) + ": a value in range expected, got " +
                     (i + 1 == argc ? "nothing" : argv[i + 1]));
    }
  }
  if (options.threads < 1 || options.ranks < 1 || options.ranks > 4 || options.steps < 1 ||
      options.accumulate < 1) {
    return invalid("--threads, --steps and --accumulate from 1 and --ranks from 1 to 4 expected");
  }
  return options;
}

Result<Workload> workload_of(const StepOptions& options) {
  Workload work;
  if (options.preset == "kjv") {
    work = {{4, 128, 4, 128, 256}, 16 / options.ranks, 128};
  } else if (options.preset == "tiny") {
    work = {{2, 32, 2, 16, 256}, 4 / options.ranks, 16};
  } else {
    TRY_ASSIGN(work.config, model_preset(options.preset));
    work.batch = 4;
    work.context = 64;
  }
  for (const auto& [value, member] : {std::pair{options.layers, &ModelConfig::layers},
                                      {options.width, &ModelConfig::width},
                                      {options.heads, &ModelConfig::heads},
                                      {options.vocabulary, &ModelConfig::vocabulary}}) {
    if (value > 0) work.config.*member = value;
  }
  if (work.config.width % work.config.heads != 0) {
    return invalid("--width: a multiple of the " + std::to_string(work.config.heads) +
                   " heads expected, got " + std::to_string(work.config.width));
  }
  if (options.batch > 0) work.batch = options.batch;
  if (options.context > 0) work.context = options.context;
  if (work.context <= work.config.context) return work;
  return invalid("--context: at most " + std::to_string(work.config.context) + " expected, got " +
                 std::to_string(work.context));
}

}  // namespace lockstep::bench
