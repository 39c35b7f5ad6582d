#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "controller/kube/kube_client.h"
#include "controller/loop/api_client.h"

namespace lockstep::bench {

// Makes the texts that a real server and real agents send, in size and shape.

using PodTemplates = std::map<std::string, Json>;  // spec.podTemplate by the job's name

// Returns the text of an object, or of a page of them, as a server sends it: with managedFields,
// and pods with the containers, volumes and tolerations that the simulated store leaves out.
std::string served_text(const PodTemplates& templates, loop::ResourceType type, const Json& body,
                        bool is_list);
// Parses such a text as the controller's client does.
loop::SharedJson received(const std::string& text, const kube::ReplyShape& shape);

// Returns the status that kubelet and scheduler write for a pod that runs.
Json running_status(const std::string& ip, WallTime now);

// Returns the workers of one node that begin a round.
std::vector<WorkerState> new_workers(const WorldAssignment& world, int64_t place);
// Returns what an agent reports of training after its first steps.
ProgressStatus first_progress();
HoldingsStatus holdings();

}  // namespace lockstep::bench
