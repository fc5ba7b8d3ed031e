// wire_build.h - writes protobuf by hand, so that tests can also write what no library would.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_WIRE_BUILD_H
#define ZX_TESTS_WIRE_BUILD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/base/text.h"
#include "tests/test.h"

static inline void put_varint(zx_text *t, uint64_t v)
{
    for (; v > 0x7F; v >>= 7) zx_text_bytes(t, (unsigned char[]){(unsigned char)(v | 0x80)}, 1);
    zx_text_bytes(t, (unsigned char[]){(unsigned char)v}, 1);
}

static inline void put_int(zx_text *t, uint32_t field, int64_t v)
{
    put_varint(t, (uint64_t)field << 3);
    put_varint(t, (uint64_t)v);
}

static inline void put_bytes(zx_text *t, uint32_t field, const void *bytes, size_t n)
{
    put_varint(t, (uint64_t)field << 3 | 2);
    put_varint(t, n);
    zx_text_bytes(t, bytes, n);
}

static inline void put_word(zx_text *t, uint32_t field, const char *word)
{
    put_bytes(t, field, word, strlen(word));
}

// `inner` as a message in field `field`; `inner` is freed.
static inline void put_message(zx_text *t, uint32_t field, zx_text *inner)
{
    put_bytes(t, field, inner->at, inner->n);
    zx_text_free(inner);
}

static inline void put_entry(zx_text *t, uint32_t field, const char *key, const char *value)
{
    zx_text e = {0};
    put_word(&e, 1, key);
    put_word(&e, 2, value);
    put_message(t, field, &e);
}

// A whole model, IR 8, opset 17, around the bytes of a graph; `graph` is freed.
static inline zx_text model_of(zx_text *graph)
{
    zx_text m = {0}, opset = {0};
    put_int(&m, 1, 8);
    put_message(&m, 7, graph);
    put_int(&opset, 2, 17);
    put_message(&m, 8, &opset);
    return m;
}

// Name, dims and element type of a TensorProto; its data is to be put after.
static inline zx_text tensor_of(const char *name, int32_t type, uint32_t rank, const int64_t *dims)
{
    zx_text t = {0};
    for (uint32_t i = 0; i < rank; i++) put_int(&t, 1, dims[i]);
    put_int(&t, 2, type);
    put_word(&t, 8, name);
    return t;
}

// A folder for the files of a test, by its own name; removed by folder_remove.
static inline const char *folder_make(char path[64])
{
    snprintf(path, 64, "/tmp/zx_test_XXXXXX");
    if (mkdtemp(path) == NULL) fail_msg("no folder in /tmp");
    return path;
}

static inline void folder_remove(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) fail_msg("cannot remove %s", path);
}

static inline void file_write(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL) fail_msg("cannot write %s", path);
    if (n > 0) assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static inline void assert_says(const zx_err *err, const char *part)
{
    if (strstr(err->cause[0], part) == NULL) fail_msg("'%s' doesn't say '%s'", err->cause[0], part);
}

#endif
