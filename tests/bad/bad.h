// bad.h - the program, given what it must refuse: how it ends, what it says, what it leaves behind.
//
// Each run has an empty folder of its own as current directory. Afterwards the exit code is right,
// stderr ends with lines "zerox: CAUSE" and one line of what to try, no byte of a name has reached
// the terminal raw, and nothing is left: no file, no process, nothing in /dev/shm.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_BAD_BAD_H
#define ZX_TESTS_BAD_BAD_H

#include <sys/types.h>

#include "tests/wait.h"

#define BAD_ARGS 48

enum {
    BAD_ONCE = 1 << 0,   // isn't run again with --ranks 3
    BAD_LEAVES = 1 << 1, // files in the current directory are meant to be there
    BAD_MODEL = 1 << 2,  // `plan` and `check` see it as well: they may say what they like
};

typedef struct bad_row {
    const char *name;
    int code;
    const char *args;    // split at blanks; "$IN" is the folder of what make_files wrote
    const char *config;  // written to a file that --config names; NULL: none
    const char *says[4]; // all of them stand in stderr
    unsigned flags;
} bad_row;

typedef struct bad_result {
    int code;        // exit code; 1000 + n: killed by signal n; -1: it hung and was killed
    char *out, *err; // NUL-terminated, until the next run
} bad_result;

extern char bad_in[64]; // folder of the files that runs read; made by bad_setup

int bad_setup(void **state);    // cmocka's group setup: the folders, and no launcher's variables
int bad_teardown(void **state); // and no process of ours is left

// ---- one run ------------------------------------------------------------------------------------
void bad_run(const char *args, bad_result *r);
// The same in two parts, for who does something to it while it runs.
pid_t bad_start(const char *args);
void bad_end(pid_t pid, bad_result *r);
// Waits until the current directory's `path` has `lines` lines.
void bad_wait_lines(const char *path, int lines);

// ---- what must hold -----------------------------------------------------------------------------
void bad_row_test(void **state);                                  // of a bad_row, as a cmocka test
void bad_expect(const bad_result *r, int code, const char *said); // said: in stderr; NULL
void bad_format(const bad_result *r);                             // of what stderr ends with
uint32_t bad_causes(const bad_result *r);
void bad_nothing_left(bool files_too); // processes, /dev/shm and the current directory
// Empties the current directory, and ends what a test that failed has left running.
void bad_clear(void);

// ---- files --------------------------------------------------------------------------------------
const char *bad_path(const char *name); // in bad_in; good until the 8th next call
void bad_write(const char *name, const void *bytes, size_t n);
void bad_text(const char *name, const char *text);
// A .npy file of version 1: descr like "<f4"; dims like "4, 2" or "4,".
void bad_npy(const char *name, const char *descr, const char *dims, const void *bytes, size_t n);
char *bad_read(const char *path, size_t *n); // malloc'ed, a NUL behind it; NULL: can't be read

#endif
