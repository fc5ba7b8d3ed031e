// kinds.h - the table of kinds.def: which operators of a host are priced by a rate of their kind.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_KINDS_H
#define ZX_SCHED_KINDS_H

#include "graph/op.h"

typedef enum zx_kind_id {
#define ZX_KIND(id, ...) ZX_KIND_##id,
#define ZX_KIND_OF(...)
#include "sched/kinds.def"
    ZX_KIND_COUNT
} zx_kind_id;

typedef struct zx_kind_operand { // one that the standard operator reads
    bool used;
    zx_type type; // float32, or int64: labels
    bool stays;   // float32 where others are of 16 bits
} zx_kind_operand;

#define ZX_KIND_ATTRS 6
#define ZX_KIND_OPERANDS 5
typedef struct zx_kind {
    const char *word; // in a machine's file
    uint32_t op;      // that is measured
    double (*amount)(const zx_op_args *args, const zx_cost *cost);
    zx_attr attrs[ZX_KIND_ATTRS];               // up to the first with n = 0
    zx_kind_operand operands[ZX_KIND_OPERANDS]; // up to the first that isn't used
} zx_kind;
extern const zx_kind zx_kinds[ZX_KIND_COUNT];

// The kind that an operator with these attributes is of; ZX_NONE.
uint32_t zx_kind_of(const zx_op_args *args);

#endif
