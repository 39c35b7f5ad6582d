#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/expression.h"
#include "common/api/training_job.h"

namespace lockstep {

// The rules for a TrainingJob's spec that the limits of single fields (training_job_fields.h)
// cannot express. validate(), the CRD's CEL rules and the controller's comparison of fixed fields
// are all derived from these tables.

// A condition on each object at `scope`. validate() and API servers evaluate `holds`, so `holds`
// must not refuse what only this version lacks: another version's server may have it.
//
// The message is `<path of field>: <text>`. In `text`, each "{}" is the next of `values`, strings
// in quotes; "{text}" is a string without them. A server cannot show values: its message leaves out
// every part in brackets, and "{} is ..." becomes "<field> is ...".
//
// A rule without `holds` is checked only here, by `check`: CEL cannot express it at a bounded cost,
// it needs the presets' dimensions, or it is about this version.
struct Rule {
  std::string scope{};  // "", "spec.train", "spec.failure.rules[]"
  std::string field{};  // below scope; may be empty
  std::optional<Expression> holds{};
  std::string text{};
  std::vector<Expression> values{};

  std::function<void(const TrainingJob& job, Problems& problems)> check{};
  std::vector<std::string> reads{};  // the fields that `check` relies on to be in their ranges
};

// Returns the rules in the order in which problems are reported.
std::span<const Rule> spec_rules();

// Returns what is wrong with `self`, the object at `path`, which the rule refuses.
std::string problem_of(const Rule& rule, const std::string& path, const Json& self);
// Returns the message of an API server for any object that the rule refuses.
std::string server_message(const Rule& rule);

// A field of spec that cannot change while the job has pods, since pods and assignments are made
// from it. The controller compares all of its value; an API server compares only some fields.
struct FixedField {
  std::string_view name;            // of train, each member is compared apart
  std::string_view on_server = {};  // "a.b a.c": paths below spec of numbers and strings
};
std::span<const FixedField> fixed_rules();

// The text of the problem that a fixed field changed.
inline constexpr std::string_view kFixedText =
    "can't change while the job has pods; restore the old value, or set spec.suspend: true first";

}  // namespace lockstep
