#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep::local {

// One kind of object that the embedded server serves. A line of the table is all that a new kind
// needs, unless it has a behaviour of its own.
struct ResourceType {
  std::string_view group;    // "" for the core group
  std::string_view version;  // "v1"
  std::string_view plural;
  std::string_view kind;
  std::string_view singular;
  std::string_view short_name;  // "" if none
  bool namespaced = true;
  bool has_status = false;            // spec and status are written apart
  bool has_generation = false;        // metadata.generation counts changes of the spec
  bool update_needs_version = false;  // a PUT without resourceVersion is refused
  size_t newest_kept = 0;             // older objects are dropped; 0: none are
  // The type under which the objects are stored, where two groups serve the same ones (events).
  const ResourceType* stored_as = nullptr;

  const ResourceType& storage() const { return stored_as == nullptr ? *this : *stored_as; }
  std::string api_version() const;
  // "pods", "trainingjobs.lockstep.dev": as messages of errors name it.
  std::string qualified_plural() const;
};

// All types; they live as long as the process, so their addresses are their identities.
std::span<const ResourceType> resource_types();

// nullptr if this server has no such type.
const ResourceType* find_resource(std::string_view group, std::string_view version,
                                  std::string_view plural);

bool is_pod(const ResourceType& type);

}  // namespace lockstep::local
