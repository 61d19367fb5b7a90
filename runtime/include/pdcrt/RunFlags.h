// The flags of a training that people give: to pdc-run, which hands them on, and to a stage program. Stated once; what
// they set is in runtime/src/run/Options.cpp, docs/Running.md explains them.
#pragma once

namespace pdcrt {

struct RunFlag {
  const char* name;
  const char* type;  ///< of the value; N: a whole number
  const char* group; ///< heading of the help
  const char* text;  ///< first line: the help's; what follows is for the man page
};

inline constexpr RunFlag runFlags[] = {
    {"--data", "DIR|FILE|synthetic", "Data",
     "what to train on\nA folder of .npy files, a file of tokens (.bin, .npy), or noise. See docs/Data.md."},
    {"--eval", "DIR|FILE|synthetic", "Data", "what to evaluate on after training"},
    {"--eval-every", "N", "Data", "evaluate after every N steps too\nThe pipeline drains before each evaluation."},
    {"--tokens", "uint8|uint16|uint32", "Data", "type of the tokens in a raw file (.bin: uint16)"},
    {"--label-shift", "0|1", "Data",
     "how far on a label is in a token stream\n0 where the model shifts its labels itself. Default: 1."},
    {"--normalize", "MEAN/STD", "Data", "normalise float inputs: (x - MEAN) / STD"},
    {"--samples", "N", "Data", "size of synthetic data"},
    {"--shuffle", "on|off", "Data", "another order of samples in each epoch"},
    {"--epochs", "N", "Training", "times to go through the data"},
    {"--steps", "N", "Training", "number of minibatches to train on\nNumber of updates, where the schedule flushes."},
    {"--seed", "N", "Training", "seed of the order of samples and of random operators"},
    {"--lr", "RATE", "Training", "learning rate instead of training.json's"},
    {"--checkpoint-dir", "DIR", "Checkpoints",
     "write checkpoints there\nAt the end, after a signal, and after every --checkpoint-every steps."},
    {"--checkpoint-every", "N", "Checkpoints", "steps between checkpoints"},
    {"--keep", "N", "Checkpoints", "number of checkpoints to keep, the newest"},
    {"--log-every", "N", "Output", "steps between progress lines"},
    {"--metrics", "F.jsonl", "Output", "write one JSON object per step"},
    {"--tensorboard", "DIR", "Output", "write curves for TensorBoard"},
    {"--trace", "F.json", "Output", "write what each rank did and when, for Perfetto"}};

} // namespace pdcrt
