#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "local/node/field_values.h"
#include "local/node/pod_plan.h"

namespace lockstep::local {

// Reads an object in the pod's namespace; `plural` is secrets or configmaps. Nullopt if it does not
// exist.
using ObjectReader =
    std::function<std::optional<Json>(const std::string& plural, const std::string& name)>;

using Environment = std::vector<std::pair<std::string, std::string>>;

// Where the environment and volumes of a pod's containers get their values, as in a kubelet.
struct PodSources {
  const Json& pod;
  const PodPlan& plan;
  const PodFacts& facts;
  const ObjectReader& read;
};

// Resolves `envFrom` first, then `env` in order; $(NAME) refers to earlier variables. kNotFound, in
// kubelet's words: a Secret, ConfigMap or key is missing. kInvalid: not supported by a local node.
Result<Environment> container_environment(const PodSources& sources,
                                          const ContainerPlan& container);

// Replaces $(NAME) if that variable exists, and $$ by $.
std::string expand(const std::string& text, const Environment& environment);

// Returns one value of a Secret (decoded) or ConfigMap; nullopt if the key is absent.
Result<std::optional<std::string>> data_value(const Json& object, const std::string& key);
// Returns all values, by key.
Result<std::map<std::string, std::string>> data_values(const Json& object);

}  // namespace lockstep::local
