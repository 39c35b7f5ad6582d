#pragma once

#include "controller/plan/pass.h"

namespace lockstep::plan {

// Largest spec.podTemplate, in bytes of compact JSON. In memory a template takes some twelve times
// as much, in the cache, in every plan and in each create that is being sent.
inline constexpr size_t kPodTemplateBytesMax = 64 * 1024;

// Returns a problem if the job's template is larger. A job with pods made from it may keep it until
// it is suspended: an earlier version accepted it.
Problems template_size_problems(const Pass& pass);

}  // namespace lockstep::plan
