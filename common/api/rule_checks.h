#pragma once

#include "common/api/expression.h"
#include "common/api/problems.h"
#include "common/api/training_job.h"

namespace lockstep {

// The parts of the rules (rules.h) that are not expressions.

// RFC 1035 label.
extern const Pattern kLabel;
inline constexpr char kLabelText[] =
    "lower-case letters, digits and hyphens, starting with a letter and ending with a letter or "
    "digit";
extern const Pattern kDomainPath;  // a/b
// A whole number above 0 with a unit. check_hang() and check_preemption() check its range.
extern const Pattern kDuration;
inline constexpr char kHangText[] = "a whole number with unit s, m or h, from 5s to 24h";
inline constexpr char kPreemptionText[] = "a whole number with unit s, m or h, from 1s to 24h";
extern const Pattern kLlamaPreset;
extern const Pattern kBertPreset;

// The rules that only we check. Each adds its problems, and relies on the fields that its row in
// the table names.
void check_metadata(const TrainingJob& job, Problems& problems);
void check_hang(const TrainingJob& job, Problems& problems);
void check_losses(const TrainingJob& job, Problems& problems);
void check_milestones(const TrainingJob& job, Problems& problems);
void check_muon(const TrainingJob& job, Problems& problems);
void check_preemption(const TrainingJob& job, Problems& problems);
void check_groups(const TrainingJob& job, Problems& problems);
void check_model(const TrainingJob& job, Problems& problems);
void check_normalisation(const TrainingJob& job, Problems& problems);
void check_mask_token(const TrainingJob& job, Problems& problems);
void check_attention_of_bert(const TrainingJob& job, Problems& problems);
void check_tokens(const TrainingJob& job, Problems& problems);
void check_servers(const TrainingJob& job, Problems& problems);
void check_command(const TrainingJob& job, Problems& problems);

}  // namespace lockstep
