# build.sh - tests/device.sh: what is built where the packages are (the kit), and where the GPU is.
# SPDX-License-Identifier: Apache-2.0

# Of everything that the kit was compiled from: another tree's would crash, or worse, nearly work.
fingerprint() {
    find graph kernels/cpu kernels/*.h kernels/*.def proto sched runtime tests/reference tests/ops tests/cuda_standin \
        \( -name '*.c' -o -name '*.h' -o -name '*.def' -o -name '*.proto' \) -type f | LC_ALL=C sort | xargs cksum | cksum
}

# The file that the compiler links for -lNAME, static where there is one.
library() {
    local file
    for file in "lib$1.a" "lib$1.so"; do
        file=$(cc -print-file-name="$file")
        case $file in /*) readlink -f "$file" && return ;; esac
    done
    echo "device.sh: there is no lib$1" >&2
    return 1
}

# What has nothing to do with CUDA, compiled with our own loops in place of oneDNN's, and small libraries.
prepare() {
    local name file soname header host=build-device/host
    .ci/build $host zx_runtime -DZX_NAIVE=ON -DZX_CUDA=OFF -DZX_TESTS=OFF -DCLP_INCLUDE=OFF || return 1
    rm -rf "$kit" && mkdir -p "$kit/lib" "$kit/include" || return 1
    find $host -name 'libzx_*.a' ! -name '*cuda*' -exec cp {} "$kit/lib/" \;
    for name in jansson protobuf-c cmocka; do
        file=$(library $name) || return 1
        soname=$(objdump -p "$file" | sed -n 's/ *SONAME *//p') # by which a program looks for it
        cp "$file" "$kit/lib/${soname:-$(basename "$file")}" || return 1
    done
    for header in jansson.h jansson_config.h cmocka.h protobuf-c/protobuf-c.h; do
        name=$(echo "#include <$header>" | cc -E -x c - -include stddef.h -include stdarg.h -include stdint.h -include setjmp.h |
            sed -n "s|^# [0-9]* \"\(.*/$header\)\".*|\1|p" | head -n 1)
        mkdir -p "$(dirname "$kit/include/$header")" && cp "$name" "$kit/include/$header" || return 1
    done
    cp $host/generated/onnx.pb-c.h "$kit/include/" || return 1
    fingerprint >"$kit/fingerprint"
    echo "$kit: $(du -sk "$kit" | cut -f 1) KiB; carry it with the sources and run tests/device.sh there"
}

find_toolkit() {
    nvcc=$(command -v nvcc || ls "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" 2>/dev/null) ||
        { echo "there is no nvcc: CUDA_HOME may name the toolkit's folder" && return 1; }
    toolkit=$(readlink -f "$(dirname "$(readlink -f "$nvcc")")/..")
    [ -n "${ARCH:-}" ] || nvidia-smi -L >/dev/null 2>&1 ||
        { echo "there is no GPU that nvidia-smi knows (ARCH=sm_90 builds for one all the same)" && return 1; }
    [ -f "$kit/fingerprint" ] || { echo "there is no $kit: tests/device.sh prepare makes it, where zerox's packages are" && return 1; }
    [ "$(fingerprint)" = "$(cat "$kit/fingerprint")" ] ||
        { echo "$kit was made from other sources than these: tests/device.sh prepare makes it anew" && return 1; }
}

# A line a file that is compiled: OBJECT, then the command.
commands() {
    local file flags="-std=c11 -O2 -D_GNU_SOURCE -DZX_NAIVE -ffp-contract=off -fno-math-errno -I. -isystem $kit/include"
    flags="$flags -isystem $toolkit/include $nccl_include -DZX_WITH_CUDA -DZX_ON_DEVICE"
    for file in kernels/cuda/*.cu tests/device/overlap.cu; do
        echo "$nvcc -std=c++17 -O2 -arch=${ARCH:-native} -I. -D_GNU_SOURCE -c $file -o $bin/$(basename "$file").o"
    done
    for file in kernels/cuda/*.c runtime/cuda/*.c runtime/backend.c runtime/main.c tests/ops/rig.c \
        tests/cuda_standin/test_ops.c tests/cuda_standin/test_kernels.c $nccl_source; do
        echo "cc $flags -c $file -o $bin/$(basename "$file").o"
    done
    echo "cc $flags -c tests/reference/test_cases.c -o $bin/test_cases.c.o '-DZX_TEST_DATA=\"$root/tests/data\"'" \
        "'-DZX_PROGRAM=\"$bin/zerox\"' '-DZX_CASES_ON=\"--backend cuda\"'"
}

# NAME FILES... - links them with what all programs have.
link() {
    local name=$1
    shift
    "$nvcc" -arch="${ARCH:-native}" -o "$bin/$name" "$@" -Xlinker --start-group "$kit"/lib/*.a -Xlinker --end-group \
        $shared -Xlinker -rpath="$root/$kit/lib" -L"$toolkit/lib64" -L"$toolkit/lib" -Xlinker -rpath="$toolkit/lib64" -lcublasLt $nccl_library \
        -Xcompiler -fopenmp -lm -lpthread -lstdc++
}

build() {
    local kernels cuda object
    find_toolkit || return 1
    mkdir -p "$bin" || return 1
    nccl_source='' nccl_include='' nccl_library="-lnccl -Xlinker -rpath=$toolkit/lib"
    if ! { echo '#include <nccl.h>' && echo 'int main(void) { return ncclGroupStart(); }'; } |
        "$nvcc" -x c -o "$bin/nccl" - -L"$toolkit/lib" -lnccl >/dev/null 2>&1; then
        mkdir -p "$bin/include" && cp tests/cuda_standin/include/nccl.h "$bin/include/" || return 1
        nccl_source=tests/device/no_nccl.c nccl_include="-isystem $bin/include" nccl_library=''
        echo "no NCCL here: what more than one rank exchanges goes through the host's memory, or not at all"
    fi
    commands | tr '\n' '\0' | xargs -0 -P "$(nproc)" -I{} sh -c '{} || exit 255' || return 1
    shared=$(find "$kit/lib" -name "*.so*" -printf "-Xlinker %p ")
    kernels=$(for object in kernels/cuda/*.cu kernels/cuda/*.c; do echo "$bin/$(basename "$object").o"; done)
    cuda=$(for object in runtime/cuda/*.c runtime/backend.c $nccl_source; do echo "$bin/$(basename "$object").o"; done)
    link zerox "$bin/main.c.o" $cuda $kernels && link ops "$bin/test_ops.c.o" "$bin/rig.c.o" $kernels &&
        link kernels "$bin/test_kernels.c.o" "$bin/rig.c.o" $kernels && link cases "$bin/test_cases.c.o" &&
        link overlap "$bin/overlap.cu.o" && "$bin/zerox" --version >/dev/null
}
