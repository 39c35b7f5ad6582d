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

// Reads an object of the pod's namespace: `plural` is secrets or configmaps. Nullopt: there is
// none.
using ObjectReader =
    std::function<std::optional<Json>(const std::string& plural, const std::string& name)>;

using Environment = std::vector<std::pair<std::string, std::string>>;

// What a pod's containers are told, as a kubelet resolves it.
struct PodSources {
  const Json& pod;
  const PodPlan& plan;
  const PodFacts& facts;
  const ObjectReader& read;
};

// `envFrom` first, then `env` in its order, with $(NAME) of what comes before replaced. kNotFound:
// a Secret, ConfigMap or key is missing (kubelet's words); kInvalid: a local node can't do it.
Result<Environment> container_environment(const PodSources& sources,
                                          const ContainerPlan& container);

// Replaces $(NAME) where there is such a variable, and $$ by $.
std::string expand(const std::string& text, const Environment& environment);

// The value of a key of a Secret (decoded) or ConfigMap; nullopt where it is absent.
Result<std::optional<std::string>> data_value(const Json& object, const std::string& key);
// All of them.
Result<std::map<std::string, std::string>> data_values(const Json& object);

}  // namespace lockstep::local
