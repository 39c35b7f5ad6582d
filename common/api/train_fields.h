#pragma once

#include "common/api/codec.h"
#include "common/api/training_job.h"

namespace lockstep {

// The fields of spec.train; part of the list in training_job_fields.h.

inline constexpr double kBatchMax = 1 << 20;
inline constexpr double kStepsMax = 1e9;
inline constexpr size_t kPathBytesMax = 1024;

template <>
struct Schema<WeightsSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "path",
                .meaning = "A safetensors file of a GPT-2 or Llama as Hugging Face stores it, with "
                           "the model's dimensions, or the index of several "
                           "(model.safetensors.index.json); in the pod, or relative to the YAML's "
                           "folder with lockstep run. Empty: train.seed makes the parameters.",
                .bytes_max = kPathBytesMax},
          &WeightsSpec::path);
  }
};

template <>
struct Schema<RopeScalingSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "factor",
                .meaning = "By how much low frequencies are slowed down; 0 takes the preset's, "
                           "else 1 (not at all).",
                .minimum = 0,
                .maximum = 1e6},
          &RopeScalingSpec::factor);
    visit(Field{.name = "lowFrequencyFactor",
                .meaning = "Frequencies that turn less often than this within originalContext are "
                           "slowed down by all of the factor; 0 takes the preset's, else 1.",
                .minimum = 0,
                .maximum = 1e6},
          &RopeScalingSpec::lowFrequencyFactor);
    visit(Field{.name = "highFrequencyFactor",
                .meaning = "Those that turn more often than this stay as they are; 0 takes the "
                           "preset's, else 4.",
                .minimum = 0,
                .maximum = 1e6},
          &RopeScalingSpec::highFrequencyFactor);
    visit(Field{.name = "originalContext",
                .meaning = "The context before the frequencies were stretched; 0 takes the "
                           "preset's, else 8192.",
                .minimum = 0,
                .maximum = 1 << 20},
          &RopeScalingSpec::originalContext);
  }
};

template <>
struct Schema<ModelSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "preset",
                .meaning = "A known size; the fields below then override single dimensions of it.",
                .choices = "gpt2-124m gpt2-350m gpt2-774m gpt2-1.5b llama-2-7b llama-2-13b "
                           "llama-2-70b llama-3-8b llama-3-70b llama-3.1-8b llama-3.1-70b "
                           "llama-3.1-405b llama-3.2-1b llama-3.2-3b"},
          &ModelSpec::preset);
    visit(Field{.name = "family",
                .meaning = "The architecture of the model. Empty takes the preset's, else gpt2.",
                .choices = "gpt2 llama"},
          &ModelSpec::family);
    visit(Field{.name = "layers",
                .meaning = "Transformer blocks; 0 takes the preset's.",
                .minimum = 0,
                .maximum = 1024},
          &ModelSpec::layers);
    visit(Field{.name = "width",
                .meaning = "Channels of the residual stream; 0 takes the preset's. A multiple of "
                           "heads.",
                .minimum = 0,
                .maximum = 65536},
          &ModelSpec::width);
    visit(Field{.name = "heads",
                .meaning = "Attention heads; 0 takes the preset's. A multiple of "
                           "parallelism.tensor.",
                .minimum = 0,
                .maximum = 1024},
          &ModelSpec::heads);
    visit(Field{.name = "context",
                .meaning = "Tokens in a sequence; 0 takes the preset's.",
                .minimum = 0,
                .maximum = 1 << 20},
          &ModelSpec::context);
    visit(Field{.name = "vocabulary",
                .meaning = "Token ids; 0 takes the preset's, else what the tokenizer needs (bytes: "
                           "256).",
                .minimum = 0,
                .maximum = 1 << 24},
          &ModelSpec::vocabulary);
    visit(
        Field{.name = "hiddenWidth",
              .meaning = "Values between the MLP's products; 0 takes the preset's, else 4 x width "
                         "of a gpt2, and of a llama 8/3 x width, up to a multiple of 256.",
              .minimum = 0,
              .maximum = 1 << 18},
        &ModelSpec::hiddenWidth);
    visit(Field{.name = "head",
                .meaning = "Whether the head's weights are the token embedding (tied) or its own. "
                           "Empty takes the preset's, else tied of a gpt2, untied of a llama.",
                .choices = "tied untied"},
          &ModelSpec::head);
    visit(
        Field{.name = "kvHeads",
              .meaning = "Heads of keys and values, each shared by heads / kvHeads of queries, of "
                         "a llama; 0 takes the preset's, else heads. A multiple of "
                         "parallelism.tensor.",
              .minimum = 0,
              .maximum = 1024},
        &ModelSpec::kvHeads);
    visit(Field{.name = "ropeBase",
                .meaning = "Base of the rotary frequencies of a llama (rope_theta); 0 takes the "
                           "preset's, else 10000.",
                .minimum = 0,
                .maximum = 1e12},
          &ModelSpec::ropeBase);
    visit(Field{.name = "ropeScaling",
                .meaning = "How a llama's rotary frequencies are stretched to a longer context (as "
                           "Llama 3.1's)."},
          &ModelSpec::ropeScaling);
    visit(Field{.name = "normEpsilon",
                .meaning = "Added to the mean square in a llama's norms; 0 takes the preset's, "
                           "else 0.00001.",
                .minimum = 0,
                .maximum = 1},
          &ModelSpec::normEpsilon);
    visit(Field{.name = "weights",
                .meaning = "The parameters that training begins with; a checkpoint of the job goes "
                           "before them."},
          &ModelSpec::weights);
  }
};

template <>
struct Schema<DataSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "path",
                .meaning = "A file, or a folder whose files are read in the order of their names; "
                           "in the pod, or relative to the YAML's folder with lockstep run.",
                .required = true,
                .bytes_max = kPathBytesMax},
          &DataSpec::path);
    visit(Field{.name = "tokenizer",
                .meaning = "bytes makes one token of each byte; u16 and u32 files hold token ids, "
                           "little-endian.",
                .choices = "bytes u16 u32"},
          &DataSpec::tokenizer);
    visit(Field{.name = "validationFraction",
                .meaning = "The last part of the data, held back for validation.",
                .minimum = 0,
                .maximum = 0.5},
          &DataSpec::validationFraction);
    visit(Field{.name = "seed",
                .meaning = "Seed of the order in which samples are drawn.",
                .minimum = 0},
          &DataSpec::seed);
  }
};

template <>
struct Schema<BatchSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "global",
                .meaning = "Sequences of one optimizer step, over all ranks.",
                .minimum = 1,
                .maximum = kBatchMax},
          &BatchSpec::global);
    visit(Field{.name = "micro",
                .meaning = "Sequences of one forward pass on one rank; gradients accumulate until "
                           "global is reached. 0 takes a rank's whole share.",
                .minimum = 0,
                .maximum = kBatchMax},
          &BatchSpec::micro);
  }
};

template <>
struct Schema<OptimizerSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "name",
                .meaning = "The rule by which parameters are updated.",
                .choices = "adamw"},
          &OptimizerSpec::name);
    visit(Field{.name = "learningRate",
                .meaning = "The learning rate when the warm-up is over.",
                .minimum = 0,
                .maximum = 100,
                .above_minimum = true},
          &OptimizerSpec::learningRate);
    visit(Field{.name = "schedule",
                .meaning = "How the learning rate goes on after the warm-up.",
                .choices = "constant linear cosine"},
          &OptimizerSpec::schedule);
    visit(Field{.name = "warmupSteps",
                .meaning = "Steps in which the learning rate rises from 0.",
                .minimum = 0,
                .maximum = kStepsMax},
          &OptimizerSpec::warmupSteps);
    visit(
        Field{.name = "minimumLearningRate",
              .meaning = "The learning rate at which linear and cosine end; at most learningRate.",
              .minimum = 0,
              .maximum = 100},
        &OptimizerSpec::minimumLearningRate);
    visit(Field{.name = "beta1",
                .meaning = "Decay of the gradient's running mean.",
                .minimum = 0,
                .maximum = 0.999999},
          &OptimizerSpec::beta1);
    visit(Field{.name = "beta2",
                .meaning = "Decay of the squared gradient's running mean.",
                .minimum = 0,
                .maximum = 0.999999},
          &OptimizerSpec::beta2);
    visit(Field{.name = "epsilon",
                .meaning = "Added to the denominator of the update.",
                .minimum = 0,
                .maximum = 1,
                .above_minimum = true},
          &OptimizerSpec::epsilon);
    visit(Field{.name = "weightDecay",
                .meaning = "Decay of the weights, decoupled from the gradient; of matrices alone.",
                .minimum = 0,
                .maximum = 10},
          &OptimizerSpec::weightDecay);
    visit(Field{.name = "clipNorm",
                .meaning = "Bound of the norm of all gradients together; 0 is none.",
                .minimum = 0,
                .maximum = 1e9},
          &OptimizerSpec::clipNorm);
  }
};

template <>
struct Schema<ValidationSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "everySteps",
                .meaning = "Steps from one validation to the next; 0 validates at the end alone. "
                           "Needs data.validationFraction above 0.",
                .minimum = 0,
                .maximum = kStepsMax},
          &ValidationSpec::everySteps);
  }
};

template <>
struct Schema<SampleSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "tokens",
                .meaning = "Tokens generated after the last step; 0 is none.",
                .minimum = 0,
                .maximum = 65536},
          &SampleSpec::tokens);
    visit(Field{.name = "prompt", .meaning = "The text that is continued."}, &SampleSpec::prompt);
    visit(Field{.name = "temperature",
                .meaning = "How freely tokens are drawn: below 1 sharpens the distribution, 0 "
                           "always takes the likeliest.",
                .minimum = 0,
                .maximum = 100},
          &SampleSpec::temperature);
    visit(Field{.name = "topK",
                .meaning = "How many of the likeliest tokens are drawn from; 0 is all of them.",
                .minimum = 0,
                .maximum = 1 << 24},
          &SampleSpec::topK);
    visit(Field{.name = "seed", .meaning = "Seed of the draws.", .minimum = 0}, &SampleSpec::seed);
  }
};

template <>
struct Schema<TrainSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "model", .meaning = "What is trained."}, &TrainSpec::model);
    visit(Field{.name = "data", .meaning = "What it is trained on.", .required = true},
          &TrainSpec::data);
    visit(Field{.name = "steps",
                .meaning = "Updates of the parameters.",
                .minimum = 1,
                .maximum = kStepsMax},
          &TrainSpec::steps);
    visit(Field{.name = "batch", .meaning = "Sequences of one step."}, &TrainSpec::batch);
    visit(Field{.name = "optimizer", .meaning = "How the parameters are updated."},
          &TrainSpec::optimizer);
    visit(Field{.name = "precision",
                .meaning = "Precision of matrix products; parameters and sums are kept in fp32.",
                .choices = "fp32 bf16"},
          &TrainSpec::precision);
    visit(Field{.name = "rounding",
                .meaning = "How the bf16 copies of the fp32 parameters, which products read with "
                           "precision: bf16, are rounded: to the nearest even, or stochastically, "
                           "up or down with the odds of what is cut off, drawn from seed, step "
                           "and element, so that copies are right on average.",
                .choices = "nearest stochastic"},
          &TrainSpec::rounding);
    visit(Field{.name = "recompute",
                .meaning = "What backward computes again instead of having it kept, to save "
                           "memory: what norms and GELU give, or whole blocks of the model but "
                           "their inputs. The results are the same, but for the last bits of ops "
                           "with precision bf16 on a GPU.",
                .choices = "none ops blocks"},
          &TrainSpec::recompute);
    visit(Field{.name = "attention",
                .meaning = "Whose kernels compute attention on GPUs with precision bf16: "
                           "Lockstep's own, cuDNN's (heads of 64 or 128; backward needs memory "
                           "for a score of each pair of tokens), or whichever of the two is "
                           "measured to be faster when the job begins, which is kept in "
                           "checkpoint.path. They differ in the last bits.",
                .choices = "own cudnn auto"},
          &TrainSpec::attention);
    visit(Field{.name = "seed",
                .meaning = "Seed of the initial parameters, and of stochastic rounding.",
                .minimum = 0},
          &TrainSpec::seed);
    visit(Field{.name = "bucketBytes",
                .meaning = "Bytes of gradients that are all-reduced together.",
                .minimum = 1024,
                .maximum = 1 << 30},
          &TrainSpec::bucketBytes);
    visit(Field{.name = "validation", .meaning = "When the held back data is scored."},
          &TrainSpec::validation);
    visit(Field{.name = "sample", .meaning = "Text generated at the end."}, &TrainSpec::sample);
  }
};

}  // namespace lockstep
