// options.h - the command line: commands, and the options that options.def lists.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_OPTIONS_H
#define ZX_RUNTIME_OPTIONS_H

#include "graph/base/text.h"

//    id     word     what stands before the options  what it does  an example, which a test runs
#define ZX_COMMAND_MAP(X)                                                                          \
    X(TRAIN, "train", "MODEL.onnx", "train a model, sharded over ranks",                           \
      "zerox train model.onnx --config zero3.json --ranks 2 --steps 5")                            \
    X(PLAN, "plan", "MODEL.onnx", "show the plan of a training step",                              \
      "zerox plan model.onnx --config zero3.json --ranks 2 --budget min")                          \
    X(COMPARE, "compare", "PRESET|MODEL.onnx",                                                     \
      "compare schedules at one budget, predicted or executed",                                    \
      "zerox compare model.onnx --ranks 2 --policies zerox,hooks,fsdp")                            \
    X(SIMULATE, "simulate", "PRESET|MODEL.onnx",                                                   \
      "predict training of a large model on other machines",                                       \
      "zerox simulate llama3-8b --machine h100x8 --accumulate 2")                                  \
    X(CHECK, "check", "MODEL.onnx", "say what zerox makes of a model", "zerox check model.onnx")   \
    X(CONFIG, "config", "[MODEL.onnx]", "say what a configuration comes to, or print its schema",  \
      "zerox config --explain zero3.json --ranks 2 model.onnx")                                    \
    X(OPS, "ops", "", "list the supported operators", "zerox ops")                                 \
    X(NEW, "new", "FAMILY", "write an untrained model: gpt2, llama or mlp",                        \
      "zerox new gpt2 --preset tiny --set sequence=32 -o gpt2.onnx")                               \
    X(DIFF, "diff", "PLAN PLAN", "compare two plan files; exit code 1 if they differ",             \
      "zerox diff zerox.plan hooks.plan")                                                          \
    X(SHOW, "show", "FILE|CHECKPOINT|RUN", "show the tensors of a file, a checkpoint or a run",    \
      "zerox show runs/latest")                                                                    \
    X(CONVERT, "convert", "FROM TO",                                                               \
      "write weights as .safetensors, into a model, or as a checkpoint to go on from",             \
      "zerox convert runs/latest weights.safetensors\n"                                            \
      "zerox convert weights.safetensors start --model model.onnx --config zero3.json --ranks 2")  \
    X(REPORT, "report", "RUN...", "the curves of runs as one page to look at in a browser",        \
      "zerox report runs/latest -o curves.html")                                                   \
    X(MACHINE, "machine", "[NAME]", "show how fast this host, or a machine by name, is",           \
      "zerox machine h100")

typedef enum zx_command {
#define X(id, word, operand, help, example) ZX_CMD_##id,
    ZX_COMMAND_MAP(X)
#undef X
        ZX_CMD_COUNT,
    ZX_CMD_NONE // only --help or --version was asked for
} zx_command;

typedef enum zx_option_id {
#define ZX_OPTION(id, kind, names, commands, arg, help) ZX_OPT_##id,
#include "runtime/options.def"
#undef ZX_OPTION
    ZX_OPT_COUNT
} zx_option_id;

typedef struct zx_option_value {
    uint32_t n, cap;   // times it was given; 0: it wasn't
    const char **text; // arguments, in order; NULL for flags
    uint64_t number;   // NUMBER, COUNT: the last one
} zx_option_value;

typedef struct zx_options {
    zx_command command;
    bool help, version;
    const char *operand; // MODEL or FAMILY; NULL: not given
    const char *second;  // of a command that takes two
    uint32_t n_operands; // of one that takes any number: all of them
    const char **operands;
    int argc; // the whole command line, for command.txt
    char *const *argv;
    zx_option_value value[ZX_OPT_COUNT];
} zx_options;

// The name that an option is shown by; whether it takes an argument.
const char *zx_option_word(zx_option_id id, zx_arena *mem);
bool zx_option_has_argument(zx_option_id id);
// As if the command line had said it at its end; arg NULL: a flag. E_USAGE as there.
zx_status zx_options_add(zx_options *o, zx_option_id id, const char *arg, zx_arena *mem,
                         zx_err *err);

// Reads a command line; texts stay in argv. E_USAGE for what isn't understood, with the nearest
// name; then err's hint says which --help to read.
zx_status zx_options_parse(int argc, char *const *argv, zx_arena *mem, zx_options *out,
                           zx_err *err);
// Part of it: E_USAGE where others that were given leave an option nothing to do (options_idle.c).
zx_status zx_options_check_idle(const zx_options *o, zx_err *err);
// Whether another machine than this host is named, by a word or a file.
bool zx_options_name_machine(const zx_options *o);

static inline bool zx_given(const zx_options *o, zx_option_id id)
{
    return o->value[id].n > 0;
}
// The last argument given; NULL where it wasn't given.
static inline const char *zx_given_text(const zx_options *o, zx_option_id id)
{
    return o->value[id].n > 0 ? o->value[id].text[o->value[id].n - 1] : NULL;
}
static inline uint64_t zx_given_number(const zx_options *o, zx_option_id id, uint64_t absent)
{
    return o->value[id].n > 0 ? o->value[id].number : absent;
}

bool zx_options_take(zx_command c, zx_option_id id); // whether this command has the option
const char *zx_command_word(zx_command c);           // "" for NONE
const char *zx_command_example(zx_command c);
// All commands with their examples, for the documentation.
void zx_options_document(zx_text *out);
// The help of one command, or of the program (NONE), as it is printed.
void zx_options_help(zx_command c, zx_text *out);

// "NAME=N", N >= 1: false if it is anything else. *name_n is the length of NAME in `text`.
bool zx_parse_name_count(const char *text, size_t *name_n, uint64_t *count);
// The digits of a whole number and nothing else.
bool zx_parse_u64(const char *text, uint64_t *out);
// "5ms", "0.2s", "250us".
bool zx_parse_seconds(const char *text, double *out);

#endif
