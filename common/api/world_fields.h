#pragma once

#include "common/api/codec.h"
#include "common/api/training_job_fields.h"
#include "common/api/world_assignment.h"

namespace lockstep {

inline std::string_view enum_name(MemberRole role) {
  return member_role_name(role);
}
inline bool enum_from_name(std::string_view name, MemberRole& role) {
  for (const MemberRole known : {MemberRole::kWorker, MemberRole::kServer}) {
    if (name != member_role_name(known)) continue;
    role = known;
    return true;
  }
  return false;
}

template <>
struct Schema<WorldMember> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "index", .required = true}, &WorldMember::index);
    visit(Field{.name = "incarnation"}, &WorldMember::incarnation);
    visit(Field{.name = "host", .required = true}, &WorldMember::host);
    visit(Field{.name = "port", .required = true}, &WorldMember::port);
    visit(Field{.name = "role"}, &WorldMember::role);
  }
};

template <>
struct Schema<WorldLayout> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit_sharing<WorldLayout>(visit);
    visit(Field{.name = "schedule", .choices = kPipelineSchedules}, &WorldLayout::schedule);
    visit(Field{.name = "virtualStages", .minimum = 1, .maximum = 1024},
          &WorldLayout::virtualStages);
  }
};

template <>
struct Schema<WorldGroup> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "name", .required = true}, &WorldGroup::name);
    visit(Field{.name = "ranks", .required = true}, &WorldGroup::ranks);
  }
};

// Has its own codec because reading also validates.
template <>
struct Schema<WorldAssignment> {
  static Json write(const WorldAssignment& world) { return to_json(world); }
  static Result<WorldAssignment> read(const Json& document) { return world_from_json(document); }
};

}  // namespace lockstep
