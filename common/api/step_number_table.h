#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "common/api/codec.h"
#include "common/api/step_numbers.h"
#include "common/base/json.h"

namespace lockstep {

// The table of a step's numbers: one row for each member of StepNumbers. Whatever passes numbers on
// walks it: a line of metrics.jsonl, the state that an agent sends, status.progress, /metrics, the
// file of a command's program, and what the command line shows.

// How the agent's /metrics shows a number of the built-in loop.
enum class MetricScope : uint8_t {
  kJob,   // the same on all ranks: a gauge for each node
  kNode,  // a gauge: the job's number times the node's share of the processes
  kRank,  // a gauge for each rank, with its label
  kCount  // a counter: how much the number has grown on this node, over all rounds
};

struct MetricLabel {
  const char* name = nullptr;
  const char* value = nullptr;
};

// Rows of the same metric follow each other and differ in their labels.
struct StepMetric {
  const char* name = nullptr;          // nullptr: not in /metrics
  const char* help = nullptr;          // for the built-in loop; nullptr: not from it
  const char* command_help = nullptr;  // for a command, a gauge for each rank; nullptr: not from it
  MetricScope scope = MetricScope::kJob;
  std::array<MetricLabel, 2> labels{};
};

enum class NumberStyle : uint8_t {
  kThreeDecimals,  // 1.934
  kFourDigits,     // 1.934, 12.34
  kRate,           // 23.1k; not shown while it is 0
  kWhole,          // 1934
  kPercent         // 41.2 for 0.412
};

// How the command line shows a number.
struct ShownNumber {
  std::string_view text = {};  // "loss {}"; empty: not shown
  NumberStyle style = NumberStyle::kRate;
};

struct StepNumber {
  using Count = std::optional<int64_t> StepNumbers::*;
  using Value = std::optional<double> StepNumbers::*;

  std::variant<Count, Value> member;
  // Path in a line of metrics.jsonl: "loss", "seconds.data". Empty: not there.
  std::string_view file = {};
  // Field of an agent's state and of status.progress. Without a name: not there.
  Field status = {};
  int status_digits = 0;           // significant digits in status.progress; 0: all
  bool may_be_unknown = false;     // a count: left out of the status while unknown, instead of 0
  bool from_command = false;       // a command's program reports it, by its name in the status
  bool is_summed = false;          // a command's number is the sum over the ranks that report it
  StepMetric metric = {};          // in the agent's /metrics
  ShownNumber run = {};            // in the line of `lockstep run`
  std::string_view page_row = {};  // the row of `lockstep status` that has it
  ShownNumber page = {};
};

std::span<const StepNumber> step_number_table();

// Returns the number as a double; nothing if it is unknown or not finite.
std::optional<double> value_of(const StepNumber& number, const StepNumbers& numbers);

// Overwrites `numbers` with all that `newer` knows.
void update(StepNumbers& numbers, const StepNumbers& newer);

// Adds up what is summed over the ranks of a command: samples, tokens and their rates. A sum of
// integers stays within the API's range.
void add_counts(const StepNumbers& others, StepNumbers& numbers);

// Returns what an agent's state and status.progress contain. A number that is not finite is left
// out; a count that is unknown is 0, unless it may be.
StepNumbers numbers_in_status(const StepNumbers& numbers);

// A line of metrics.jsonl. Writing leaves out what is unknown or not finite; reading leaves out
// what is missing or of another type.
Json metrics_line(const StepNumbers& numbers);
StepNumbers numbers_from_metrics_line(const Json& line);

}  // namespace lockstep
