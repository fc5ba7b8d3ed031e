// version.h - which zerox this is, and the libraries that it runs on.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_VERSION_H
#define ZX_RUNTIME_VERSION_H

#include "graph/base/text.h"

#define ZX_VERSION "0.1.0"

void zx_version_put(zx_text *out); // "zerox 0.1.0 (oneDNN 2.6.3, protobuf-c 1.4.1, jansson 2.14)\n"

#endif
