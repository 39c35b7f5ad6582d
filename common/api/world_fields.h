#pragma once

#include "common/api/codec.h"
#include "common/api/world_assignment.h"

namespace lockstep {

template <>
struct Schema<WorldNode> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "index", .required = true}, &WorldNode::index);
    visit(Field{.name = "incarnation"}, &WorldNode::incarnation);
    visit(Field{.name = "host", .required = true}, &WorldNode::host);
    visit(Field{.name = "port", .required = true}, &WorldNode::port);
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
