// sanitizer.h - whether the address sanitizer looks on (SI_ASAN), for gcc and clang.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_SANITIZER_H
#define ZX_STANDIN_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__)
#define SI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SI_ASAN 1
#endif
#endif
#if defined(SI_ASAN)
#include <sanitizer/asan_interface.h>
#endif

#endif
