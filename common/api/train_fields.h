#pragma once

#include "common/api/codec.h"
#include "common/api/training_job.h"
#include "common/layout/convnet_config.h"
#include "common/layout/mlp_config.h"

namespace lockstep {

// The fields of spec.train; part of the list in training_job_fields.h.

inline constexpr double kBatchMax = 1 << 20;
inline constexpr double kStepsMax = 1e9;
inline constexpr size_t kPathBytesMax = 1024;

template <>
struct Schema<WeightsSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(
        Field{
            .name = "path",
            .meaning =
                "A safetensors file of a GPT-2, Llama or BERT as Hugging Face stores it, with the "
                "model's dimensions, or the index of several such files "
                "(model.safetensors.index.json). A path in the pod or, with lockstep run, "
                "relative to the YAML's folder. Empty means random parameters from train.seed.",
            .bytes_max = kPathBytesMax},
        &WeightsSpec::path);
  }
};

template <>
struct Schema<RopeScalingSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "factor",
                .meaning = "Factor by which low frequencies are slowed down; 0 means the preset's, "
                           "else 1 (not at all).",
                .minimum = 0,
                .maximum = 1e6},
          &RopeScalingSpec::factor);
    visit(Field{.name = "lowFrequencyFactor",
                .meaning = "Frequencies that rotate less often than this within originalContext "
                           "are slowed down by the whole factor; 0 means the preset's, else 1.",
                .minimum = 0,
                .maximum = 1e6},
          &RopeScalingSpec::lowFrequencyFactor);
    visit(Field{.name = "highFrequencyFactor",
                .meaning = "Frequencies that rotate more often than this within originalContext do "
                           "not change; 0 means the preset's, else 4.",
                .minimum = 0,
                .maximum = 1e6},
          &RopeScalingSpec::highFrequencyFactor);
    visit(
        Field{
            .name = "originalContext",
            .meaning =
                "The context before the frequencies were scaled; 0 means the preset's, else 8192.",
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
                .meaning = "A known model; the other fields override single dimensions of it.",
                .choices = "gpt2-124m gpt2-350m gpt2-774m gpt2-1.5b llama-2-7b llama-2-13b "
                           "llama-2-70b llama-3-8b llama-3-70b llama-3.1-8b llama-3.1-70b "
                           "llama-3.1-405b llama-3.2-1b llama-3.2-3b bert-tiny bert-mini "
                           "bert-small bert-base bert-large lenet5 vgg11 vgg16 resnet20 "
                           "resnet18 resnet50"},
          &ModelSpec::preset);
    visit(Field{.name = "family",
                .meaning = "The architecture of the model: a transformer (gpt2, llama, or bert, "
                           "which predicts masked tokens) for text, a "
                           "multi-layer perceptron (mlp) for tables, a convolutional network "
                           "(convnet) for images, which needs a preset, or a model of click logs "
                           "(logisticRegression, factorizationMachine, wideAndDeep, "
                           "deepFactorizationMachine). Empty means the preset's, else gpt2. Each "
                           "has fields of its own, as their text says; all others "
                           "are a transformer's.",
                .choices = "gpt2 llama bert mlp convnet logisticRegression factorizationMachine "
                           "wideAndDeep deepFactorizationMachine"},
          &ModelSpec::family);
    visit(Field{.name = "layers",
                .meaning = "Transformer blocks; 0 means the preset's.",
                .minimum = 0,
                .maximum = 1024},
          &ModelSpec::layers);
    visit(Field{.name = "width",
                .meaning =
                    "Channels of the residual stream; 0 means the preset's. A multiple of heads.",
                .minimum = 0,
                .maximum = 65536},
          &ModelSpec::width);
    visit(
        Field{.name = "heads",
              .meaning = "Attention heads; 0 means the preset's. A multiple of parallelism.tensor.",
              .minimum = 0,
              .maximum = 1024},
        &ModelSpec::heads);
    visit(Field{.name = "context",
                .meaning = "Tokens per sequence; 0 means the preset's.",
                .minimum = 0,
                .maximum = 1 << 20},
          &ModelSpec::context);
    visit(Field{.name = "vocabulary",
                .meaning = "Number of token ids; 0 means the preset's, else what the tokenizer "
                           "needs (bytes: 256, and for bert one more, the mask token).",
                .minimum = 0,
                .maximum = 1 << 24},
          &ModelSpec::vocabulary);
    visit(Field{.name = "hiddenWidth",
                .meaning = "Hidden size of the MLP; 0 means the preset's, else 4 x width for gpt2 "
                           "and bert, and for llama 8/3 x width, rounded up to a multiple of 256.",
                .minimum = 0,
                .maximum = 1 << 18},
          &ModelSpec::hiddenWidth);
    visit(
        Field{.name = "head",
              .meaning = "Whether the head uses the token embedding's weights (tied) or its own. "
                         "Empty means the preset's, else untied for llama and tied for the others.",
              .choices = "tied untied"},
        &ModelSpec::head);
    visit(Field{.name = "kvHeads",
                .meaning =
                    "Key and value heads of a llama, each shared by heads / kvHeads query heads; 0 "
                    "means the preset's, else heads. A multiple or a divisor of "
                    "parallelism.tensor.",
                .minimum = 0,
                .maximum = 1024},
          &ModelSpec::kvHeads);
    visit(Field{.name = "ropeBase",
                .meaning = "Base of a llama's rotary frequencies (rope_theta); 0 means the "
                           "preset's, else 10000.",
                .minimum = 0,
                .maximum = 1e12},
          &ModelSpec::ropeBase);
    visit(
        Field{.name = "normEpsilon",
              .meaning = "Epsilon added to the mean square in a llama's norms, or to the variance "
                         "in a bert's; 0 means the preset's, else 0.00001 for llama and 1e-12 "
                         "for bert.",
              .minimum = 0,
              .maximum = 1},
        &ModelSpec::normEpsilon);
    visit(Field{.name = "inputs",
                .meaning = "Values of a sample of an mlp: the columns of data.features.",
                .minimum = 0,
                .maximum = static_cast<double>(kMlpWidthMax)},
          &ModelSpec::inputs);
    visit(Field{.name = "hidden",
                .meaning = "Widths of an mlp's hidden layers; none means a linear model. Of a "
                           "wideAndDeep or deepFactorizationMachine none means 64 and 32.",
                .minimum = 1,
                .maximum = static_cast<double>(kMlpWidthMax),
                .items_max = kMlpHiddenMax},
          &ModelSpec::hidden);
    visit(Field{.name = "outputs",
                .meaning = "Classes, or predicted values of a sample, of an mlp; classes of a "
                           "convnet, of which 0 means the preset's.",
                .minimum = 0,
                .maximum = static_cast<double>(kMlpWidthMax)},
          &ModelSpec::outputs);
    visit(Field{.name = "activation",
                .meaning = "Activation of an mlp's hidden layers; gelu is its tanh approximation. "
                           "Empty means relu.",
                .choices = "relu gelu tanh"},
          &ModelSpec::activation);
    visit(Field{.name = "task",
                .meaning = "What an mlp learns: classification (the loss is the cross-entropy) or "
                           "regression (the mean squared error). Empty means classification.",
                .choices = "classification regression"},
          &ModelSpec::task);
    visit(Field{.name = "imageHeight",
                .meaning = "Pixels of a convnet's images, from top to bottom; 0 means the "
                           "preset's: 28 for lenet5, 224 for resnet18 and resnet50, else 32.",
                .minimum = 0,
                .maximum = static_cast<double>(kImageEdgeMax)},
          &ModelSpec::imageHeight);
    visit(Field{.name = "imageWidth",
                .meaning = "Pixels of a convnet's images, from left to right; 0 means the "
                           "preset's, as many as from top to bottom.",
                .minimum = 0,
                .maximum = static_cast<double>(kImageEdgeMax)},
          &ModelSpec::imageWidth);
    visit(Field{.name = "imageChannels",
                .meaning = "Channels of a convnet's images; 0 means the preset's: 1 for lenet5, "
                           "else 3.",
                .minimum = 0,
                .maximum = static_cast<double>(kImageChannelsMax)},
          &ModelSpec::imageChannels);
    visit(Field{.name = "batchNorm",
                .meaning = "Over which samples a convnet's batch normalisation takes its "
                           "statistics: a micro-batch of all data-parallel ranks together "
                           "(synchronized), so that they compute what one rank would, or of each "
                           "rank (local). Empty means synchronized.",
                .choices = "synchronized local"},
          &ModelSpec::batchNorm);
    visit(Field{.name = "factors",
                .meaning = "Numbers that a factorizationMachine, wideAndDeep or "
                           "deepFactorizationMachine has for each key, in addition to its weight; "
                           "0 means 8.",
                .minimum = 0,
                .maximum = 1024},
          &ModelSpec::factors);
    visit(Field{.name = "ropeScaling",
                .meaning = "How a llama's rotary frequencies are scaled to a longer context (as in "
                           "Llama 3.1)."},
          &ModelSpec::ropeScaling);
    visit(Field{.name = "weights",
                .meaning = "Initial parameters; a checkpoint of the job takes precedence."},
          &ModelSpec::weights);
  }
};

template <>
struct Schema<DataSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(
        Field{.name = "path",
              .meaning = "Text for a transformer: a file, or a folder whose files are read in the "
                         "order of their names. For a convnet: a file of CIFAR-10's binary format, "
                         "or a folder whose .bin files are read in the order of their names. For a "
                         "click model: a file. A path in the pod or, with lockstep run, relative "
                         "to the YAML's folder.",
              .bytes_max = kPathBytesMax},
        &DataSpec::path);
    visit(
        Field{
            .name = "tokenizer",
            .meaning =
                "bytes: each byte is a token. u16 and u32: the files hold little-endian token ids, "
                "as lockstep tokenize writes them.",
            .choices = "bytes u16 u32"},
        &DataSpec::tokenizer);
    visit(Field{.name = "pieces",
                .meaning = "The table of the bytes that each token id stands for, which lockstep "
                           "tokenize writes; with it, prompt and sample are text, and the "
                           "validation loss is also told per byte. Only with u16 and u32. A path "
                           "like data.path.",
                .bytes_max = kPathBytesMax},
          &DataSpec::pieces);
    visit(Field{.name = "maskToken",
                .meaning = "The token id that stands for masked tokens of a bert; 0 means the "
                           "vocabulary's last one, and is not valid with model.weights. 15 % of "
                           "each sequence's positions are "
                           "predicted: of these 80 % are masked, 10 % have a drawn token and 10 % "
                           "stay. All tokens of a sequence have token type 0.",
                .minimum = 0,
                .maximum = 1 << 24},
          &DataSpec::maskToken);
    visit(Field{.name = "features",
                .meaning = "Samples for an mlp: a NumPy file (.npy) of [samples, inputs] numbers, "
                           "little-endian and in C order. For a convnet: images [samples, height, "
                           "width, channels], whose bytes (uint8) are divided by 255; the "
                           "channels' dim may be missing if there is one. MNIST's IDX files of "
                           "bytes are read too. A path like data.path.",
                .bytes_max = kPathBytesMax},
          &DataSpec::features);
    visit(Field{.name = "targets",
                .meaning = "What an mlp or convnet predicts: a .npy or IDX file with a row for "
                           "each sample, of class numbers from 0 or, for an mlp with task: "
                           "regression, of outputs numbers. A path like data.path.",
                .bytes_max = kPathBytesMax},
          &DataSpec::targets);
    visit(Field{.name = "format",
                .meaning = "Format of a click log. criteo: lines of a label, 13 numbers and 26 "
                           "categories, separated by tabs. libsvm: lines of a label and "
                           "index:value pairs.",
                .choices = "criteo libsvm"},
          &DataSpec::format);
    visit(Field{.name = "flip",
                .meaning = "Whether a convnet's training images are mirrored left to right, each "
                           "with probability 1/2."},
          &DataSpec::flip);
    visit(Field{.name = "cropPadding",
                .meaning = "Pixels by which a convnet's training images are shifted at most, "
                           "down or up and left or right; what comes in from outside is 0 before "
                           "the normalisation. As random crops of images with that padding.",
                .minimum = 0,
                .maximum = 64},
          &DataSpec::cropPadding);
    visit(Field{.name = "mean",
                .meaning = "What is subtracted from each channel of a convnet's images, or from "
                           "all if there is one number; needs deviation.",
                .items_max = 16},
          &DataSpec::mean);
    visit(Field{.name = "deviation",
                .meaning = "What each channel is divided by after that; as many numbers as mean.",
                .minimum = 0,
                .above_minimum = true,
                .items_max = 16},
          &DataSpec::deviation);
    visit(Field{.name = "validationFraction",
                .meaning = "Fraction of the data that is held back for validation: the end of a "
                           "text, table or click log, and images that seed draws.",
                .minimum = 0,
                .maximum = 0.5},
          &DataSpec::validationFraction);
    visit(Field{.name = "seed",
                .meaning = "Seed of the order in which samples are drawn, and of what is drawn "
                           "for images.",
                .minimum = 0},
          &DataSpec::seed);
  }
};

template <>
struct Schema<BatchSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(
        Field{.name = "global",
              .meaning = "Samples (sequences of a text, rows of a table, images, lines of a click "
                         "log) per optimizer step, over all ranks.",
              .minimum = 1,
              .maximum = kBatchMax},
        &BatchSpec::global);
    visit(Field{.name = "micro",
                .meaning = "Samples per forward pass on one rank; gradients accumulate until "
                           "global is reached. 0 means a rank's whole share.",
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
                .meaning = "The optimizer's algorithm.",
                .choices = "adamw sgd adagrad muon"},
          &OptimizerSpec::name);
    visit(Field{.name = "learningRate",
                .meaning = "The learning rate after the warm-up.",
                .minimum = 0,
                .maximum = 100,
                .above_minimum = true},
          &OptimizerSpec::learningRate);
    visit(Field{.name = "schedule",
                .meaning = "How the learning rate changes after the warm-up.",
                .choices = "constant linear cosine warmupStableDecay step"},
          &OptimizerSpec::schedule);
    visit(Field{.name = "warmupSteps",
                .meaning = "Steps over which the learning rate rises from 0.",
                .minimum = 0,
                .maximum = kStepsMax},
          &OptimizerSpec::warmupSteps);
    visit(Field{.name = "minimumLearningRate",
                .meaning = "Final learning rate of linear, cosine and warmupStableDecay, and the "
                           "lowest one of step; at most learningRate.",
                .minimum = 0,
                .maximum = 100},
          &OptimizerSpec::minimumLearningRate);
    visit(Field{.name = "decaySteps",
                .meaning = "The last steps, in which the learning rate falls. Only with "
                           "warmupStableDecay, which needs it.",
                .minimum = 0,
                .maximum = kStepsMax},
          &OptimizerSpec::decaySteps);
    visit(Field{.name = "milestones",
                .meaning = "Steps after which the learning rate falls, ascending. Only with step, "
                           "which needs one.",
                .minimum = 1,
                .maximum = kStepsMax,
                .items_max = 64},
          &OptimizerSpec::milestones);
    visit(Field{.name = "factor",
                .meaning = "What the learning rate is multiplied by after each milestone. Only "
                           "with step.",
                .minimum = 0,
                .maximum = 1},
          &OptimizerSpec::factor);
    visit(Field{.name = "beta1",
                .meaning = "Decay rate of the gradient's running mean. Only with adamw and muon.",
                .minimum = 0,
                .maximum = 0.999999},
          &OptimizerSpec::beta1);
    visit(Field{.name = "beta2",
                .meaning = "Decay rate of the squared gradient's running mean. Only with adamw and "
                           "muon.",
                .minimum = 0,
                .maximum = 0.999999},
          &OptimizerSpec::beta2);
    visit(Field{.name = "epsilon",
                .meaning = "Epsilon added to the denominator of the update. Not with sgd.",
                .minimum = 0,
                .maximum = 1,
                .above_minimum = true},
          &OptimizerSpec::epsilon);
    visit(Field{.name = "momentum",
                .meaning = "Momentum of sgd; 0 trains without it, and keeps no state.",
                .minimum = 0,
                .maximum = 0.999999},
          &OptimizerSpec::momentum);
    visit(Field{.name = "nesterov",
                .meaning = "Whether sgd looks ahead as Nesterov's method; needs momentum."},
          &OptimizerSpec::nesterov);
    visit(Field{.name = "matrixLearningRate",
                .meaning = "The learning rate of hidden matrices after the warm-up; it follows "
                           "the schedule in proportion to learningRate. Only with muon.",
                .minimum = 0,
                .maximum = 100,
                .above_minimum = true},
          &OptimizerSpec::matrixLearningRate);
    visit(Field{.name = "matrixMomentum",
                .meaning = "Nesterov's momentum of hidden matrices. Only with muon.",
                .minimum = 0,
                .maximum = 0.999999},
          &OptimizerSpec::matrixMomentum);
    visit(Field{.name = "weightDecay",
                .meaning = "Weight decay, which applies only to matrices. With adamw and muon it "
                           "is decoupled; with sgd and adagrad it is an L2 penalty, added to the "
                           "gradient.",
                .minimum = 0,
                .maximum = 10},
          &OptimizerSpec::weightDecay);
    visit(Field{.name = "clipNorm",
                .meaning = "Maximum norm of all gradients together; 0 disables clipping.",
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
                .meaning = "Steps between validations; 0 validates only at the end. Needs "
                           "data.validationFraction above 0.",
                .minimum = 0,
                .maximum = kStepsMax},
          &ValidationSpec::everySteps);
  }
};

template <>
struct Schema<TimelineSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "everySteps",
                .meaning = "Steps from one recording to the next; 0 records nothing. Needs "
                           "checkpoint.path.",
                .minimum = 0,
                .maximum = kStepsMax},
          &TimelineSpec::everySteps);
    visit(Field{.name = "steps",
                .meaning = "Steps of a recording: the last ones of each everySteps.",
                .minimum = 1,
                .maximum = 100},
          &TimelineSpec::steps);
  }
};

template <>
struct Schema<SampleSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "tokens",
                .meaning = "Tokens to generate after the last step; 0 generates none.",
                .minimum = 0,
                .maximum = 65536},
          &SampleSpec::tokens);
    visit(Field{.name = "prompt", .meaning = "The text to continue."}, &SampleSpec::prompt);
    visit(Field{.name = "temperature",
                .meaning = "Sampling temperature: below 1 sharpens the distribution, 0 always "
                           "takes the most likely token.",
                .minimum = 0,
                .maximum = 100},
          &SampleSpec::temperature);
    visit(
        Field{.name = "topK",
              .meaning = "Sample only from this many of the most likely tokens; 0 means from all.",
              .minimum = 0,
              .maximum = 1 << 24},
        &SampleSpec::topK);
    visit(Field{.name = "seed", .meaning = "Seed of the sampling.", .minimum = 0},
          &SampleSpec::seed);
  }
};

template <>
struct Schema<TrainSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "model", .meaning = "The model to train."}, &TrainSpec::model);
    visit(Field{.name = "data", .meaning = "The data to train on.", .required = true},
          &TrainSpec::data);
    visit(Field{.name = "steps",
                .meaning = "Number of optimizer steps.",
                .minimum = 1,
                .maximum = kStepsMax},
          &TrainSpec::steps);
    visit(Field{.name = "batch", .meaning = "Samples per step."}, &TrainSpec::batch);
    visit(Field{.name = "optimizer", .meaning = "How the parameters are updated."},
          &TrainSpec::optimizer);
    visit(Field{.name = "dropout",
                .meaning = "Probability that a value is dropped in training: of the embedding and "
                           "of the outputs of attention and MLP, of an mlp's hidden layers, or of "
                           "what a convnet's linear layers read. The same values are dropped in "
                           "every layout; attention's probabilities are never dropped.",
                .minimum = 0,
                .maximum = 0.9},
          &TrainSpec::dropout);
    visit(Field{.name = "ema",
                .meaning = "Decay of the moving average of the parameters, such as 0.999, which "
                           "checkpoints and lockstep export --average have; 0 keeps none.",
                .minimum = 0,
                .maximum = 0.9999},
          &TrainSpec::ema);
    visit(Field{.name = "precision",
                .meaning = "Precision of matrix products; parameters and sums stay in fp32.",
                .choices = "fp32 bf16"},
          &TrainSpec::precision);
    visit(Field{.name = "rounding",
                .meaning = "How the fp32 parameters are rounded to the bf16 copies that matrix "
                           "products read with precision: bf16. nearest rounds to the nearest "
                           "even. stochastic rounds up or down with probabilities that make the "
                           "copies right on average, drawn from seed, step and element.",
                .choices = "nearest stochastic"},
          &TrainSpec::rounding);
    visit(Field{.name = "recompute",
                .meaning = "Activations that backward recomputes instead of keeping, to save "
                           "memory: ops recomputes the outputs of norms and GELU, blocks "
                           "everything but the inputs of the model's blocks. The results are the "
                           "same, except for the last bits of ops with precision bf16 on a GPU. "
                           "auto is blocks with pipelineSchedule: gpipe, and none otherwise.",
                .choices = "auto none ops blocks"},
          &TrainSpec::recompute);
    visit(Field{.name = "attention",
                .meaning =
                    "Attention kernels on GPUs with precision bf16: Lockstep's own, cuDNN's (head "
                    "sizes 64 and 128, not for family: bert; backward needs memory for a score of "
                    "each pair "
                    "of tokens), "
                    "or the faster of the two as measured when the job begins (auto), which is "
                    "recorded in checkpoint.path. Their results differ in the last bits.",
                .choices = "own cudnn auto"},
          &TrainSpec::attention);
    visit(Field{.name = "seed",
                .meaning = "Seed of the initial parameters, of stochastic rounding and of dropout.",
                .minimum = 0},
          &TrainSpec::seed);
    visit(Field{.name = "bucketBytes",
                .meaning = "Bytes of gradients per all-reduce.",
                .minimum = 1024,
                .maximum = 1 << 30},
          &TrainSpec::bucketBytes);
    visit(Field{.name = "validation",
                .meaning = "When the model is validated on the held-back data."},
          &TrainSpec::validation);
    visit(Field{.name = "timeline",
                .meaning = "When every rank records what it does at which time, for `lockstep "
                           "timeline`."},
          &TrainSpec::timeline);
    visit(Field{.name = "sample", .meaning = "Text generated at the end."}, &TrainSpec::sample);
  }
};

}  // namespace lockstep
