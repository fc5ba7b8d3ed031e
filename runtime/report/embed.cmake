# embed.cmake - writes the files of the report's page into one C source: cmake -DOUT=FILE.c
# "-DFILES=a;b" -P embed.cmake. They are ASCII, so that a char can hold every byte.
# SPDX-License-Identifier: Apache-2.0
set(code "// Made by runtime/report/embed.cmake.\n#include \"runtime/report_priv.h\"\n\n")
set(table "const zx_report_file zx_report_files[] = {\n")
set(n 0)
foreach(file ${FILES})
    get_filename_component(name ${file} NAME)
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    if(bytes MATCHES "0x[89a-f]")
        message(FATAL_ERROR "${file} is not plain ASCII")
    endif()
    string(APPEND code "static const char file_${n}[] = {${bytes}0};\n")
    string(APPEND table "    {\"${name}\", file_${n}},\n")
    math(EXPR n "${n} + 1")
endforeach()
file(WRITE ${OUT} "${code}${table}    {0, 0},\n};\n")
