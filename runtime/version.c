// version.c - see version.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/version.h"

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#ifndef ZX_NAIVE
#include <oneapi/dnnl/dnnl.h>
#endif

void zx_version_put(zx_text *out)
{
    zx_text_put(out, "zerox %s (", ZX_VERSION);
#ifdef ZX_NAIVE
    zx_text_put(out, "own matrix products");
#else
    const dnnl_version_t *v = dnnl_version();
    zx_text_put(out, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
#endif
    zx_text_put(out, ", protobuf-c %s, jansson %s)\n", protobuf_c_version(), jansson_version_str());
}
